//! Who does what while Deployments surge.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::{HAND_OVER_ANNOTATION, SURGE_ANNOTATION, SURGE_FAILED_CONDITION, SURGE_LABEL};
use usher_tests::living::{Living, PODS};
use usher_tests::maintenances::{MAINTENANCES, of_nodes};
use usher_tests::requests::REQUESTS;

use super::apps::{
    DOWN, FOREIGN_CLASS, LOADED, MOST_LOADED, READY_DELAY, REPLACED, RESET, ROLLED_OUT, SCALED, STEADY,
    UNREADY,
};

/// Somebody on a cluster, with dice of their own, until there is no more trouble.
pub(super) struct Actor<'a> {
    living: &'a Living,
    random: fastrand::Rng,
    end: Instant,
}

impl<'a> Actor<'a> {
    pub(super) fn new(living: &'a Living, random: &mut fastrand::Rng, end: Instant) -> Self {
        Self { living, random: random.fork(), end }
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_secs(self.random.u64(1..=most))).await;
    }

    fn is_trouble(&self) -> bool {
        Instant::now() < self.end
    }

    /// Maintains nodes, one of the times called off in the middle and asked for once more.
    pub(super) async fn administrates(mut self) -> Result<()> {
        self.living.create(MAINTENANCES, &of_nodes("a", "Drain", &["n1", "n2"])).await?;
        self.pause(40).await;
        self.living.create(MAINTENANCES, &of_nodes("b", "Drain", &["n3", "n4"])).await?;
        self.pause(20).await;
        self.living.delete(&format!("{MAINTENANCES}/b")).await?;
        self.pause(100).await;
        self.living.create(MAINTENANCES, &of_nodes("c", "Drain", &["n4", "n5"])).await?;
        Ok(())
    }

    /// Scales one and rolls another one out. The replicas that are wanted in the end.
    pub(super) async fn uses(mut self) -> Result<u64> {
        let mut wanted = SCALED.replicas;
        while self.is_trouble() {
            self.pause(90).await;
            wanted = self.random.u64(1..=6);
            self.living.patch(&SCALED.path(), &json!({"spec": {"replicas": wanted}})).await?;
            if self.random.bool() {
                // Back to one of few templates, with the annotations that its ReplicaSet had from the Deployment, as kubectl does it.
                let version = json!({"version": self.random.u64(..5).to_string()});
                let copied = json!({SURGE_ANNOTATION: r#"{"by":3,"replicas":10}"#});
                let copied = if self.random.bool() { copied } else { json!({}) };
                let change = json!({"metadata": {"annotations": copied}, "spec": {"template": {"metadata": {"annotations": version}}}});
                self.living.patch(&ROLLED_OUT.path(), &change).await?;
            }
            // By how much it surges is not his to say.
            let by = self.random.u64(..4);
            let forged =
                json!({"metadata": {"labels": {SURGE_LABEL: format!("{by}-{}-7", SCALED.replicas + by)}}});
            for app in STEADY.iter().chain([&SCALED]) {
                let (code, answer) = self.living.send(Method::PATCH, &app.path(), &forged).await?;
                ensure!(code == 403, "{} surges by {by}: {code} {answer}", app.name);
            }
            self.forges_a_failure().await?;
            // He may remove the label, whether a manager sees it or none runs.
            for app in &STEADY {
                if self.random.bool() {
                    let change = json!({"metadata": {"labels": {SURGE_LABEL: null}}});
                    self.living.patch(&app.path(), &change).await?;
                }
            }
        }
        Ok(wanted)
    }

    /// Says of some request that its surge has failed, which only the manager may say.
    async fn forges_a_failure(&mut self) -> Result<()> {
        let requests = self.living.get(REQUESTS).await?["items"].take();
        let requests = requests.as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(request) = self.random.choice(requests) else { return Ok(()) };
        let known = request["status"]["conditions"].as_array().into_iter().flatten();
        let others = known.filter(|it| it["type"] != SURGE_FAILED_CONDITION);
        let forged = json!({
            "type": SURGE_FAILED_CONDITION, "status": "True", "reason": "Forged", "message": "so I say",
            "lastTransitionTime": self.living.cluster.now().to_string(),
        });
        let conditions: Vec<Value> = others.cloned().chain([forged]).collect();
        let path = format!("{REQUESTS}/{}/status", request["metadata"]["name"].as_str().unwrap_or_default());
        let patch = json!({"status": {"conditions": conditions}});
        let (code, answer) = self.living.send(Method::PATCH, &path, &patch).await?;
        ensure!(code != 200, "somebody has said that a surge failed: {answer}");
        Ok(())
    }

    /// Sets back what is not as its files say.
    pub(super) async fn sets_back(mut self) -> Result<()> {
        while self.is_trouble() {
            self.pause(20).await;
            if self.living.get(&RESET.path()).await?["spec"]["replicas"] != RESET.replicas {
                self.living.patch(&RESET.path(), &json!({"spec": {"replicas": RESET.replicas}})).await?;
            }
            let autoscaler = REPLACED.autoscaler();
            if self.living.get(&autoscaler).await?["spec"]["minReplicas"] != REPLACED.replicas {
                let whole = json!({
                    "metadata": {"annotations": {SURGE_ANNOTATION: null}},
                    "spec": {"minReplicas": REPLACED.replicas, "maxReplicas": REPLACED.replicas},
                });
                self.living.patch(&autoscaler, &whole).await?;
            }
        }
        Ok(())
    }

    /// Keeps one new pod from ever getting ready.
    pub(super) async fn fails_probes(mut self) -> Result<()> {
        while self.is_trouble() {
            let pods = self.living.pods(UNREADY.name).await?;
            let fails = |pod: &Value| !pod["metadata"]["annotations"][READY_DELAY].is_null();
            let starts = pods.iter().find(|pod| pod["status"]["phase"] == "Pending");
            if let Some(pod) = starts.filter(|_| !pods.iter().any(fails)) {
                let never = json!({"metadata": {"annotations": {READY_DELAY: "240h"}}});
                self.living.patch(&path(pod), &never).await?;
            }
            self.pause(10).await;
        }
        Ok(())
    }

    /// Takes pods down for up to ten minutes.
    pub(super) async fn takes_down(mut self) -> Result<()> {
        while self.is_trouble() {
            self.pause(60).await;
            let pods = self.living.pods(DOWN.name).await?;
            let Some(pod) = self.random.choice(&pods).filter(|pod| is_ready(pod)) else { continue };
            let back = json!({"metadata": {"annotations": {READY_DELAY: format!("{}s", self.random.u64(10..=600))}}});
            self.living.patch(&path(pod), &back).await?;
            let mut conditions = pod["status"]["conditions"].clone();
            for condition in conditions.as_array_mut().into_iter().flatten() {
                if matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")) {
                    condition["status"] = "False".into();
                    condition["reason"] = "ContainersNotReady".into();
                    condition["lastTransitionTime"] = self.living.cluster.now().to_string().into();
                }
            }
            self.living
                .patch(&format!("{}/status", path(pod)), &json!({"status": {"conditions": conditions}}))
                .await?;
        }
        Ok(())
    }

    /// Scales by a load within the limits of the autoscaler, as the real controller does with metrics, for ever.
    pub(super) async fn scales_by_load(mut self, load: &Cell<u64>) -> Result<()> {
        loop {
            sleep(Duration::from_secs(15)).await;
            if self.is_trouble() && self.random.u8(..4) == 0 {
                load.set(self.random.u64(LOADED.replicas..=MOST_LOADED));
            }
            let limits = self.living.get(&LOADED.autoscaler()).await?["spec"].take();
            let limit = |name: &str| limits[name].as_u64().context("an autoscaler without limits");
            let wanted = load.get().clamp(limit("minReplicas")?, limit("maxReplicas")?);
            if self.living.get(&LOADED.path()).await?["spec"]["replicas"] != wanted {
                self.living.patch(&LOADED.path(), &json!({"spec": {"replicas": wanted}})).await?;
            }
        }
    }

    /// Has turns of its own, for ever. A pod is there for as long as its turn lasts.
    pub(super) async fn intercepts(mut self) -> Result<()> {
        // The requests in its turn of which the pod was seen to be there; new pods of hand-overs do not count.
        let mut seen = HashSet::new();
        loop {
            self.pause(5).await;
            let requests = self.living.get(REQUESTS).await?;
            for request in requests["items"].as_array().into_iter().flatten() {
                let (meta, status) = (&request["metadata"], &request["status"]);
                let has_turn = status["activeInterceptorClass"] == FOREIGN_CLASS;
                if !has_turn || status["activeInterceptorCompleted"] == true {
                    continue;
                }
                let pod = &request["spec"]["podRef"];
                let path = format!("{PODS}/{}", pod["name"].as_str().unwrap_or_default());
                let (_, found) = self.living.send(Method::GET, &path, &Value::Null).await?;
                let of_pod = &found["metadata"];
                let stays = of_pod["uid"] == pod["uid"] && of_pod["deletionTimestamp"].is_null();
                // A new pod that is not needed any more goes whoever was asked.
                if stays && of_pod["annotations"][HAND_OVER_ANNOTATION].is_null() {
                    seen.insert(meta["uid"].clone());
                }
                let may_go = !seen.contains(&meta["uid"]);
                ensure!(stays || may_go, "somebody else has the turn, and the pod goes: {request} {found}");
                let now = self.living.cluster.now().to_string();
                let completed = (self.random.u8(..8) == 0).then_some(true);
                let patch = json!({
                    "metadata": {"resourceVersion": meta["resourceVersion"]},
                    "status": {"progressTimestamp": now, "activeInterceptorCompleted": completed},
                });
                let path = format!("{REQUESTS}/{}/status", meta["name"].as_str().unwrap_or_default());
                let (code, answer) = self.living.send(Method::PATCH, &path, &patch).await?;
                ensure!(matches!(code, 200 | 404 | 409), "{answer}");
            }
        }
    }
}

fn path(pod: &Value) -> String {
    format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap_or_default())
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}
