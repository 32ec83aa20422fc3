//! Pods: the annotations by which they name their interceptors.
//!
//! An update is judged only by what it changes. A pod from before the rules stays as it is, and its kubelet and controllers can
//! go on updating it.

use std::collections::BTreeMap;

use usher_api::interceptors_of;
use usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX;

use super::{Refusal, Rule, Verdict};

type Annotations = BTreeMap<String, String>;

/// A new pod with these annotations.
pub fn on_create(annotations: &Annotations) -> Verdict {
    let errors = interceptors_of(annotations).err().unwrap_or_default();
    let refuse = |error: &usher_api::AnnotationError| {
        Refusal::new(Rule::InterceptorAnnotations, "metadata.annotations", error.to_string())
    };
    Verdict::of(errors.iter().map(refuse).collect())
}

/// A pod whose annotations may have changed.
pub fn on_update(old: &Annotations, new: &Annotations) -> Verdict {
    if of_interceptors(old).eq(of_interceptors(new)) { Verdict::allow() } else { on_create(new) }
}

fn of_interceptors(annotations: &Annotations) -> impl Iterator<Item = (&String, &String)> {
    annotations.iter().filter(|(key, _)| key.starts_with(INTERCEPTOR_ANNOTATION_PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(entries: &[(&str, &str)]) -> Annotations {
        let key = |class: &str| format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}");
        entries.iter().map(|(class, value)| (key(class), (*value).to_owned())).collect()
    }

    fn messages(verdict: Verdict) -> Vec<String> {
        match verdict {
            Verdict::Allow { .. } => Vec::new(),
            Verdict::Deny(denial) => denial.refusals().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn interceptor_annotations() {
        let good: [&[(&str, &str)]; 4] = [
            &[],
            &[("operator.example.com", "11000/backup")],
            &[("replicaset.apps.k8s.io", "10000/controller"), ("deployment.apps.k8s.io", "10001")],
            &[("a.example.com", "5"), ("b.example.com", "5")],
        ];
        for case in good {
            assert_eq!(on_create(&annotations(case)), Verdict::allow(), "{case:?}");
        }
        let bad: [(&[(&str, &str)], &str); 7] = [
            (&[("a.example.com", "high")], "does not start with an integer priority"),
            (&[("a.example.com", "100001")], "out of range"),
            (&[("a.example.com", "10000")], "belongs to the role controller"),
            (&[("a.example.com", "9000/controller")], "has the priority 10000, not 9000"),
            (&[("a.example.com", "9950")], "has no interceptor of the role controller"),
            (&[("mine.k8s.io", "1")], "is in a domain of the Kubernetes project"),
            (
                &[("a.apps.k8s.io", "1"), ("replicaset.apps.k8s.io", "10000/controller"), ("x.io", "9950")],
                "reserved (9900-10100) for the domain of the controller replicaset.apps.k8s.io",
            ),
        ];
        for (case, part) in bad {
            let found = messages(on_create(&annotations(case)));
            assert!(found.iter().any(|message| message.contains(part)), "{case:?}: {found:?}");
            assert!(found.iter().all(|m| m.ends_with("(rule interceptor-annotations)")), "{found:?}");
        }
    }

    #[test]
    fn all_violations_are_told_at_once() {
        let found =
            messages(on_create(&annotations(&[("a.io", "x"), ("b.io", "200000"), ("c.k8s.io", "1")])));
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn an_update_is_judged_by_what_it_changes() {
        let invalid = annotations(&[("a.io", "x")]);
        let worse = annotations(&[("a.io", "y")]);
        let valid = annotations(&[("a.io", "1")]);
        let mut labelled = invalid.clone();
        labelled.insert("team".to_owned(), "blue".to_owned());
        for (old, new, allowed) in [
            (&invalid, &invalid, true),
            (&invalid, &labelled, true),
            (&invalid, &valid, true),
            (&valid, &Annotations::new(), true),
            (&valid, &invalid, false),
            (&invalid, &worse, false),
        ] {
            assert_eq!(on_update(old, new) == Verdict::allow(), allowed, "{old:?} -> {new:?}");
        }
    }
}
