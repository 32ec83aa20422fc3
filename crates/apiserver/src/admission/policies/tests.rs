//! What the recordings of the real server cannot show: versions of one resource, and policies around webhooks.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::admission::mutate;
use crate::admission::request::Request;
use crate::admission::tests::{Case, Cluster, URL, configuration, patching, respond, webhook};
use crate::admission::webhooks::Webhooks;
use crate::admission::{Caller, in_process};

const TWO_VERSIONS: Cluster = Cluster(&["v1", "v2"]);

fn policy(version: &str, match_policy: &str, spec: Value) -> Value {
    let rule = json!({"apiGroups": [""], "apiVersions": [version], "operations": ["CREATE"], "resources": ["configmaps"]});
    let mut policy = json!({"metadata": {"name": "p"}, "spec": spec});
    policy["spec"]["matchConstraints"] = json!({"matchPolicy": match_policy, "resourceRules": [rule]});
    policy
}

fn binding() -> Value {
    json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}})
}

#[test]
fn an_equivalent_request_is_judged_in_the_version_that_the_policy_names() {
    let case = Case::create();
    let told = |version: &str, match_policy: &str| {
        let spec = json!({"validations": [
            {"expression": "false", "messageExpression": "object.apiVersion + ' ' + request.resource.version + ' ' + request.requestResource.version"}
        ]});
        let policies = ValidatingPolicies::compile(&[policy(version, match_policy, spec)], &[binding()]);
        let request: Request<'_> = case.request(&TWO_VERSIONS);
        let denied = policies.validate(&request, &case.object, &mut Vec::new());
        denied.err().map(|error| error.message.rsplit(": ").next().unwrap_or_default().to_string())
    };
    assert_eq!(told("v1", "Exact").as_deref(), Some("v1 v1 v1"));
    assert_eq!(told("v2", "Equivalent").as_deref(), Some("v2 v2 v1"));
    assert_eq!(told("v2", "Exact"), None);
    assert_eq!(told("v3", "Equivalent"), None);
}

/// The config map after a policy that notes what a later webhook adds, as this policy says it wants to be reinvoked.
async fn noted(reinvocation: &str) -> Value {
    let patch = "[JSONPatch{op: 'add', path: '/data/seen', value: 'late' in object.data ? 'true' : 'false'}]";
    let spec = json!({
        "reinvocationPolicy": reinvocation,
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    });
    let policies = MutatingPolicies::compile(&[policy("v1", "Exact", spec)], &[binding()]);
    let caller = Caller::default();
    let late = json!([{"op": "add", "path": "/data/late", "value": "x"}]);
    caller.register_url(
        URL,
        in_process(move |review| std::future::ready(Ok(respond(&review, patching(late.clone()))))),
    );
    let hooks = configuration("c", &[webhook("h.example.com", json!({}))]);
    let webhooks = Webhooks::compile([&hooks], [], Arc::new(caller));
    let case = Case::create();
    let mut object = case.object.clone();
    let target = Target { schema: None, default: &|_| () };
    let request = case.request(&TWO_VERSIONS);
    mutate(&policies, &webhooks, &request, &mut object, &target, &mut Vec::new()).await.unwrap();
    object["data"].take()
}

#[tokio::test]
async fn a_policy_sees_again_what_a_webhook_changed_if_it_wants_to() {
    assert_eq!(noted("Never").await, json!({"k": "v", "late": "x", "seen": "false"}));
    assert_eq!(noted("IfNeeded").await, json!({"k": "v", "late": "x", "seen": "true"}));
}

#[tokio::test]
async fn what_has_no_schema_cannot_be_merged() {
    let spec = json!({
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
    });
    let policies = MutatingPolicies::compile(&[policy("v1", "Exact", spec)], &[binding()]);
    let webhooks = Webhooks::default();
    let case = Case::create();
    let mut object = case.object.clone();
    let target = Target { schema: None, default: &|_| () };
    let request = case.request(&TWO_VERSIONS);
    let refused = mutate(&policies, &webhooks, &request, &mut object, &target, &mut Vec::new()).await;
    let message = "policy 'p' with binding 'b' denied request: error applying patch: the kind has no schema";
    assert_eq!(refused.unwrap_err().message, message);
}
