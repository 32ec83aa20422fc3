//! Controller revisions: the templates that a stateful set or daemon set has and had, as objects under a name.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{hash_of, owned_by};
use crate::plan::{Action, Plan};
use crate::view::{Meta, Resource, View};
use embedded_apiserver::Key;

pub(crate) const LABEL: &str = "controller-revision-hash";

/// A workload and the template that it should have now.
pub(crate) struct Templated<'a> {
    pub kind: &'static str,
    pub meta: &'a Meta,
    pub template: &'a Value,
    /// How often a name was taken by another template so far.
    pub collisions: i64,
}

/// The name of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub name: String,
    pub hash: String,
    pub collisions: i64,
}

impl Templated<'_> {
    fn data(&self) -> Value {
        let mut template = self.template.clone();
        template["$patch"] = "replace".into();
        json!({"spec": {"template": template}})
    }

    /// The revision of the present template: the newest of all, made if it is not there yet.
    pub(crate) fn settle(&self, view: &View, plan: &mut Plan) -> Named {
        let data = self.data();
        let known = view.revisions_of(&self.meta.uid);
        let newest = known.last().map_or(0, |revision| revision.revision);
        if let Some(same) = known.iter().rev().find(|revision| revision.data == data) {
            if same.revision < newest {
                // A template that was there before is the newest again.
                plan.act(Action::patch(Resource::Revisions, &same.metadata, json!({"revision": newest + 1})));
            }
            let hash = same.metadata.labels.get(LABEL).cloned().unwrap_or_else(|| same.metadata.name.clone());
            return Named { name: same.metadata.name.clone(), hash, collisions: self.collisions };
        }
        let mut collisions = self.collisions;
        loop {
            let hash = hash_of(&json!([data, collisions]));
            let name = format!("{}-{hash}", self.meta.name);
            match view.revisions.get(&Key::new(&self.meta.namespace, &name)) {
                Some(other) if other.data != data => collisions += 1,
                Some(_) => return Named { name, hash, collisions },
                None => {
                    plan.act(self.create(&name, &hash, newest + 1, data));
                    return Named { name, hash, collisions };
                }
            }
        }
    }

    fn create(&self, name: &str, hash: &str, revision: i64, data: Value) -> Action {
        let mut labels = self.template["metadata"]["labels"].clone();
        labels[LABEL] = hash.into();
        let metadata = json!({
            "name": name, "namespace": self.meta.namespace, "labels": labels,
            "ownerReferences": owned_by("apps/v1", self.kind, self.meta),
        });
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data,
            "revision": revision,
        });
        Action::create(Resource::Revisions, &self.meta.namespace, object)
    }

    /// Only so many templates that nobody uses are kept.
    pub(crate) fn prune(&self, view: &View, used: &BTreeSet<&str>, limit: Option<i64>, plan: &mut Plan) {
        let unused: Vec<_> = view
            .revisions_of(&self.meta.uid)
            .into_iter()
            .filter(|revision| {
                let hash = revision.metadata.labels.get(LABEL).map_or("", String::as_str);
                !used.contains(revision.metadata.name.as_str()) && !used.contains(hash)
            })
            .collect();
        let keep = usize::try_from(limit.unwrap_or(10)).unwrap_or_default();
        for revision in unused.iter().take(unused.len().saturating_sub(keep)) {
            plan.act(Action::delete(Resource::Revisions, &revision.metadata));
        }
    }
}

/// The template of that name.
pub(crate) fn template_of(view: &View, namespace: &str, name: &str) -> Option<Value> {
    let mut template = view.revisions.get(&Key::new(namespace, name))?.data["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    Some(template)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::controllers::testing::{created, view};

    /// The revision that a workload would get for its template, as an object, with its name and hash.
    pub(crate) fn revision_of(kind: &'static str, workload: &Value, number: i64) -> (Value, Named) {
        let meta: Meta = serde_json::from_value(workload["metadata"].clone()).unwrap();
        let templated =
            Templated { kind, meta: &meta, template: &workload["spec"]["template"], collisions: 0 };
        let mut plan = Plan::nothing();
        let named = templated.settle(&view(&[]), &mut plan);
        let mut object = created(&plan)[0].clone();
        object["revision"] = number.into();
        object["metadata"]["uid"] = named.name.clone().into();
        (object, named)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::revision_of;
    use super::*;
    use crate::controllers::testing::{created, deleted, view};

    fn set(image: &str) -> Value {
        json!({
            "metadata": {"name": "db", "namespace": "default", "uid": "set"},
            "spec": {"template": {"metadata": {"labels": {"app": "db"}}, "spec": {"image": image}}},
        })
    }

    fn settle(objects: &[Value], set: &Value) -> (Named, Plan) {
        let meta: Meta = serde_json::from_value(set["metadata"].clone()).unwrap();
        let mut plan = Plan::nothing();
        let template = &set["spec"]["template"];
        let templated = Templated { kind: "StatefulSet", meta: &meta, template, collisions: 0 };
        (templated.settle(&view(objects), &mut plan), plan)
    }

    #[test]
    fn a_template_is_recorded_once_and_renewed_when_it_comes_back() {
        let (old, old_name) = revision_of("StatefulSet", &set("1"), 1);
        let (new, new_name) = revision_of("StatefulSet", &set("2"), 2);
        assert_ne!(old_name.name, new_name.name);
        let (named, plan) = settle(&[old.clone(), new.clone()], &set("2"));
        assert_eq!((named, plan), (new_name, Plan::nothing()));
        let (named, plan) = settle(&[old.clone(), new], &set("1"));
        assert_eq!(named, old_name);
        assert!(matches!(&plan.actions[..], [Action::Patch { patch, .. }] if patch["revision"] == 3));
        let (_, plan) = settle(&[old], &set("2"));
        assert_eq!(created(&plan)[0]["revision"], 2);
    }

    #[test]
    fn a_name_that_another_template_has_is_a_collision() {
        let (mut taken, name) = revision_of("StatefulSet", &set("1"), 1);
        taken["data"] = json!({"spec": {"template": {}}});
        taken["metadata"]["ownerReferences"] = json!([]);
        let (named, plan) = settle(&[taken], &set("1"));
        assert_eq!((named.collisions, created(&plan).len()), (1, 1));
        assert_ne!(named.name, name.name);
    }

    #[test]
    fn unused_templates_are_kept_only_so_many() {
        let revisions: Vec<Value> =
            (1..=4).map(|number| revision_of("StatefulSet", &set(&number.to_string()), number).0).collect();
        let meta: Meta = serde_json::from_value(set("4")["metadata"].clone()).unwrap();
        let template = set("4")["spec"]["template"].clone();
        let templated = Templated { kind: "StatefulSet", meta: &meta, template: &template, collisions: 0 };
        let name = |index: usize| revisions[index]["metadata"]["name"].as_str().unwrap();
        let mut plan = Plan::nothing();
        let used = BTreeSet::from([name(0), name(3)]);
        templated.prune(&view(&revisions), &used, Some(1), &mut plan);
        assert_eq!(deleted(&plan), [name(1)], "the oldest that is not used");
    }
}
