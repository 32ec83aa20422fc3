//! Which pods a set has: those that it controls and its selector matches. It lets go of the others, and takes in orphans.

use std::sync::Arc;

use serde_json::{Value, json};

use super::owned_by;
use crate::plan::{Action, Plan};
use crate::view::{Meta, Pod, Resource, View};
use embedded_apiserver::toolkit::LabelSelector;

/// A set that has pods.
pub(crate) struct Set<'a> {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub meta: &'a Meta,
    pub selector: &'a Value,
    /// What holds its pods until it lets them go.
    pub finalizer: Option<&'static str>,
}

impl<'a> Set<'a> {
    /// One of `apps/v1`, which holds nobody.
    pub(crate) fn of_apps(kind: &'static str, meta: &'a Meta, selector: &'a Value) -> Self {
        Self { api_version: "apps/v1", kind, meta, selector, finalizer: None }
    }
}

/// Whether a set with this selector would take in the pod; one without any takes nobody.
pub(crate) fn is_wanted(selector: &Value, orphan: &Pod) -> bool {
    let read = || LabelSelector::from_object(Some(selector)).ok();
    !orphan.is_deleting()
        && !selector.is_null()
        && read().is_some_and(|selector| selector.matches_map(&orphan.metadata.labels))
}

/// The pods of the set, and in the plan what makes that so. `fits` says which orphans can be members at all. A set that is
/// being deleted neither takes nor lets go.
pub(crate) fn claim<'a>(
    view: &'a View,
    set: &Set<'a>,
    fits: impl Fn(&Pod) -> bool,
    plan: &mut Plan,
) -> Vec<&'a Arc<Pod>> {
    let mut pods = view.pods_of(&set.meta.uid);
    let selector = LabelSelector::from_object(Some(set.selector)).ok().filter(|_| !set.selector.is_null());
    let Some(selector) = selector.filter(|_| set.meta.deletion_timestamp.is_none()) else { return pods };
    let mut own = |pod: &Pod, owners: Value, finalizers: &str| {
        let mut metadata = json!({"ownerReferences": owners});
        if let Some(finalizer) = set.finalizer {
            metadata[finalizers] = json!([finalizer]);
        }
        plan.act(Action::patch(Resource::Pods, &pod.metadata, json!({"metadata": metadata})));
    };
    pods.retain(|pod| {
        let mine = selector.matches_map(&pod.metadata.labels);
        if !mine {
            let without = json!([{"$patch": "delete", "uid": set.meta.uid}]);
            own(pod, without, "$deleteFromPrimitiveList/finalizers");
        }
        mine
    });
    let known = pods.len();
    for orphan in view.orphans(&set.meta.namespace) {
        if !orphan.is_deleting() && fits(orphan) && selector.matches_map(&orphan.metadata.labels) {
            own(orphan, owned_by(set.api_version, set.kind, set.meta), "finalizers");
            pods.push(orphan);
        }
    }
    if pods.len() > known {
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    }
    pods
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::{owned_pod, pod, view};
    use embedded_apiserver::Key;

    fn labelled(mut pod: Value, app: &str) -> Value {
        pod["metadata"]["labels"] = json!({"app": app});
        pod
    }

    fn claimed(selector: &Value, deleting: bool) -> (Vec<String>, Vec<(String, Value)>) {
        let mut leaving = labelled(pod("leaving", "n"), "web");
        leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        let mut elsewhere = labelled(pod("elsewhere", "n"), "web");
        elsewhere["metadata"]["namespace"] = "other".into();
        let mut set = json!({
            "kind": "ReplicaSet", "metadata": {"name": "web", "namespace": "default", "uid": "set"},
            "spec": {"selector": selector},
        });
        if deleting {
            set["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:30Z".into();
        }
        let view = view(&[
            set,
            labelled(owned_pod("own", "ReplicaSet", "web", "set"), "web"),
            labelled(owned_pod("relabelled", "ReplicaSet", "web", "set"), "db"),
            labelled(owned_pod("foreign", "ReplicaSet", "web", "another"), "web"),
            labelled(pod("orphan", "n"), "web"),
            labelled(pod("unfit", "n"), "web"),
            labelled(pod("stranger", "n"), "db"),
            leaving,
            elsewhere,
        ]);
        let meta = &view.replica_sets.get(&Key::new("default", "web")).unwrap().metadata;
        let mut plan = Plan::nothing();
        let set = Set::of_apps("ReplicaSet", meta, selector);
        let pods = claim(&view, &set, |pod| pod.metadata.name != "unfit", &mut plan);
        let names = pods.iter().map(|pod| pod.metadata.name.clone()).collect();
        let patches = plan.actions.into_iter().map(|action| match action {
            Action::Patch { target, patch, .. } => {
                (target.name, patch["metadata"]["ownerReferences"][0].clone())
            }
            other => panic!("{other:?}"),
        });
        (names, patches.collect())
    }

    #[test]
    fn orphans_are_taken_in_and_strangers_let_go() {
        let (names, patches) = claimed(&json!({"matchLabels": {"app": "web"}}), false);
        assert_eq!(names, ["orphan", "own"]);
        assert_eq!(patches[0], ("relabelled".into(), json!({"$patch": "delete", "uid": "set"})));
        let (name, owner) = &patches[1];
        assert_eq!(
            (name.as_str(), &owner["uid"], &owner["controller"]),
            ("orphan", &"set".into(), &true.into())
        );
        assert_eq!(patches.len(), 2);
    }

    #[test]
    fn a_set_that_goes_or_selects_nobody_changes_nothing() {
        let unchanged = (vec!["own".to_string(), "relabelled".to_string()], Vec::new());
        assert_eq!(claimed(&json!({"matchLabels": {"app": "web"}}), true), unchanged);
        assert_eq!(claimed(&Value::Null, false), unchanged);
    }
}
