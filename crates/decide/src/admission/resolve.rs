//! The interceptors of a pod, even of one whose annotations break the rules.
//!
//! Such a pod was created before its annotations were checked, or while the webhook was down. It must be possible to ask it to
//! leave, and those who may answer properly should still do so. Therefore as few annotations as possible are passed over, in
//! fixed steps, so that every component comes to the same list:
//! 1. what is wrong by itself: malformed, out of range, a class in the project's domains, the controller's role and priority
//!    not together;
//! 2. of several controllers all but the first by class;
//! 3. priorities of the reserved interval outside of the controller's domain, or without a controller;
//! 4. of several interceptors on one reserved priority all but the first by class;
//! 5. of too many the last in the order of turns.

use std::collections::{BTreeMap, BTreeSet};

use usher_api::interceptor_rules::{
    CONTROLLER_PRIORITY, CONTROLLER_ROLE, GENERAL_SLOTS, RESERVED_PRIORITIES, RESERVED_SLOTS,
};
use usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX;
use usher_api::{AnnotationError, Interceptor, annotation_of, interceptors_of};

/// The interceptors in the order of their turns, and what was passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolved {
    /// All who may answer.
    pub interceptors: Vec<Interceptor>,
    /// Annotations that do not count.
    pub ignored: Vec<Ignored>,
}

/// An annotation that does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The interceptor class it names.
    pub class: String,
    /// The rule it breaks, as pod admission says it.
    pub why: AnnotationError,
}

impl std::fmt::Display for Ignored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the pod's annotation for {} is ignored: {}", self.class, self.why)
    }
}

/// The interceptors that these annotations name.
pub fn resolve(annotations: &BTreeMap<String, String>) -> Resolved {
    let mut left: BTreeMap<&str, &str> = annotations
        .iter()
        .filter(|(key, _)| key.starts_with(INTERCEPTOR_ANNOTATION_PREFIX))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut ignored = Vec::new();
    loop {
        match interceptors_of(&left) {
            Ok(interceptors) => return Resolved { interceptors, ignored },
            Err(errors) => {
                let before = left.len();
                for passed_over in first_step(&errors, &left) {
                    let key = format!("{INTERCEPTOR_ANNOTATION_PREFIX}{}", passed_over.class);
                    if left.remove(key.as_str()).is_some() {
                        ignored.push(passed_over);
                    }
                }
                if left.len() == before {
                    // Every error names somebody to pass over; should one not, nobody counts rather than looping.
                    return Resolved { interceptors: Vec::new(), ignored };
                }
            }
        }
    }
}

/// The interceptors of a pod whose controller has bundled ones: they are added as if they were annotated, unless the pod names another
/// controller itself. A class that it names keeps what it says.
pub fn resolve_with(annotations: &BTreeMap<String, String>, bundled: &[Interceptor]) -> Resolved {
    let resolved = resolve(annotations);
    let is_other = |named: &Interceptor| {
        named.role.as_deref() == Some(CONTROLLER_ROLE)
            && !bundled.iter().any(|it| it.interceptor_class == named.interceptor_class)
    };
    if bundled.is_empty() || resolved.interceptors.iter().any(is_other) {
        return resolved;
    }
    let mut annotations = annotations.clone();
    for (key, value) in bundled.iter().map(annotation_of) {
        annotations.entry(key).or_insert(value);
    }
    resolve(&annotations)
}

/// Whom the first of the steps that has anything to do passes over.
fn first_step(errors: &[AnnotationError], left: &BTreeMap<&str, &str>) -> Vec<Ignored> {
    let step = errors.iter().map(step_of).min();
    let of_step = errors.iter().filter(|error| Some(step_of(error)) == step);
    of_step.flat_map(|error| classes_of(error, left).into_iter().map(|class| ignore(class, error))).collect()
}

fn ignore(class: String, why: &AnnotationError) -> Ignored {
    Ignored { class, why: why.clone() }
}

fn step_of(error: &AnnotationError) -> u8 {
    use AnnotationError as E;
    match error {
        E::ClassNotASubdomain { .. }
        | E::ClassTooLong { .. }
        | E::PriorityNotAnInteger { .. }
        | E::PriorityOutOfRange { .. }
        | E::RoleTooLong { .. }
        | E::ProjectDomain { .. }
        | E::ControllerPriority { .. }
        | E::PriorityOfController { .. } => 1,
        E::SeveralControllers { .. } => 2,
        E::ReservedWithoutController { .. } | E::ReservedForController { .. } => 3,
        E::DuplicateReservedPriority { .. } => 4,
        E::TooManyReserved { .. } | E::TooManyGeneral { .. } => 5,
    }
}

/// The classes that have to go for this error to go.
fn classes_of(error: &AnnotationError, left: &BTreeMap<&str, &str>) -> Vec<String> {
    use AnnotationError as E;
    let all_but_first = |classes: &[String]| {
        let sorted: BTreeSet<&String> = classes.iter().collect();
        sorted.into_iter().skip(1).cloned().collect()
    };
    match error {
        E::ClassNotASubdomain { class }
        | E::ClassTooLong { class, .. }
        | E::PriorityNotAnInteger { class, .. }
        | E::PriorityOutOfRange { class, .. }
        | E::RoleTooLong { class, .. }
        | E::ProjectDomain { class }
        | E::ControllerPriority { class, .. }
        | E::PriorityOfController { class }
        | E::ReservedWithoutController { class, .. }
        | E::ReservedForController { class, .. } => vec![class.clone()],
        E::SeveralControllers { classes } | E::DuplicateReservedPriority { classes, .. } => {
            all_but_first(classes)
        }
        E::TooManyReserved { .. } => beyond(RESERVED_SLOTS, left, true),
        E::TooManyGeneral { .. } => beyond(GENERAL_SLOTS, left, false),
    }
}

/// Whose turn would come after those who have a slot, inside or outside of the reserved interval.
fn beyond(slots: usize, left: &BTreeMap<&str, &str>, reserved: bool) -> Vec<String> {
    // Step 5 comes when each annotation by itself is fine, so each can be read alone, as long as no rule about all is asked.
    let mut found: Vec<(i32, &str)> = left
        .iter()
        .filter_map(|(key, value)| {
            let class = key.strip_prefix(INTERCEPTOR_ANNOTATION_PREFIX)?;
            let priority = value.split('/').next()?.parse().ok()?;
            (RESERVED_PRIORITIES.contains(&priority) == reserved).then_some((priority, class))
        })
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    // The controller keeps its slot, whatever is above it: without it nobody could have a reserved one.
    if reserved && let Some(at) = found.iter().position(|(priority, _)| *priority == CONTROLLER_PRIORITY) {
        let controller = found.remove(at);
        found.insert(0, controller);
    }
    found.into_iter().skip(slots).map(|(_, class)| class.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_api::workloads::BundledInterceptor;

    fn annotations(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        let key = |class: &str| format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}");
        entries.iter().map(|(class, value)| (key(class), (*value).to_owned())).collect()
    }

    fn classes(resolved: &Resolved) -> (Vec<&str>, Vec<&str>) {
        let kept = resolved.interceptors.iter().map(|i| i.interceptor_class.as_str()).collect();
        let mut ignored: Vec<&str> = resolved.ignored.iter().map(|i| i.class.as_str()).collect();
        ignored.sort_unstable();
        (kept, ignored)
    }

    #[test]
    fn the_highest_priority_comes_first_and_equal_ones_by_class() {
        let resolved = resolve(&annotations(&[
            ("b.example.com", "5"),
            ("a.example.com", "5"),
            ("z.example.com", "20000/backup"),
            ("replicaset.apps.k8s.io", "10000/controller"),
        ]));
        let wanted = ["z.example.com", "replicaset.apps.k8s.io", "a.example.com", "b.example.com"];
        assert_eq!(classes(&resolved), (wanted.to_vec(), vec![]));
    }

    #[test]
    fn invalid_annotations_are_passed_over_and_the_others_kept() {
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], &'a [&'a str]);
        let cases: [Case<'_>; 8] = [
            (&[("a.io", "x"), ("b.io", "1")], &["b.io"], &["a.io"]),
            (&[("a.io", "999999")], &[], &["a.io"]),
            (&[("mine.k8s.io", "7"), ("b.io", "1")], &["b.io"], &["mine.k8s.io"]),
            (&[("a.io", "10000"), ("b.io", "1/controller")], &[], &["a.io", "b.io"]),
            (&[("a.x.io", "10000/controller"), ("b.x.io", "10000/controller")], &["a.x.io"], &["b.x.io"]),
            (
                &[("a.x.io", "10000/controller"), ("b.y.io", "9950"), ("c.x.io", "9951")],
                &["a.x.io", "c.x.io"],
                &["b.y.io"],
            ),
            (
                &[("a.x.io", "10000/controller"), ("c.x.io", "9951"), ("b.x.io", "9951")],
                &["a.x.io", "b.x.io"],
                &["c.x.io"],
            ),
            // The controller cannot be read, so the steps beside it lose their place too.
            (
                &[("a.x.io", "10000x/controller"), ("b.x.io", "10001"), ("c.io", "3")],
                &["c.io"],
                &["a.x.io", "b.x.io"],
            ),
        ];
        for (given, kept, ignored) in cases {
            let resolved = resolve(&annotations(given));
            assert_eq!(classes(&resolved), (kept.to_vec(), ignored.to_vec()), "{given:?}");
        }
    }

    #[test]
    fn of_too_many_the_last_are_passed_over_and_the_controller_stays() {
        let mut many: BTreeMap<String, String> = BTreeMap::new();
        for number in 0..35 {
            let priority = 10_001 + number;
            many.extend(annotations(&[(&format!("step{number}.x.io"), &priority.to_string())]));
        }
        for number in 0..75 {
            many.extend(annotations(&[(&format!("other{number}.io"), &number.to_string())]));
        }
        many.extend(annotations(&[("main.x.io", "10000/controller")]));
        let resolved = resolve(&many);
        assert_eq!(resolved.interceptors.len(), 100);
        assert!(resolved.interceptors.iter().any(|i| i.interceptor_class == "main.x.io"));
        let (_, ignored) = classes(&resolved);
        assert_eq!(ignored.len(), 6 + 5);
        assert!(ignored.contains(&"step0.x.io") && ignored.contains(&"other0.io"), "{ignored:?}");
    }

    #[test]
    fn a_bundled_interceptor_is_added_unless_the_pod_names_a_controller() {
        let daemon = [BundledInterceptor::DaemonSet.controller()];
        type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let ours = "daemonset.apps.k8s.io";
        let cases: [Case<'_>; 6] = [
            (&[], &[ours]),
            (&[("a.io", "20000"), ("b.io", "5")], &["a.io", ours, "b.io"]),
            (&[("a.io", "10000/controller")], &["a.io"]),
            (&[(ours, "10000/controller")], &[ours]),
            // What the pod says of the class counts, also where it cannot be read.
            (&[(ours, "x")], &[]),
            // The steps of its own domain around it count now; those of others do not.
            (
                &[
                    ("node.apps.k8s.io", "1"),
                    ("step.example.com", "10001"),
                    ("deployment.apps.k8s.io", "10001"),
                ],
                &["deployment.apps.k8s.io", ours],
            ),
        ];
        for (given, kept) in cases {
            assert_eq!(classes(&resolve_with(&annotations(given), &daemon)).0, kept, "{given:?}");
        }
        let none = annotations(&[("a.io", "5")]);
        assert_eq!(resolve_with(&none, &[]), resolve(&none));
    }

    proptest! {
        #[test]
        fn whatever_a_pod_says_the_result_keeps_the_rules(entries in proptest::collection::btree_map(
            prop_oneof!["[a-c]\\.[xy]\\.io", "[A-C_]{1,3}", "[a-c]\\.k8s\\.io", "[a-c]{55}"],
            prop_oneof!["9[89][0-9]{2}", "10[01][0-9]{2}", "10000/controller", "[0-9]{1,7}(/[a-z]{0,3})?", ".{0,5}"],
            0..12,
        )) {
            let entries: Vec<(&str, &str)> = entries.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let given = annotations(&entries);
            let resolved = resolve(&given);
            prop_assert_eq!(usher_api::interceptor_rules::check_interceptors(&resolved.interceptors), vec![]);
            prop_assert_eq!(resolved.interceptors.len() + resolved.ignored.len(), given.len());
            if let Ok(interceptors) = interceptors_of(&given) {
                prop_assert_eq!(resolved, Resolved { interceptors, ignored: vec![] });
            }
        }
    }
}
