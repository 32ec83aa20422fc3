//! What holds for any interceptors: writing and reading annotations are inverse, and the order of turns is total.

use std::cmp::Ordering;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use usher_api::eviction_request::selection_order;
use usher_api::interceptor_rules::{RESERVED_PRIORITIES, check_interceptors};
use usher_api::{Interceptor, annotation_of, interceptors_of};

fn any_interceptor() -> impl Strategy<Value = Interceptor> {
    let class = "[a-z][a-z0-9]{0,6}\\.(example|vendor)\\.(com|org)";
    // Few distinct priorities, so that ties are common.
    let priority =
        prop_oneof![0..4i32, 9_898..=9_902i32, 9_999..=10_001i32, 10_099..=10_102i32, 99_999..=100_000i32];
    let role = proptest::option::of(prop_oneof![Just("controller".to_owned()), "[a-z/-]{1,12}"]);
    (class, priority, role).prop_map(|(interceptor_class, priority, role)| Interceptor {
        interceptor_class,
        priority,
        role,
    })
}

/// Interceptors that violate nothing: none uses a reserved priority or the controller role, each class once.
fn allowed_interceptors() -> impl Strategy<Value = Vec<Interceptor>> {
    let value = (prop_oneof![0..9_900i32, 10_101..=100_000i32], proptest::option::of("[a-b/ -]{1,12}"));
    btree_map("[a-z][a-z0-9-]{0,20}[a-z0-9]\\.example\\.com", value, 0..=30).prop_map(|by_class| {
        by_class
            .into_iter()
            .map(|(interceptor_class, (priority, role))| Interceptor { interceptor_class, priority, role })
            .collect()
    })
}

proptest! {
    #[test]
    fn annotations_read_back_as_the_interceptors_they_were_written_from(mut interceptors in allowed_interceptors()) {
        let read = interceptors_of(interceptors.iter().map(annotation_of));
        interceptors.sort_by(selection_order);
        prop_assert_eq!(read, Ok(interceptors));
    }

    #[test]
    fn reading_is_all_or_violations(interceptors in vec(any_interceptor(), 0..12)) {
        match interceptors_of(interceptors.iter().map(annotation_of)) {
            Ok(read) => {
                prop_assert!(check_interceptors(&read).is_empty());
                prop_assert!(read.is_sorted_by(|a, b| selection_order(a, b) == Ordering::Less), "strictly ordered");
                let controllers = read.iter().filter(|i| i.role.as_deref() == Some("controller")).count();
                let reserved = read.iter().filter(|i| RESERVED_PRIORITIES.contains(&i.priority)).count();
                prop_assert!(controllers <= 1 && (controllers == 1 || reserved == 0));
            }
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }

    #[test]
    fn the_order_of_the_annotations_does_not_matter(interceptors in vec(any_interceptor(), 0..12).prop_shuffle()) {
        // A pod has each key once; the last writer of a class wins here as there.
        let mut unique = interceptors;
        unique.sort_by(|a, b| a.interceptor_class.cmp(&b.interceptor_class));
        unique.dedup_by(|a, b| a.interceptor_class == b.interceptor_class);
        let forwards = interceptors_of(unique.iter().map(annotation_of));
        let backwards = interceptors_of(unique.iter().rev().map(annotation_of));
        prop_assert_eq!(forwards, backwards);
    }

    #[test]
    fn a_higher_priority_has_its_turn_first(a in any_interceptor(), b in any_interceptor()) {
        if a.priority > b.priority {
            prop_assert_eq!(selection_order(&a, &b), Ordering::Less);
        }
        prop_assert_eq!(selection_order(&a, &b), selection_order(&b, &a).reverse());
        let same = a.priority == b.priority && a.interceptor_class == b.interceptor_class;
        prop_assert_eq!(selection_order(&a, &b) == Ordering::Equal, same);
    }

    #[test]
    fn no_text_makes_the_reader_fail_otherwise(class in ".{0,60}", value in ".{0,20}") {
        let key = format!("{}{class}", usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX);
        if let Ok(read) = interceptors_of([(key, value)]) {
            prop_assert_eq!(read.len(), 1);
            prop_assert!((0..=100_000).contains(&read[0].priority));
        }
    }
}
