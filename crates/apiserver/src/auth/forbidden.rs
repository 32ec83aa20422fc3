//! The words of a refusal.

use serde_json::{Map, Value};

use super::rule::is_path_request;
use crate::attributes::{Attributes, User};
use crate::error::ApiError;

/// 403: RBAC does not allow the request. `reason` is that of the decision, often empty.
pub(crate) fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> ApiError {
    let mut cause = sanitize(&sentence(user, attributes));
    if !reason.is_empty() {
        cause.push_str(": ");
        cause.push_str(reason);
    }
    let resource = if is_path_request(attributes) { "" } else { attributes.resource.as_str() };
    forbidden_because(&attributes.group, resource, &attributes.name, &cause)
}

/// 403 for a named object of a resource: `pods "x" is forbidden: CAUSE`.
pub(crate) fn forbidden_because(group: &str, resource: &str, name: &str, cause: &str) -> ApiError {
    let qualified = if group.is_empty() { resource.to_string() } else { format!("{resource}.{group}") };
    let message = if qualified.is_empty() {
        format!("forbidden: {cause}")
    } else if name.is_empty() {
        format!("{qualified} is forbidden: {cause}")
    } else {
        format!("{qualified} {name:?} is forbidden: {cause}")
    };
    let details: Map<String, Value> = [("name", name), ("group", group), ("kind", resource)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_string(), value.into()))
        .collect();
    ApiError::new(403, "Forbidden", message).with_details(Value::Object(details))
}

fn sentence(user: &User, a: &Attributes) -> String {
    let (name, verb) = (&user.name, &a.verb);
    if is_path_request(a) {
        return format!("User {name:?} cannot {verb} path {:?}", a.path);
    }
    let resource = match a.subresource.as_str() {
        "" => a.resource.clone(),
        sub => format!("{}/{sub}", a.resource),
    };
    let group = &a.group;
    let what = format!("User {name:?} cannot {verb} resource {resource:?} in API group {group:?}");
    match a.namespace.as_str() {
        "" => format!("{what} at the cluster scope"),
        namespace => format!("{what} in the namespace {namespace:?}"),
    }
}

/// Messages must not look like HTML to a browser.
fn sanitize(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn attributes(f: impl FnOnce(&mut Attributes)) -> Attributes {
        let mut a = Attributes { verb: "get".into(), resource: "pods".into(), ..Default::default() };
        f(&mut a);
        a
    }

    #[test]
    fn a_refusal_gives_the_reason_of_rbac_and_escapes_paths() {
        let user = User { name: "u".into(), ..Default::default() };
        let cases = [
            (
                "with a reason",
                attributes(|a| a.name = "x".into()),
                "RBAC: broken",
                r#"pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" at the cluster scope: RBAC: broken"#,
                json!({"name": "x", "kind": "pods"}),
            ),
            (
                "a path that looks like HTML",
                attributes(|a| (a.resource, a.path) = (String::new(), "/<b>&".into())),
                "",
                r#"forbidden: User "u" cannot get path "/&lt;b&gt;&amp;""#,
                json!({}),
            ),
        ];
        for (rule, attributes, reason, message, details) in cases {
            let error = forbidden(&user, &attributes, reason);
            assert_eq!(error.message, message, "{rule}");
            assert_eq!(error.details, details, "{rule}");
            assert_eq!((error.code, error.reason), (403, "Forbidden"), "{rule}");
        }
    }
}
