//! What steps do: one request each, and the answer it has to get.

use super::drain::drain;
use super::form::{
    Answer as Wanted, Delete, Deschedule, Evict, Kubelet, KubeletState, Patch, PatchKind, Scale, Step, What,
};
use super::matching::mismatch;
use super::short;
use super::stage::Stage;
use super::{expect, form};
use crate::{Answer, Request};
use anyhow::{Result, bail, ensure};
use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};
use tokio::time::sleep;

impl Stage {
    /// # Errors
    /// What was expected is not so, in words.
    pub async fn play(&self, step: &Step) -> Result<()> {
        let user = step.user.as_deref();
        let answers = match &step.what {
            What::Wait(time) => {
                sleep(*time).await;
                return Ok(());
            }
            What::Expect(expected) => return expect::expect(self, expected).await,
            What::Order(order) => return expect::order(self, order).await,
            What::Drain(form::Drain { drain: node, within, blocked }) => {
                return drain(self, user, node, *within, *blocked).await;
            }
            What::Create(objects) => {
                let mut answers = Vec::new();
                for object in objects {
                    answers.push(self.create(user, object).await?);
                }
                answers
            }
            What::Apply(objects) => {
                let mut answers = Vec::new();
                for object in objects {
                    answers.push(self.apply(user, object).await?);
                }
                answers
            }
            What::Patch(patch) => vec![self.patch(user, patch).await?],
            What::Delete(Delete { delete, options }) => vec![self.delete(user, delete, options).await?],
            What::Scale(Scale { scale, to }) => {
                let path = format!("{}/scale", self.target(scale).await?.path);
                vec![
                    self.send_patch(user, &path, PatchKind::Merge, &json!({"spec": {"replicas": to}}))
                        .await?,
                ]
            }
            What::Cordon(node) => vec![self.set_schedulable(user, node, false).await?],
            What::Uncordon(node) => vec![self.set_schedulable(user, node, true).await?],
            What::Evict(Evict { evict, options }) => {
                let target = self.target(evict).await?;
                let options = self.filled(&Value::Object(options.clone())).await?;
                vec![self.evict(user, &target.path, &target.name, options).await?]
            }
            What::Restart => {
                let Some(usher) = &self.cluster.usher else { bail!("no usher runs beside the cluster") };
                usher.restart();
                return Ok(());
            }
            What::Deschedule(descheduling) => return self.deschedule(descheduling).await,
            What::Kubelet(Kubelet { kubelet, state }) => return self.kubelet(kubelet, *state).await,
        };
        answers.iter().try_for_each(|answer| judge(answer, step.answer.as_ref()))
    }

    async fn deschedule(&self, descheduling: &Deschedule) -> Result<()> {
        let Some(usher) = &self.cluster.usher else { bail!("no usher runs beside the cluster") };
        let mut policy = self.filled(&Value::Object(descheduling.deschedule.clone())).await?;
        policy["apiVersion"] = "descheduler/v1alpha2".into();
        policy["kind"] = "DeschedulerPolicy".into();
        policy["nodeSelector"] = format!("{}={}", short::OWN, self.namespace).into();
        usher.deschedule(&policy.to_string(), descheduling)
    }

    async fn apply(&self, user: Option<&str>, object: &Value) -> Result<Answer> {
        let manifest = self.manifest(object).await?;
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let path = self.cluster.resource_of(&manifest).await?.path(&self.namespace, Some(name));
        let mut request =
            Request::with_json(Method::PATCH, &format!("{path}?fieldManager=scenario&force=true"), &manifest);
        request.headers = vec![(CONTENT_TYPE.to_string(), "application/apply-patch+yaml".to_owned())];
        self.cluster.send(user, request).await
    }

    async fn patch(&self, user: Option<&str>, patch: &Patch) -> Result<Answer> {
        let mut path = self.target(&patch.patch).await?.path;
        if let Some(subresource) = &patch.subresource {
            path = format!("{path}/{subresource}");
        }
        let with = self.filled(&patch.with).await?;
        self.send_patch(user, &path, patch.kind, &with).await
    }

    async fn send_patch(
        &self,
        user: Option<&str>,
        path: &str,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<Answer> {
        let content = match kind {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Strategic => "application/strategic-merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
        };
        let mut request = Request::with_json(Method::PATCH, path, patch);
        request.headers = vec![(CONTENT_TYPE.to_string(), content.to_owned())];
        self.cluster.send(user, request).await
    }

    async fn delete(
        &self,
        user: Option<&str>,
        reference: &str,
        options: &Map<String, Value>,
    ) -> Result<Answer> {
        let path = self.target(reference).await?.path;
        // As kubectl does, whatever the kind's own habit.
        let mut body =
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        for (key, value) in options {
            body[key] = self.filled(value).await?;
        }
        self.cluster.send(user, Request::with_json(Method::DELETE, &path, &body)).await
    }

    pub(super) async fn set_schedulable(&self, user: Option<&str>, node: &str, to: bool) -> Result<Answer> {
        let path = format!("/api/v1/nodes/{}", short::node_name(&self.namespace, node));
        let unschedulable = if to { Value::Null } else { Value::Bool(true) };
        let patch = json!({"spec": {"unschedulable": unschedulable}});
        self.send_patch(user, &path, PatchKind::Merge, &patch).await
    }

    pub(super) async fn evict(
        &self,
        user: Option<&str>,
        pod: &str,
        name: &str,
        options: Value,
    ) -> Result<Answer> {
        let mut body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        if options.as_object().is_some_and(|options| !options.is_empty()) {
            body["deleteOptions"] = options;
        }
        self.cluster.send(user, Request::with_json(Method::POST, &format!("{pod}/eviction"), &body)).await
    }

    /// A kubelet that is down says nothing any more. kwok leaves a node alone that has lost its mark, but goes on to
    /// renew its lease; so what the node lifecycle controller would say after its grace is said here.
    async fn kubelet(&self, node: &str, state: KubeletState) -> Result<()> {
        let node = short::node_name(&self.namespace, node);
        match (&self.cluster.life, state) {
            (Some(life), KubeletState::Down) => life.kubelet_down(&node),
            (Some(life), KubeletState::Up) => life.kubelet_up(&node),
            (None, KubeletState::Down) => self.say_of_node(&node, Value::Null, ["Unknown", "False"]).await?,
            (None, KubeletState::Up) => self.say_of_node(&node, json!("fake"), ["True", "True"]).await?,
        }
        Ok(())
    }

    /// Whether a node, and the pods on it, are ready.
    async fn say_of_node(&self, node: &str, mark: Value, [of_node, of_pods]: [&str; 2]) -> Result<()> {
        let path = format!("/api/v1/nodes/{node}");
        let patch = json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": mark}}});
        self.send_patch(None, &path, PatchKind::Merge, &patch).await?.accepted()?;
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        let on_it = self.cluster.get(&format!("{pods}?fieldSelector=spec.nodeName={node}")).await?;
        let names = on_it["items"].as_array().into_iter().flatten();
        let paths =
            names.filter_map(|pod| pod["metadata"]["name"].as_str()).map(|name| format!("{pods}/{name}"));
        for (path, status) in [(path, of_node)].into_iter().chain(paths.map(|path| (path, of_pods))) {
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
            let answer =
                self.send_patch(None, &format!("{path}/status"), PatchKind::Strategic, &ready).await?;
            // Pods that were to end do so as soon as their kubelet is back.
            if !(answer.status == 404 && path.contains("/pods/")) {
                answer.accepted()?;
            }
        }
        Ok(())
    }
}

fn judge(answer: &Answer, wanted: Option<&Wanted>) -> Result<()> {
    let Some(wanted) = wanted else { return answer.accepted() };
    ensure!(
        answer.status == wanted.code,
        "the answer should be {}, but is {} {}",
        wanted.code,
        answer.status,
        answer.body
    );
    if let Some(why) = mismatch_of(&wanted.has, &answer.body) {
        bail!("in the answer, {why}");
    }
    Ok(())
}

fn mismatch_of(wanted: &Value, body: &Value) -> Option<String> {
    if wanted.is_null() { None } else { mismatch(wanted, body) }
}
