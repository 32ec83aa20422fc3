//! What a drain would lose for good: pods that nothing recreates, and data that is deleted with its pod. As `kubectl drain` does it,
//! a drain is refused until somebody has agreed to that, with the same flags.

use std::borrow::Cow;
use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::IgnoredAny;
use usher_forecast::outlook::{Pod, PodOnWire};

use super::picture::plural;
use crate::Error;
use crate::reading::{Page, Read};
use crate::world::list_by;

/// What was agreed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct GuardArguments {
    /// Also drain pods without a controller, which nothing recreates.
    #[arg(long)]
    pub force: bool,
    /// Also drain pods with emptyDir volumes, whose data is deleted with them.
    #[arg(long)]
    pub delete_emptydir_data: bool,
}

const FORCE: &str = "--force";
const DELETE_EMPTYDIR_DATA: &str = "--delete-emptydir-data";
/// Up to so many nodes are asked for their pods one by one; a whole cluster may be much larger.
const FEW: usize = 20;
/// So many pods are listed.
const LISTED: usize = 50;

impl GuardArguments {
    /// Looks at the pods of the nodes.
    pub async fn check(&self, client: &Client, nodes: &[String]) -> Result<(), Error> {
        if self.force && self.delete_emptydir_data {
            return Ok(());
        }
        let pods = pods_of(client, nodes).await.map_err(|why| match why {
            Error::Forbidden(why) => Error::Refused(format!(
                "{why}; so it is not known which pods would be lost: ask for this permission, or agree to losing them with \
                 {FORCE} {DELETE_EMPTYDIR_DATA}"
            )),
            other => other,
        })?;
        self.refusal(&pods).map_or(Ok(()), |why| Err(Error::Refused(why)))
    }

    /// Why these pods are not drained, if they are not.
    pub fn refusal(&self, pods: &[Pod]) -> Option<String> {
        let mut told: Vec<String> = pods.iter().filter_map(|pod| self.objection(pod)).collect();
        if told.is_empty() {
            return None;
        }
        let (would, flags) = (plural(told.len(), "pod"), self.missing(pods).join(" "));
        told.sort();
        let more = told.len().saturating_sub(LISTED);
        told.truncate(LISTED);
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        Some(format!(
            "{would} would be lost or lose data, so nothing was changed; to drain them too, add {flags}\n  {}",
            told.join("\n  ")
        ))
    }

    /// The flags without which these pods are not drained.
    pub fn missing<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) -> Vec<&'static str> {
        let (mut force, mut deletion) = (false, false);
        for pod in pods {
            force |= self.wants_force(pod);
            deletion |= self.wants_deletion(pod);
        }
        let flags = [(FORCE, force), (DELETE_EMPTYDIR_DATA, deletion)];
        flags.into_iter().filter(|(_, is_missing)| *is_missing).map(|(flag, _)| flag).collect()
    }

    fn wants_force(&self, pod: &Pod) -> bool {
        !self.force && pod.has_no_controller()
    }

    fn wants_deletion(&self, pod: &Pod) -> bool {
        !self.delete_emptydir_data && pod.loses_data()
    }

    fn objection(&self, pod: &Pod) -> Option<String> {
        let force = self.wants_force(pod).then(|| format!("no controller, will not be recreated ({FORCE})"));
        let data = self
            .wants_deletion(pod)
            .then(|| format!("emptyDir data is deleted with it ({DELETE_EMPTYDIR_DATA})"));
        let why: Vec<String> = force.into_iter().chain(data).collect();
        (!why.is_empty()).then(|| format!("{}: {}", pod.pod.key, why.join("; ")))
    }
}

/// A page of pods of the whole cluster, of which few matter: it is read whole only if somebody might have to agree to something.
#[derive(Deserialize)]
struct Glances<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<Glance<'a>>,
}

#[derive(Deserialize)]
struct Glance<'a> {
    metadata: Owners,
    #[serde(borrow)]
    spec: PodSpec<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owners {
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec<'a> {
    #[serde(borrow, default)]
    node_name: Cow<'a, str>,
    #[serde(default)]
    volumes: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    #[serde(default)]
    empty_dir: Option<IgnoredAny>,
}

impl Glances<'_> {
    /// The pods of the nodes, unless nothing can be lost with any of the page.
    fn read(text: &str, nodes: &BTreeSet<&str>) -> Result<Page<Pod>, serde_json::Error> {
        if let Ok(page) = serde_json::from_str::<Glances<'_>>(text)
            && page.items.iter().all(|pod| !nodes.contains(&*pod.spec.node_name) || pod.is_safe())
        {
            let next = page.metadata.continue_.filter(|token| !token.is_empty());
            return Ok(Page { objects: Vec::new(), next });
        }
        let page = Page::<PodOnWire>::read(text)?;
        let pods = page.objects.into_iter().map(Pod::from).filter(|pod| nodes.contains(&*pod.pod.node));
        Ok(Page { objects: pods.collect(), next: page.next })
    }
}

impl Glance<'_> {
    /// It has a controller, and no data that are deleted with it.
    fn is_safe(&self) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        let mut volumes = self.spec.volumes.iter().flatten();
        owners.any(|owner| owner.controller == Some(true)) && volumes.all(|volume| volume.empty_dir.is_none())
    }
}

/// The pods of the nodes, or those of them with which something might be lost.
async fn pods_of(client: &Client, nodes: &[String]) -> Result<Vec<Pod>, Error> {
    let api: Api<Read<PodOnWire>> = Api::all(client.clone());
    if nodes.len() > FEW {
        let nodes: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
        return Ok(list_by(&api, None, |text| Glances::read(text, &nodes)).await?);
    }
    let mut pods = Vec::new();
    for node in nodes {
        let there = api.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await?;
        pods.extend(there.items.into_iter().filter_map(Read::object).map(Pod::from));
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::pod;
    use serde_json::{Value, json};

    fn pods(pods: &[Value]) -> Vec<Pod> {
        pods.iter().map(|pod| serde_json::from_value::<PodOnWire>(pod.clone()).unwrap().into()).collect()
    }

    fn with(mut pod: Value, path: &str, value: Value) -> Value {
        match path {
            "owners" => pod["metadata"]["ownerReferences"] = value,
            "volumes" => pod["spec"]["volumes"] = value,
            other => pod["status"]["phase"] = Value::String(other.to_string()),
        }
        pod
    }

    fn scratch(pod: Value) -> Value {
        with(pod, "volumes", json!([{"name": "v", "emptyDir": {}}]))
    }

    #[test]
    fn what_is_lost_for_good_has_to_be_agreed_to_as_with_kubectl() {
        let bare = || with(pod("bare", "n1"), "owners", json!([]));
        let both = pods(&[scratch(bare()), scratch(pod("cache", "n1")), pod("web", "n1")]);
        let guards = |force, delete_emptydir_data| GuardArguments { force, delete_emptydir_data };
        assert_eq!(
            guards(false, false).refusal(&both).unwrap(),
            "2 pods would be lost or lose data, so nothing was changed; to drain them too, add --force --delete-emptydir-data\n  \
             shop/bare: no controller, will not be recreated (--force); emptyDir data is deleted with it \
             (--delete-emptydir-data)\n  shop/cache: emptyDir data is deleted with it (--delete-emptydir-data)"
        );
        assert!(guards(true, false).refusal(&both).unwrap().contains("add --delete-emptydir-data\n"));
        let forced = guards(false, true).refusal(&both).unwrap();
        assert!(
            forced.starts_with("1 pod would") && forced.contains("add --force\n  shop/bare: "),
            "{forced}"
        );
        assert_eq!(guards(true, true).refusal(&both), None);
        // Those that have ended, leave already, or are not evicted at all.
        let mut leaving = scratch(bare());
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T12:00:30Z");
        let mut daemon = scratch(pod("agent", "n1"));
        daemon["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet");
        let mut mirror = bare();
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        mirror["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true}]);
        let others =
            [with(scratch(bare()), "Succeeded", Value::Null), leaving, daemon, mirror, pod("web", "n1")];
        assert_eq!(guards(false, false).refusal(&pods(&others)), None);
    }

    #[test]
    fn a_page_is_read_whole_only_if_something_on_the_nodes_could_be_lost() {
        let nodes = BTreeSet::from(["n1"]);
        let bare = |node| with(pod("bare", node), "owners", json!([]));
        for (items, found) in [
            (vec![pod("web", "n1"), bare("n2"), scratch(pod("cache", "n2"))], 0),
            (vec![pod("web", "n1"), bare("n1"), bare("n2")], 2),
            (vec![scratch(pod("cache", "n1"))], 1),
            // What cannot be glanced at is read as ever.
            (vec![bare("n1"), json!({"metadata": {"name": "odd"}})], 1),
        ] {
            let text = json!({"metadata": {"continue": "next"}, "items": items}).to_string();
            let page = Glances::read(&text, &nodes).unwrap();
            assert_eq!((page.objects.len(), page.next.as_deref()), (found, Some("next")), "{text}");
        }
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let many: Vec<Value> =
            (0..60).map(|number| with(pod(&format!("p{number:02}"), "n1"), "owners", json!([]))).collect();
        let told = GuardArguments::default().refusal(&pods(&many)).unwrap();
        assert!(told.starts_with("60 pods would be lost") && told.ends_with("\n  and 10 more"), "{told}");
    }
}
