//! Any annotations of a pod: as many interceptors as possible come of them, by the rules, and in the same way every time.
//!
//! Each line is a class and a value, parted by a space.

use std::collections::BTreeMap;

use usher_api::interceptors_of;
use usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX;
use usher_decide::admission::Verdict;
use usher_decide::admission::pods::{on_create, on_update};
use usher_decide::admission::resolve::resolve;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs = text.lines().take(300).filter_map(|line| line.split_once(' '));
    let annotations: BTreeMap<String, String> = pairs
        .map(|(class, value)| (format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}"), value.to_owned()))
        .collect();
    let resolved = resolve(&annotations);
    assert_eq!(resolved.interceptors.len() + resolved.ignored.len(), annotations.len());
    match interceptors_of(&annotations) {
        Ok(all) => assert_eq!(all, resolved.interceptors),
        Err(errors) => assert!(!errors.is_empty() && !resolved.ignored.is_empty()),
    }
    let kept: BTreeMap<&String, &String> = annotations
        .iter()
        .filter(|(key, _)| {
            let class = key.strip_prefix(INTERCEPTOR_ANNOTATION_PREFIX).unwrap_or_default();
            resolved.interceptors.iter().any(|one| one.interceptor_class == class)
        })
        .collect();
    let kept: BTreeMap<String, String> = kept.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(interceptors_of(&kept).as_ref(), Ok(&resolved.interceptors), "what is left follows the rules");
    assert_eq!(on_create(&annotations) == Verdict::allow(), resolved.ignored.is_empty());
    assert_eq!(on_update(&annotations, &annotations), Verdict::allow());
    for ignored in &resolved.ignored {
        let _ = ignored.to_string();
    }
}
