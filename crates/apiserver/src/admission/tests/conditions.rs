//! Match conditions.

use super::*;

async fn outcome(changes: Value, case: &Case) -> Result<&'static str, String> {
    let denial = json!({"allowed": false, "status": {"message": "called"}});
    match case.validate(&one_validating(changes, answering(denial))).await {
        Ok(_) => Ok("skipped"),
        Err(error) if error.message.ends_with(": called") => Ok("called"),
        Err(error) => Err(error.message),
    }
}

fn conditions(expressions: &[&str]) -> Value {
    let list: Vec<Value> = expressions.iter().map(|e| json!({"name": "c", "expression": e})).collect();
    json!({"matchConditions": list})
}

#[tokio::test]
async fn what_conditions_see() {
    let mut case = Case::create();
    case.object["metadata"]["annotations"] = json!({"acme.com/drain-me": "yes"});
    case.object["spec"] = json!({"replicas": 3, "ports": [{"port": 80}, {"port": 443}]});
    let mut update = Case::create();
    update.operation = Operation::Update;
    update.old = Some(json!({"data": {"k": "old"}}));
    let cases = [
        ("the object", &case, "object.metadata.name == 'settings'", "called"),
        (
            "annotations by their own names",
            &case,
            "'acme.com/drain-me' in object.metadata.annotations",
            "called",
        ),
        (
            "an annotation that starts so",
            &case,
            "object.metadata.annotations.exists(k, k.startsWith('acme.com/'))",
            "called",
        ),
        (
            "what may be absent",
            &case,
            "has(object.metadata.labels) && 'a' in object.metadata.labels",
            "skipped",
        ),
        ("numbers", &case, "object.spec.replicas > 2 && object.spec.ports.all(p, p.port < 1000)", "called"),
        ("no object before a create", &case, "oldObject == null", "called"),
        ("the object before an update", &update, "oldObject.data.k != object.data.k", "called"),
        ("the operation", &case, "request.operation == 'CREATE'", "called"),
        (
            "the user",
            &case,
            "request.userInfo.username == 'alice' && 'dev' in request.userInfo.groups",
            "called",
        ),
        ("other users", &case, "!(request.userInfo.username.startsWith('system:'))", "called"),
        (
            "namespace and name",
            &case,
            "request.namespace == 'default' && request.name == 'settings'",
            "called",
        ),
        (
            "the resource",
            &case,
            "request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'",
            "called",
        ),
        ("no subresource", &case, "!has(request.subResource)", "called"),
        ("false", &case, "false", "skipped"),
    ];
    for (rule, case, expression, expected) in cases {
        assert_eq!(outcome(conditions(&[expression]), case).await, Ok(expected), "{rule}");
    }
}

#[tokio::test]
async fn all_conditions_must_hold() {
    let case = Case::create();
    assert_eq!(outcome(conditions(&["true", "true"]), &case).await, Ok("called"));
    assert_eq!(outcome(conditions(&["true", "false"]), &case).await, Ok("skipped"));
    assert_eq!(
        outcome(conditions(&["object.nope == 'x'", "false"]), &case).await,
        Ok("skipped"),
        "false decides"
    );
}

#[tokio::test]
async fn conditions_may_ask_for_rights() {
    let condition = || conditions(&["authorizer.group('').resource('pods').check('get').allowed()"]);
    let mut case = Case::create();
    assert_eq!(outcome(condition(), &case).await, Ok("skipped"), "alice may not");
    case.user.name = "bob".into();
    assert_ne!(outcome(condition(), &case).await, Ok("skipped"), "bob may");
}

#[tokio::test]
async fn errors_fail_the_request_or_skip_the_webhook() {
    let case = Case::create();
    let missing = r#"configmaps "settings" is forbidden: expression 'object.nope == "x"' resulted in error: no such key: nope"#;
    let cases = [
        (r#"object.nope == "x""#, missing.to_string()),
        (
            "object.data.k",
            r#"configmaps "settings" is forbidden: compilation error: must evaluate to bool but got dyn"#
                .to_string(),
        ),
    ];
    for (expression, message) in cases {
        assert_eq!(outcome(conditions(&[expression]), &case).await, Err(message), "{expression}");
        let mut open = conditions(&[expression]);
        open["failurePolicy"] = "Ignore".into();
        assert_eq!(outcome(open, &case).await, Ok("skipped"), "{expression}");
    }
    let unreadable = outcome(conditions(&["object."]), &case).await.unwrap_err();
    assert!(
        unreadable.starts_with(r#"configmaps "settings" is forbidden: compilation error: "#),
        "{unreadable}"
    );
}
