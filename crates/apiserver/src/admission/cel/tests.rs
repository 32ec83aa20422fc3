//! Expressions on a request: what they evaluate to, and which are refused.

use serde_json::{Value, json};

use super::*;
use crate::admission::tests::{Case, Cluster};

/// What an expression comes to for the creation of a config map by a user, with variables.
fn evaluate(user: &str, variables: &[(&str, &str)], source: &str) -> Result<Value, String> {
    let mut declared = Declared { authorizer: true, params: true, patch_types: true, ..Declared::default() };
    let variables: Vec<Variable> = variables
        .iter()
        .map(|(name, source)| {
            let expression = Expression::compile(source, &declared, &[]);
            expression.declare(name, &mut declared);
            Variable { name: (*name).to_string(), expression }
        })
        .collect();
    let expression = Expression::compile(source, &declared, &[]);
    let mut case = Case::create();
    case.user.name = user.to_string();
    let request = case.request(&Cluster::ONE_VERSION);
    let params = json!({"data": {"n1": "100"}});
    let inputs = Inputs {
        request: &request,
        object: &case.object,
        params: Some(&params),
        namespace: None,
        version: None,
        variables: &variables,
    };
    inputs.scope(&[&expression], |scope| scope.evaluate(&expression).and_then(|value| to_json(&value)))
}

fn plain(source: &str) -> Result<Value, String> {
    evaluate("alice", &[], source)
}

fn failure(source: &str, why: &str) -> Result<Value, String> {
    Err(format!("expression '{source}' resulted in error: {why}"))
}

#[test]
fn what_is_not_there_is_an_error_unless_asked_for() {
    assert_eq!(plain("object.data.k"), Ok(json!("v")));
    assert_eq!(plain("object.data.none"), failure("object.data.none", "no such key: none"));
    assert_eq!(plain("oldObject.data"), failure("oldObject.data", "no such overload"));
    assert_eq!(plain("oldObject == null"), Ok(json!(true)));
    assert_eq!(plain("has(object.data.none)"), Ok(json!(false)));
    assert_eq!(plain("object.?data.none.orValue('x')"), Ok(json!("x")));
    assert_eq!(plain("object.?nothing.below.orValue('x')"), Ok(json!("x")));
    assert_eq!(plain("object.data[?'none'].orValue('x')"), Ok(json!("x")));
    assert_eq!(plain("[1][1]"), failure("[1][1]", "index out of bounds: 1"));
}

#[test]
fn optional_values_are_compared_by_what_they_hold() {
    for (source, expected) in [
        ("object.?data == object.?data", true),
        ("object.?none == object.?other", true),
        ("object.?data == object.?none", false),
        ("object.?data != object.?none", true),
        ("[object].all(o, o.?data == object.?data)", true),
        ("object.data.?k == optional.of('v')", true),
        ("object.?data.k == optional.of('v')", true),
    ] {
        assert_eq!(plain(source), Ok(json!(expected)), "{source}");
    }
}

#[test]
fn optional_values_can_be_mapped() {
    assert_eq!(plain("object.data.?k.optMap(x, x + '!').orValue('')"), Ok(json!("v!")));
    assert_eq!(plain("object.data.?none.optMap(x, x + '!').orValue('-')"), Ok(json!("-")));
    assert_eq!(plain("object.?data.optFlatMap(x, x.?k).orValue('-')"), Ok(json!("v")));
}

#[test]
fn variables_are_computed_when_they_are_read() {
    let variables =
        [("name", "object.metadata.name"), ("broken", "object.none"), ("long", "variables.name + '!'")];
    assert_eq!(evaluate("alice", &variables, "variables.long"), Ok(json!("settings!")));
    assert_eq!(evaluate("alice", &variables, "true || variables.broken"), Ok(json!(true)));
    assert_eq!(
        evaluate("alice", &variables, "variables.broken == 1"),
        failure(
            "variables.broken == 1",
            r#"composited variable "broken" fails to evaluate: no such key: none"#
        )
    );
    assert_eq!(evaluate("alice", &variables, "['a'].map(x, variables.name + x)"), Ok(json!(["settingsa"])));
    let optional = [("k", "object.?data")];
    assert_eq!(evaluate("alice", &optional, "variables.k == object.?data"), Ok(json!(true)));
}

#[test]
fn keys_of_a_patch_are_escaped_and_whole_numbers_stay_whole() {
    assert_eq!(
        plain("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 1.0}]"),
        Ok(json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": 1}]))
    );
}

#[test]
fn rights_are_asked_of_rbac() {
    for (source, alice, bob) in [
        (
            "authorizer.group('').resource('pods').namespace('default').name('p').check('delete').allowed()",
            false,
            true,
        ),
        (
            "authorizer.group('').resource('pods').subresource('eviction').check('create').allowed()",
            false,
            true,
        ),
        ("authorizer.requestResource.check('create').allowed()", false, true),
        (
            "authorizer.serviceAccount('a', 'b').group('').resource('pods').check('get').allowed()",
            false,
            false,
        ),
        ("authorizer.path('/healthz').check('get').allowed()", false, false),
        ("authorizer.group('').resource('pods').check('get').errored()", false, false),
    ] {
        assert_eq!(evaluate("alice", &[], source), Ok(json!(alice)), "{source}");
        assert_eq!(evaluate("bob", &[], source), Ok(json!(bob)), "{source}");
    }
}

#[test]
fn what_the_request_says_can_be_read() {
    assert_eq!(plain("request.userInfo.username + request.operation"), Ok(json!("aliceCREATE")));
    assert_eq!(plain("request.namespace + '/' + request.resource.resource"), Ok(json!("default/configmaps")));
    assert_eq!(plain("request.dryRun"), Ok(json!(false)));
    assert_eq!(plain("int(params.data['n1']) >= 100"), Ok(json!(true)));
}

#[test]
fn what_cannot_run_is_refused_when_it_is_compiled() {
    let declared = Declared { authorizer: true, ..Declared::default() };
    let bool_only = [Type::Bool];
    for (source, wanted, problem) in [
        ("object.x == 1", &bool_only[..], None),
        ("object.items.all(i, i.x > 0)", &bool_only, None),
        ("object.x == 1", &[Type::String], Some("must evaluate to string but got bool")),
        (
            "Object{}",
            &[],
            Some(
                "compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')\n | Object{}\n | ......^",
            ),
        ),
    ] {
        assert_eq!(Expression::compile(source, &declared, wanted).problem(), problem, "{source}");
    }
}
