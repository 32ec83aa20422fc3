//! Interceptor annotations of pods: `interceptor.evictionrequest.coordination.k8s.io/priority_CLASS: "PRIORITY/ROLE"`.
//!
//! Reading is split in two. Here each annotation is read by itself; [`crate::interceptor_rules`] then looks at all of them
//! together. Both report everything they find, so that a user repairs a pod once and not violation by violation.

use std::collections::BTreeMap;

use crate::domain::is_subdomain;
use crate::eviction_request::{Interceptor, selection_order};
use crate::interceptor_rules::{AnnotationError, check_interceptors};
use crate::names::{INTERCEPTOR_ANNOTATION_PREFIX, room_behind};

/// The highest priority an interceptor can have.
pub const PRIORITY_MAX: i32 = 100_000;
/// The longest role. The specification sets no limit; without one the CEL rules over roles have no bounded cost.
pub const ROLE_MAX_LENGTH: usize = 253;

/// The interceptors a pod names, in the order of their turns, or every violation of the rules for pod admission.
///
/// Annotations of other kinds are passed over. Takes any view of a pod's annotations, such as `&BTreeMap<String, String>`.
pub fn interceptors_of<K, V>(
    annotations: impl IntoIterator<Item = (K, V)>,
) -> Result<Vec<Interceptor>, Vec<AnnotationError>>
where
    K: AsRef<str>,
    V: AsRef<str>,
{
    let mut values: BTreeMap<String, V> = BTreeMap::new();
    for (key, value) in annotations {
        if let Some(class) = key.as_ref().strip_prefix(INTERCEPTOR_ANNOTATION_PREFIX) {
            values.insert(class.to_owned(), value);
        }
    }

    let mut interceptors = Vec::with_capacity(values.len());
    let mut errors = Vec::new();
    for (class, value) in &values {
        match parse(class, value.as_ref()) {
            Ok(interceptor) => interceptors.push(interceptor),
            Err(found) => errors.extend(found),
        }
    }
    errors.extend(check_interceptors(&interceptors));
    if !errors.is_empty() {
        return Err(errors);
    }
    interceptors.sort_by(selection_order);
    Ok(interceptors)
}

/// The annotation, key and value, that registers this interceptor.
pub fn annotation_of(interceptor: &Interceptor) -> (String, String) {
    let key = format!("{INTERCEPTOR_ANNOTATION_PREFIX}{}", interceptor.interceptor_class);
    let value = match &interceptor.role {
        Some(role) => format!("{}/{role}", interceptor.priority),
        None => interceptor.priority.to_string(),
    };
    (key, value)
}

fn parse(class: &str, value: &str) -> Result<Interceptor, Vec<AnnotationError>> {
    let mut errors = Vec::new();
    let owned = || class.to_owned();
    if !is_subdomain(class) {
        errors.push(AnnotationError::ClassNotASubdomain { class: owned() });
    }
    let max = room_behind(INTERCEPTOR_ANNOTATION_PREFIX);
    if class.len() > max {
        errors.push(AnnotationError::ClassTooLong { class: owned(), max });
    }

    let (priority, role) = match value.split_once('/') {
        Some((priority, role)) => (priority, Some(role).filter(|role| !role.is_empty())),
        None => (value, None),
    };
    if role.is_some_and(|role| role.len() > ROLE_MAX_LENGTH) {
        errors.push(AnnotationError::RoleTooLong { class: owned(), max: ROLE_MAX_LENGTH });
    }
    match parse_priority(priority) {
        Ok(priority) if errors.is_empty() => {
            return Ok(Interceptor { interceptor_class: owned(), priority, role: role.map(str::to_owned) });
        }
        Ok(_) => {}
        Err(NotAPriority::NotAnInteger) => {
            errors.push(AnnotationError::PriorityNotAnInteger { class: owned(), value: value.to_owned() });
        }
        Err(NotAPriority::OutOfRange) => {
            errors.push(AnnotationError::PriorityOutOfRange { class: owned(), value: value.to_owned() });
        }
    }
    Err(errors)
}

enum NotAPriority {
    NotAnInteger,
    OutOfRange,
}

/// Plain decimal digits, with a minus sign recognised only to say the better thing about it.
fn parse_priority(text: &str) -> Result<i32, NotAPriority> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(NotAPriority::NotAnInteger);
    }
    match text.parse::<i32>() {
        Ok(priority) if (0..=PRIORITY_MAX).contains(&priority) => Ok(priority),
        _ => Err(NotAPriority::OutOfRange),
    }
}
