//! What a pod's interceptors must satisfy together: one controller, a reserved interval around it, limited numbers.
//!
//! The reserved interval lets a vendor split its controller into several steps that nobody else can get in between. Whose
//! steps these are is told by the domain above the controller's class: for `replicaset.apps.k8s.io` everything below
//! `apps.k8s.io`. The rule is taken literally: a controller directly below a shared suffix, such as `example.com`, shares the
//! interval with everybody else there.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::domain::{is_below, parent};
use crate::eviction_request::Interceptor;
use crate::names::{PROJECT_CLASSES, PROJECT_DOMAINS};

/// The role of the pod's controller.
pub const CONTROLLER_ROLE: &str = "controller";
/// The priority of the pod's controller, and of nobody else.
pub const CONTROLLER_PRIORITY: i32 = 10_000;
/// Priorities that are reserved for the controller's own domain.
pub const RESERVED_PRIORITIES: RangeInclusive<i32> = 9_900..=10_100;
/// How many interceptors can be inside of the reserved interval.
pub const RESERVED_SLOTS: usize = 30;
/// How many interceptors can be outside of the reserved interval.
pub const GENERAL_SLOTS: usize = 70;

/// A violation of the rules for interceptor annotations. Each says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// INTERCEPTOR_CLASS is no DNS subdomain.
    #[error(
        "interceptor class {class:?} is not a DNS subdomain: use lower-case letters, digits, '-' and '.', \
         for example operator.example.com"
    )]
    ClassNotASubdomain {
        /// The class as given.
        class: String,
    },
    /// `priority_INTERCEPTOR_CLASS` does not fit into the name part of an annotation key.
    #[error("interceptor class {class:?} is longer than {max} characters: use a unique shorter subdomain")]
    ClassTooLong {
        /// The class as given.
        class: String,
        /// How long it may be.
        max: usize,
    },
    /// PRIORITY is no integer.
    #[error(
        "interceptor {class}: {value:?} does not start with an integer priority: write PRIORITY or PRIORITY/ROLE, \
         for example \"11000/backup\""
    )]
    PriorityNotAnInteger {
        /// The class of the interceptor.
        class: String,
        /// The value of the annotation.
        value: String,
    },
    /// PRIORITY is an integer, but not one of 0 to 100000.
    #[error("interceptor {class}: the priority in {value:?} is out of range: choose one from 0 to 100000")]
    PriorityOutOfRange {
        /// The class of the interceptor.
        class: String,
        /// The value of the annotation.
        value: String,
    },
    /// ROLE is longer than the EvictionRequest can hold.
    #[error("interceptor {class}: the role is longer than {max} characters: use a shorter one")]
    RoleTooLong {
        /// The class of the interceptor.
        class: String,
        /// How long it may be.
        max: usize,
    },
    /// More than one interceptor has the controller role.
    #[error("only one interceptor can have the role controller, found {}: keep one of them", classes.join(", "))]
    SeveralControllers {
        /// All classes with that role.
        classes: Vec<String>,
    },
    /// The controller has another priority than 10000.
    #[error(
        "interceptor {class}: the role controller has the priority 10000, not {priority}: change one of them"
    )]
    ControllerPriority {
        /// The class of the controller.
        class: String,
        /// Its priority.
        priority: i32,
    },
    /// The controller's priority without the controller's role.
    #[error(
        "interceptor {class}: the priority 10000 belongs to the role controller: choose another priority"
    )]
    PriorityOfController {
        /// The class of the interceptor.
        class: String,
    },
    /// A reserved priority on a pod without a controller.
    #[error(
        "interceptor {class}: priority {priority} is reserved (9900-10100) and the pod has no interceptor of the role \
         controller: choose a priority above 10100 or below 9900"
    )]
    ReservedWithoutController {
        /// The class of the interceptor.
        class: String,
        /// Its priority.
        priority: i32,
    },
    /// A reserved priority for a class of another domain than the controller's.
    #[error(
        "interceptor {class}: priority {priority} is reserved (9900-10100) for the domain of the controller {controller}: \
         choose a priority above 10100 or below 9900"
    )]
    ReservedForController {
        /// The class of the interceptor.
        class: String,
        /// Its priority.
        priority: i32,
        /// The class of the controller.
        controller: String,
    },
    /// A reserved priority given to several interceptors.
    #[error(
        "priority {priority} is used by {}: priorities 9900-10100 can be used once each, choose different ones",
        classes.join(", ")
    )]
    DuplicateReservedPriority {
        /// The priority.
        priority: i32,
        /// All classes that have it.
        classes: Vec<String>,
    },
    /// Too many interceptors inside of the reserved interval.
    #[error("{count} interceptors have priorities in 9900-10100: at most 30 can, remove the others")]
    TooManyReserved {
        /// How many there are.
        count: usize,
    },
    /// Too many interceptors outside of the reserved interval.
    #[error("{count} interceptors have priorities outside of 9900-10100: at most 70 can, remove the others")]
    TooManyGeneral {
        /// How many there are.
        count: usize,
    },
    /// A class in a domain of the Kubernetes project that is none of its interceptors.
    #[error(
        "interceptor class {class} is in a domain of the Kubernetes project: use a class in a domain of your own"
    )]
    ProjectDomain {
        /// The class of the interceptor.
        class: String,
    },
}

/// Every violation among these interceptors, in a fixed order. Each interceptor by itself is taken to be well formed.
pub fn check_interceptors(interceptors: &[Interceptor]) -> Vec<AnnotationError> {
    let mut errors = Vec::new();
    check_project_domains(interceptors, &mut errors);
    check_controller(interceptors, &mut errors);
    check_reserved_interval(interceptors, &mut errors);
    check_numbers(interceptors, &mut errors);
    errors
}

/// Whether a class can be used by anybody: it is outside of the project's domains, or one of the project's own interceptors, or a
/// part of such (`customfeature.replicaset.apps.k8s.io`).
pub fn is_allowed_class(class: &str) -> bool {
    let within = |domain: &str| class == domain || is_below(class, domain);
    !PROJECT_DOMAINS.into_iter().any(within) || PROJECT_CLASSES.into_iter().any(within)
}

fn check_project_domains(interceptors: &[Interceptor], errors: &mut Vec<AnnotationError>) {
    let foreign = interceptors.iter().filter(|i| !is_allowed_class(&i.interceptor_class));
    errors.extend(foreign.map(|i| AnnotationError::ProjectDomain { class: i.interceptor_class.clone() }));
}

fn check_controller(interceptors: &[Interceptor], errors: &mut Vec<AnnotationError>) {
    let controllers: Vec<&Interceptor> = interceptors.iter().filter(|i| is_controller(i)).collect();
    if controllers.len() > 1 {
        errors.push(AnnotationError::SeveralControllers { classes: classes(controllers) });
    }
    for interceptor in interceptors {
        let class = || interceptor.interceptor_class.clone();
        match (is_controller(interceptor), interceptor.priority == CONTROLLER_PRIORITY) {
            (true, false) => errors
                .push(AnnotationError::ControllerPriority { class: class(), priority: interceptor.priority }),
            (false, true) => errors.push(AnnotationError::PriorityOfController { class: class() }),
            _ => {}
        }
    }
}

fn check_reserved_interval(interceptors: &[Interceptor], errors: &mut Vec<AnnotationError>) {
    let controllers: Vec<&Interceptor> = interceptors.iter().filter(|i| is_controller(i)).collect();
    let mut by_priority: BTreeMap<i32, Vec<&Interceptor>> = BTreeMap::new();
    for interceptor in interceptors.iter().filter(|i| RESERVED_PRIORITIES.contains(&i.priority)) {
        by_priority.entry(interceptor.priority).or_default().push(interceptor);
        let class = || interceptor.interceptor_class.clone();
        let priority = interceptor.priority;
        // 10000 without the role is reported as such, once.
        if controllers.is_empty() && priority != CONTROLLER_PRIORITY {
            errors.push(AnnotationError::ReservedWithoutController { class: class(), priority });
        }
        let others = controllers
            .iter()
            .filter(|c| !shares_domain(&interceptor.interceptor_class, &c.interceptor_class));
        errors.extend(others.map(|c| AnnotationError::ReservedForController {
            class: class(),
            priority,
            controller: c.interceptor_class.clone(),
        }));
    }
    let duplicates = by_priority.into_iter().filter(|(_, found)| found.len() > 1);
    errors.extend(duplicates.map(|(priority, found)| AnnotationError::DuplicateReservedPriority {
        priority,
        classes: classes(found),
    }));
}

fn check_numbers(interceptors: &[Interceptor], errors: &mut Vec<AnnotationError>) {
    let reserved = interceptors.iter().filter(|i| RESERVED_PRIORITIES.contains(&i.priority)).count();
    let general = interceptors.len() - reserved;
    if reserved > RESERVED_SLOTS {
        errors.push(AnnotationError::TooManyReserved { count: reserved });
    }
    if general > GENERAL_SLOTS {
        errors.push(AnnotationError::TooManyGeneral { count: general });
    }
}

fn is_controller(interceptor: &Interceptor) -> bool {
    interceptor.role.as_deref() == Some(CONTROLLER_ROLE)
}

/// The controller itself, its siblings and everything below them.
fn shares_domain(class: &str, controller: &str) -> bool {
    class == controller || parent(controller).is_some_and(|parent| is_below(class, parent))
}

fn classes(interceptors: Vec<&Interceptor>) -> Vec<String> {
    interceptors.into_iter().map(|i| i.interceptor_class.clone()).collect()
}
