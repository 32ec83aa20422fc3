//! Small texts that several kinds share.

use serde_json::Value;

pub(crate) fn name(object: &Value) -> Value {
    text(&object["metadata"]["name"]).into()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn text_or<'a>(value: &'a Value, other: &'a str) -> &'a str {
    match value.as_str() {
        Some(text) if !text.is_empty() => text,
        _ => other,
    }
}

pub(crate) fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Numbers and strings alike, as IntOrString and quantities are.
pub(crate) fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(labels: &Value) -> String {
    let pairs: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(k, v)| format!("{k}={}", text(v))).collect();
    if pairs.is_empty() { "<none>".to_string() } else { pairs.join(",") }
}

/// A label selector as text; empty when it selects everything or nothing.
pub(crate) fn selector(selector: &Value) -> String {
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", text(value))));
    }
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let mut values: Vec<&str> = list(&expression["values"]).iter().map(text).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(&expression["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_string(),
        };
        terms.push((key.to_string(), term));
    }
    terms.sort();
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

pub(crate) fn selector_or_none(value: &Value) -> Value {
    let text = selector(value);
    if text.is_empty() { "<none>".into() } else { text.into() }
}

/// Names and images of containers, each as one cell.
pub(crate) fn containers(pod_spec: &Value) -> [Value; 2] {
    let join = |field: &str| -> Value {
        list(&pod_spec["containers"]).iter().map(|c| text(&c[field])).collect::<Vec<_>>().join(",").into()
    };
    [join("name"), join("image")]
}

/// The first three of a list, and how many more there are.
pub(crate) fn first_three(all: &[String]) -> Value {
    match all.len() {
        0 => "<unset>".into(),
        1..=3 => all.join(",").into(),
        n => format!("{} + {} more...", all[..3].join(","), n - 3).into(),
    }
}

/// The status of a condition, by type.
pub(crate) fn condition<'a>(object: &'a Value, ty: &str) -> Option<&'a str> {
    list(&object["status"]["conditions"]).iter().find(|c| c["type"] == ty).and_then(|c| c["status"].as_str())
}
