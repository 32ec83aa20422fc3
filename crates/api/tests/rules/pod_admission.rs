//! The rules for interceptor annotations, one test each, in the order of the specification's "Pod Admission".

use std::collections::BTreeMap;

use usher_api::AnnotationError::{self, *};
use usher_api::interceptor_rules::{CONTROLLER_PRIORITY, GENERAL_SLOTS, RESERVED_PRIORITIES, RESERVED_SLOTS};
use usher_api::names::{INTERCEPTOR_ANNOTATION_PREFIX, PROJECT_CLASSES};
use usher_api::{Interceptor, interceptors_of};

fn read<C: AsRef<str>, V: AsRef<str>>(
    annotations: &[(C, V)],
) -> Result<Vec<Interceptor>, Vec<AnnotationError>> {
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(class, value)| {
            (format!("{INTERCEPTOR_ANNOTATION_PREFIX}{}", class.as_ref()), value.as_ref().to_owned())
        })
        .collect();
    interceptors_of(&annotations)
}

fn interceptor(class: &str, priority: i32, role: Option<&str>) -> Interceptor {
    Interceptor { interceptor_class: class.to_owned(), priority, role: role.map(str::to_owned) }
}

const REPLICA_SET: (&str, &str) = ("replicaset.apps.k8s.io", "10000/controller");

#[test]
fn the_example_of_the_specification_is_read_highest_priority_first() {
    let read = read(&[
        ("fallback-interceptor.rescue-company.com", "2000"),
        REPLICA_SET,
        ("deployment.apps.k8s.io", "10001/higher-level-controller"),
        ("sensitive-workload-operator.fruit-company.com", "11000/knowledgeable-app-specific"),
        ("horizontalpodautoscaler.autoscaling.k8s.io", "12000/hpa"),
    ]);
    assert_eq!(
        read.unwrap(),
        [
            interceptor("horizontalpodautoscaler.autoscaling.k8s.io", 12000, Some("hpa")),
            interceptor(
                "sensitive-workload-operator.fruit-company.com",
                11000,
                Some("knowledgeable-app-specific")
            ),
            interceptor("deployment.apps.k8s.io", 10001, Some("higher-level-controller")),
            interceptor("replicaset.apps.k8s.io", 10000, Some("controller")),
            interceptor("fallback-interceptor.rescue-company.com", 2000, None),
        ]
    );
}

#[test]
fn other_annotations_are_passed_over() {
    let annotations = BTreeMap::from([
        ("kubernetes.io/config.source", "api"),
        ("interceptor.evictionrequest.coordination.k8s.io/hash_7bb77f87dc", "a.example.com"),
        ("evictionrequest.coordination.k8s.io/priority_a.example.com", "not a number"),
    ]);
    assert_eq!(interceptors_of(&annotations), Ok(vec![]));
}

#[test]
fn priority_is_an_integer() {
    for value in ["", "high", "1.5", "0x10", " 5", "5 ", "+5", "1_000", "/controller", "-", "--5", "٣"] {
        let expected = PriorityNotAnInteger { class: "a.example.com".into(), value: value.into() };
        assert_eq!(read(&[("a.example.com", value)]), Err(vec![expected]), "{value:?}");
    }
}

#[test]
fn priority_is_0_to_100000() {
    for (value, priority) in [("0", 0), ("100000", 100_000), ("007", 7)] {
        assert_eq!(read(&[("a.example.com", value)]), Ok(vec![interceptor("a.example.com", priority, None)]));
    }
    for value in ["-1", "100001", "99999999999999999999", "-1/backup"] {
        let expected = PriorityOutOfRange { class: "a.example.com".into(), value: value.into() };
        assert_eq!(read(&[("a.example.com", value)]), Err(vec![expected]), "{value:?}");
    }
}

#[test]
fn role_is_optional_and_free() {
    for (value, role) in [("5", None), ("5/", None), ("5/hpa", Some("hpa")), ("5/a/b", Some("a/b"))] {
        assert_eq!(
            read(&[("a.example.com", value)]),
            Ok(vec![interceptor("a.example.com", 5, role)]),
            "{value:?}"
        );
    }
}

#[test]
fn role_has_253_characters_at_most() {
    assert!(read(&[("a.example.com", format!("5/{}", "r".repeat(253)))]).is_ok());
    assert_eq!(
        read(&[("a.example.com", format!("5/{}", "r".repeat(254)))]),
        Err(vec![RoleTooLong { class: "a.example.com".into(), max: 253 }])
    );
}

#[test]
fn only_one_annotation_has_the_controller_role() {
    let errors =
        read(&[("a.example.com", "10000/controller"), ("b.example.com", "10000/controller")]).unwrap_err();
    let classes = vec!["a.example.com".to_owned(), "b.example.com".to_owned()];
    assert_eq!(
        errors,
        [
            SeveralControllers { classes: classes.clone() },
            DuplicateReservedPriority { priority: CONTROLLER_PRIORITY, classes }
        ]
    );
}

#[test]
fn the_controller_has_priority_10000() {
    assert!(read(&[("a.example.com", "10000/controller")]).is_ok());
    assert_eq!(
        read(&[("a.example.com", "11000/controller")]),
        Err(vec![ControllerPriority { class: "a.example.com".into(), priority: 11000 }])
    );
}

#[test]
fn another_or_no_role_cannot_have_priority_10000() {
    for value in ["10000", "10000/", "10000/backup", "10000/Controller"] {
        let expected = PriorityOfController { class: "a.example.com".into() };
        assert_eq!(read(&[("a.example.com", value)]), Err(vec![expected]), "{value:?}");
    }
}

#[test]
fn reserved_priorities_are_for_siblings_and_descendants_of_the_controller() {
    for class in ["deployment.apps.k8s.io", "customfeature.replicaset.apps.k8s.io"] {
        for priority in ["9900", "10001", "10100"] {
            assert!(read(&[REPLICA_SET, (class, priority)]).is_ok(), "{class} {priority}");
        }
    }
    for class in ["operator.example.com", "apps.example.com", "horizontalpodautoscaler.autoscaling.k8s.io"] {
        for priority in [9900, 10100] {
            let expected = ReservedForController {
                class: class.into(),
                priority,
                controller: "replicaset.apps.k8s.io".into(),
            };
            assert_eq!(read(&[REPLICA_SET, (class, &priority.to_string())]), Err(vec![expected]), "{class}");
        }
        for priority in ["9899", "10101"] {
            assert!(read(&[REPLICA_SET, (class, priority)]).is_ok(), "{class} {priority}");
        }
    }
}

#[test]
fn a_controller_without_a_parent_domain_shares_the_interval_with_nobody() {
    assert!(read(&[("single", "10000/controller")]).is_ok());
    assert_eq!(
        read(&[("single", "10000/controller"), ("x.single", "10001")]),
        Err(vec![ReservedForController {
            class: "x.single".into(),
            priority: 10001,
            controller: "single".into()
        }])
    );
}

#[test]
fn reserved_priorities_need_a_controller() {
    for priority in [9900, 9999, 10001, 10100] {
        let expected = ReservedWithoutController { class: "a.example.com".into(), priority };
        assert_eq!(read(&[("a.example.com", priority.to_string())]), Err(vec![expected]));
    }
    for priority in ["9899", "10101"] {
        assert!(read(&[("a.example.com", priority)]).is_ok());
    }
}

/// A controller and this many interceptors of its domain, then this many others.
fn interceptors(reserved: usize, general: usize) -> Vec<(String, String)> {
    let controller = ("ctl.example.com".to_owned(), "10000/controller".to_owned());
    let siblings = (1..reserved).map(|i| (format!("r{i}.example.com"), (10_000 + i).to_string()));
    let others = (0..general).map(|i| (format!("g{i}.example.org"), "5".to_owned()));
    [controller].into_iter().take(reserved).chain(siblings).chain(others).collect()
}

#[test]
fn thirty_slots_are_reserved_and_seventy_are_general() {
    assert_eq!(read(&interceptors(RESERVED_SLOTS, GENERAL_SLOTS)).unwrap().len(), 100);
    assert_eq!(read(&interceptors(31, 0)), Err(vec![TooManyReserved { count: 31 }]));
    assert_eq!(read(&interceptors(0, 71)), Err(vec![TooManyGeneral { count: 71 }]));
    assert_eq!(
        read(&interceptors(31, 71)),
        Err(vec![TooManyReserved { count: 31 }, TooManyGeneral { count: 71 }])
    );
}

#[test]
fn classes_of_the_kubernetes_project_are_those_on_the_list() {
    for class in PROJECT_CLASSES {
        assert!(read(&[(class, "5")]).is_ok(), "{class}");
        assert!(read(&[(format!("part.{class}"), "5")]).is_ok(), "part.{class}");
    }
    let reserved = [
        "k8s.io",
        "actor-a.k8s.io",
        "apps.k8s.io",
        "evil.apps.k8s.io",
        "kubernetes.io",
        "deployment.apps.kubernetes.io",
    ];
    for class in reserved {
        assert_eq!(read(&[(class, "5")]), Err(vec![ProjectDomain { class: class.into() }]));
    }
    for class in ["myk8s.io", "operator.x-k8s.io", "k8s.io.example.com"] {
        assert!(read(&[(class, "5")]).is_ok(), "{class}");
    }
}

#[test]
fn duplicate_priorities_are_allowed_outside_of_the_interval_only() {
    assert!(read(&[("a.example.com", "5"), ("b.example.com", "5")]).is_ok());
    let errors =
        read(&[REPLICA_SET, ("deployment.apps.k8s.io", "10001"), ("statefulset.apps.k8s.io", "10001")])
            .unwrap_err();
    let classes = vec!["deployment.apps.k8s.io".to_owned(), "statefulset.apps.k8s.io".to_owned()];
    assert_eq!(errors, [DuplicateReservedPriority { priority: 10001, classes }]);
    assert_eq!(RESERVED_PRIORITIES, 9900..=10100);
}

#[test]
fn the_class_is_a_subdomain() {
    for class in ["Upper.example.com", "under_score", "two..dots", "-dash", ""] {
        assert_eq!(read(&[(class, "5")]), Err(vec![ClassNotASubdomain { class: class.into() }]), "{class:?}");
    }
}

#[test]
fn the_class_has_54_characters_so_that_the_name_part_has_63() {
    assert!(read(&[("a".repeat(54), "5")]).is_ok());
    assert_eq!(read(&[("a".repeat(55), "5")]), Err(vec![ClassTooLong { class: "a".repeat(55), max: 54 }]));
}

#[test]
fn all_violations_are_reported_not_only_the_first() {
    let errors = read(&[
        ("Bad_Class", "x"),
        ("a.example.com", "10050"),
        ("actor-a.k8s.io", "5"),
        ("b.example.com", "200000/backup"),
        ("c.example.com", "500/controller"),
    ]);
    assert_eq!(
        errors.unwrap_err(),
        [
            ClassNotASubdomain { class: "Bad_Class".into() },
            PriorityNotAnInteger { class: "Bad_Class".into(), value: "x".into() },
            PriorityOutOfRange { class: "b.example.com".into(), value: "200000/backup".into() },
            ProjectDomain { class: "actor-a.k8s.io".into() },
            ControllerPriority { class: "c.example.com".into(), priority: 500 },
        ]
    );
}

#[test]
fn a_message_says_what_to_do() {
    let error = ReservedForController {
        class: "operator.example.com".into(),
        priority: 10050,
        controller: "replicaset.apps.k8s.io".into(),
    };
    assert_eq!(
        error.to_string(),
        "interceptor operator.example.com: priority 10050 is reserved (9900-10100) for the domain of the controller \
         replicaset.apps.k8s.io: choose a priority above 10100 or below 9900"
    );
}
