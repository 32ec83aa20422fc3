//! Names that are the same on every cluster. Pods of a Deployment are `web-a1`, `web-a2` of its first template, `web-b1`
//! of its second, numbered as they appear; those of a DaemonSet are named by their node, `agent@n1`; others keep
//! their name. Eviction requests go by the pod they are for, as their own name is its UID. A second object of a name is `db-0#2`.

use serde_json::Value;
use std::collections::BTreeMap;

const HAND_OVER: &str = "evictionrequest.coordination.k8s.io/hand-over";

#[derive(Debug, Default)]
pub struct Names {
    /// The templates of a Deployment, in order of appearance, by its name.
    templates: BTreeMap<String, Vec<String>>,
    /// How many objects there were of a family.
    counted: BTreeMap<String, usize>,
}

/// The name of an object, and the family it shares with those that are as good as it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub short: String,
    pub family: String,
}

impl Name {
    /// `p` of `evictionrequest/p`; pods have no kind before their name.
    pub fn without_kind(&self) -> &str {
        self.short.split_once('/').map_or(self.short.as_str(), |(_, name)| name)
    }
}

impl Names {
    /// The name of an object that is seen for the first time. Names of nodes in it have to be short already.
    pub fn name(&mut self, object: &Value) -> Name {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.find(|owner| owner["controller"] == true).unwrap_or(&Value::Null);
        let owned_by = text(&owner["name"]);
        match owner["kind"].as_str() {
            Some("ReplicaSet") => {
                let prefix =
                    self.of_template(&owned_by, object["metadata"]["labels"]["pod-template-hash"].as_str());
                self.numbered(&prefix)
            }
            // It has no owner until its ReplicaSet adopts it.
            None if object["metadata"]["annotations"][HAND_OVER].is_string() => {
                let set = text(&object["metadata"]["annotations"][HAND_OVER]);
                let hash = set.rsplit_once('-').map(|(_, hash)| hash);
                let prefix = self.of_template(&set, hash);
                self.numbered(&prefix)
            }
            Some("Job") => self.numbered(&format!("{owned_by}-")),
            Some("DaemonSet") => self.again(format!("{owned_by}@{}", daemon_node(object))),
            _ if object["kind"] == "EvictionRequest" => self.again(text(&object["spec"]["podRef"]["name"])),
            _ => self.again(text(&object["metadata"]["name"])),
        }
    }

    /// `web-a`: the Deployment and a letter for its template.
    fn of_template(&mut self, set: &str, hash: Option<&str>) -> String {
        let Some(hash) = hash else { return format!("{set}-") };
        let deployment = set.strip_suffix(hash).unwrap_or(set).trim_end_matches('-').to_owned();
        let templates = self.templates.entry(deployment.clone()).or_default();
        let position = templates.iter().position(|known| known == hash).unwrap_or_else(|| {
            templates.push(hash.to_owned());
            templates.len() - 1
        });
        let letter = u8::try_from(position).map_or('z', |position| char::from(b'a' + position.min(25)));
        format!("{deployment}-{letter}")
    }

    fn numbered(&mut self, prefix: &str) -> Name {
        let family = format!("{prefix}*");
        let count = self.counted.entry(family.clone()).or_default();
        *count += 1;
        Name { short: format!("{prefix}{count}"), family }
    }

    /// An object that is called so, or the next one of that name.
    pub fn again(&mut self, name: String) -> Name {
        let count = self.counted.entry(name.clone()).or_default();
        *count += 1;
        let short = if *count == 1 { name } else { format!("{name}#{count}") };
        Name { family: short.clone(), short }
    }
}

/// The node a daemon was made for: it says so before it is bound.
fn daemon_node(pod: &Value) -> &str {
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let wanted = pod.pointer(&format!("{terms}/0/matchFields/0/values/0"));
    wanted.and_then(Value::as_str).or(pod["spec"]["nodeName"].as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, kind: &str, owner: &str, hash: &str) -> Value {
        json!({
            "metadata": {
                "name": name, "labels": {"pod-template-hash": hash},
                "ownerReferences": [{"kind": kind, "name": owner, "controller": true}],
            },
            "spec": {"nodeName": "n1"},
        })
    }

    #[test]
    fn names_do_not_depend_on_what_the_cluster_made_up() {
        let mut names = Names::default();
        let mut short = |object: &Value| names.name(object).short;
        assert_eq!(short(&pod("web-77-xy", "ReplicaSet", "web-77", "77")), "web-a1");
        assert_eq!(short(&pod("web-88-qq", "ReplicaSet", "web-88", "88")), "web-b1");
        assert_eq!(short(&pod("web-77-zz", "ReplicaSet", "web-77", "77")), "web-a2");
        assert_eq!(short(&pod("agent-abc", "DaemonSet", "agent", "")), "agent@n1");
        assert_eq!(short(&pod("db-0", "StatefulSet", "db", "")), "db-0");
        assert_eq!(short(&pod("db-0", "StatefulSet", "db", "")), "db-0#2");
        assert_eq!(short(&pod("work-x1", "Job", "work", "")), "work-1");
        let handed = json!({"metadata": {"name": "web-88-kk", "annotations": {HAND_OVER: "web-88"}}});
        assert_eq!(short(&handed), "web-b2");
    }
}
