//! pods/eviction: the budget rules, decided purely, and the writes that follow. Rules have the numbers of `docs/eviction-rules.md`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::{DeleteOptions, check_preconditions, delete_object};
use super::{Call, decode, errors, metadata};
use crate::admission::Operation;
use crate::clock::rfc3339;
use crate::error::{ApiError, ApiResult};
use crate::request::dry_run;
use crate::response::{self, ServerResponse};
use crate::selectors::LabelSelector;
use crate::store::{Key, Object, WriteError};

/// A budget may remember so many pods that are on their way out; more means its controller is not keeping up.
const MAX_DISRUPTED_PODS: usize = 2000;
const CONFLICT_TRIES: usize = 20;

/// What the budgets say to an eviction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// Delete, without touching any budget. `pin` is set where the pod must not have changed since.
    Delete {
        pin: bool,
    },
    /// Take one disruption from this budget, then delete.
    Spend {
        budget: usize,
    },
    Refuse(ApiError),
}

/// Rules 2 to 7: which budgets match, and whether they allow it. `budgets` are those of the pod's namespace.
pub(crate) fn judge(pod: &Value, budgets: &[Value]) -> Verdict {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed" | "Pending") || metadata::is_deleting(pod) {
        return Verdict::Delete { pin: phase == "Pending" && !metadata::is_deleting(pod) };
    }
    let labels = &pod["metadata"]["labels"];
    let mut matching = budgets.iter().enumerate().filter(|(_, budget)| {
        let selector = &budget["spec"]["selector"];
        !selector.is_null()
            && LabelSelector::from_object(Some(selector))
                .is_ok_and(|selector| selector.matches_labels(labels))
    });
    let Some((index, budget)) = matching.next() else {
        return Verdict::Delete { pin: false };
    };
    if matching.next().is_some() {
        return Verdict::Refuse(several_budgets());
    }
    if !is_ready(pod) && allows_unhealthy(budget) {
        return Verdict::Delete { pin: true };
    }
    match check_budget(budget) {
        Ok(()) => Verdict::Spend { budget: index },
        Err(error) => Verdict::Refuse(error),
    }
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .is_some_and(|list| list.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Rule 5: whether a running pod that is not ready may go without being counted.
fn allows_unhealthy(budget: &Value) -> bool {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    match budget["spec"]["unhealthyPodEvictionPolicy"].as_str() {
        Some("AlwaysAllow") => true,
        None | Some("IfHealthyBudget") => {
            number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0
        }
        Some(_) => false,
    }
}

/// Rule 6, in its order.
fn check_budget(budget: &Value) -> Result<(), ApiError> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let name = metadata::text(budget, "name");
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
        let message = format!("The disruption budget {name} is still being processed by the server.");
        let mut error = ApiError::new(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
        )
        .with_details(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]}));
        error.retry_after = Some(10);
        return Err(error);
    }
    let forbidden = |why: &str, cause: &str| {
        let message = format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
        ApiError::new(403, "Forbidden", format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}"))
            .with_details(json!({
                "name": name, "group": "policy", "kind": "poddisruptionbudget",
                "causes": [{"reason": "DisruptionBudget", "message": message}],
            }))
    };
    if number("disruptionsAllowed") < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(forbidden(why, why));
    }
    if status["disruptedPods"].as_object().map_or(0, |pods| pods.len()) > MAX_DISRUPTED_PODS {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        ));
    }
    if number("disruptionsAllowed") == 0 {
        return Err(violated(budget));
    }
    Ok(())
}

/// Rule 7: the refusal names the budget and what it lacks. A failed sync goes first, as the counts are then not to be
/// trusted.
fn violated(budget: &Value) -> ApiError {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let name = metadata::text(budget, "name");
    let condition = status["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False"));
    let text = |field: &str| condition.and_then(|c| c[field].as_str()).unwrap_or_default();
    let (reason, said) = (text("reason"), text("message"));
    let message = if reason == "SyncFailed" && !said.is_empty() {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {said}"
        )
    } else if number("currentHealthy") <= number("desiredHealthy") {
        format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number("desiredHealthy"),
            number("currentHealthy")
        )
    } else if !said.is_empty() {
        format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {said}")
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently")
    };
    ApiError::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        .with_details(json!({"causes": [{"reason": "DisruptionBudget", "message": message}]}))
}

/// Rule 3: more than one budget is never resolved by the server.
fn several_budgets() -> ApiError {
    ApiError::new(
        500,
        "",
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )
}

/// Rule 8: one disruption less, and the pod remembered until it is seen to be gone.
fn spend(budget: &mut Value, pod: &str, now: Timestamp) {
    let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or_default() - 1;
    budget["status"]["disruptionsAllowed"] = left.into();
    budget["status"]["disruptedPods"][pod] = rfc3339(now).into();
    if left == 0 {
        set_condition(
            budget,
            json!({
                "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
                "observedGeneration": budget["status"]["observedGeneration"], "lastTransitionTime": rfc3339(now),
            }),
        );
    }
}

/// Puts a condition in the place of the one of its type; the transition time stays if the status does.
fn set_condition(object: &mut Value, mut condition: Value) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Value::Array(list) = conditions {
        match list.iter_mut().find(|c| c["type"] == condition["type"]) {
            Some(old) => {
                if old["status"] == condition["status"] {
                    condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
                }
                *old = condition;
            }
            None => list.push(condition),
        }
    }
}

pub(crate) async fn create(call: &mut Call<'_>) -> ApiResult<ServerResponse> {
    let mut eviction = decode::body_of(call, "Eviction")?;
    if eviction["apiVersion"] == "policy/v1beta1" {
        // The same object by its older name; clients still send it.
        eviction["apiVersion"] = "policy/v1".into();
    }
    decode::expect_gvk(&mut eviction, "policy/v1", "Eviction")?;
    let namespace = metadata::text(&eviction, "namespace");
    if !namespace.is_empty() && namespace != call.namespace() {
        return Err(errors::namespace_mismatch());
    }
    let given = metadata::text(&eviction, "name");
    if given != call.name() {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let options = options(call, &eviction)?;
    call.server.mutate(call, Operation::Create, &mut eviction, None, options.dry_run).await?;
    call.server.admit(call, Operation::Create, Some(&eviction), None, options.dry_run).await?;
    let key = call.key();
    let pods = call.kind.clone();
    for _ in 0..CONFLICT_TRIES {
        let Some(found) = call.server.store.get(&pods.storage, &key) else {
            return Err(errors::not_found(&pods, call.name()));
        };
        let pod = found.value();
        let budgets = call.server.store.list("policy/poddisruptionbudgets", Some(call.namespace()));
        let values: Vec<Value> = budgets.objects.iter().map(|b| b.value()).collect();
        let mut options = options.clone();
        match judge(&pod, &values) {
            Verdict::Refuse(error) => return Err(error),
            Verdict::Delete { pin } => {
                if pin && options.resource_version.is_none() {
                    options.resource_version = Some(found.revision.to_string());
                }
            }
            Verdict::Spend { budget } => {
                if !options.dry_run && !spend_one(call, &budgets.objects[budget]) {
                    // The budget changed meanwhile: judge again.
                    continue;
                }
            }
        }
        return evict(call, &key, &options).await;
    }
    Err(errors::modified(&pods, call.name()))
}

/// Writes one disruption less into the budget; false if somebody else wrote it first.
fn spend_one(call: &Call<'_>, budget: &Object) -> bool {
    let registry = call.server.registry();
    let Some(kind) = registry.find("policy", "v1", "poddisruptionbudgets") else { return false };
    let before = budget.value();
    let mut after = before.clone();
    spend(&mut after, call.name(), call.server.now());
    call.server.own_fields(kind, Some(&before), &mut after, "kube-apiserver", "status");
    call.server.store.update(&kind.storage, &budget.key, budget.revision, after).is_ok()
}

/// Rule 10: the pod says why it goes, then it is deleted.
async fn evict(call: &mut Call<'_>, key: &Key, options: &DeleteOptions) -> ApiResult<ServerResponse> {
    let mut options = options.clone();
    if !options.dry_run {
        mark(call, key, &mut options)?;
    }
    delete_object(call, key, &options, true).await?;
    Ok(response::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    ))
}

/// Sets the condition; a resourceVersion that must hold moves on with it.
fn mark(call: &Call<'_>, key: &Key, options: &mut DeleteOptions) -> ApiResult<()> {
    let pods = &call.kind;
    // The version before the condition counts, and an empty one is none.
    options.resource_version.take_if(|version| version.is_empty());
    loop {
        let Some(found) = call.server.store.get(&pods.storage, key) else {
            return Err(errors::not_found(pods, call.name()));
        };
        let mut pod = found.value();
        check_preconditions("Pod", "Pod", "", &pod, options)?;
        set_condition(
            &mut pod,
            json!({
                "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null,
                "lastTransitionTime": rfc3339(call.server.now()),
            }),
        );
        if pod == found.value() {
            return Ok(());
        }
        match call.server.store.update(&pods.storage, key, found.revision, pod) {
            Ok(marked) => {
                if options.resource_version.is_some() {
                    options.resource_version = Some(marked.revision.to_string());
                }
                return Ok(());
            }
            Err(WriteError::NotFound) => return Err(errors::not_found(pods, call.name())),
            Err(WriteError::TooLarge(size)) => return Err(errors::too_large(size)),
            Err(WriteError::Conflict | WriteError::Exists) => {}
        }
    }
}

/// Rules 1 and 9: delete options of the body, and dryRun from body and query, which must agree.
fn options(call: &Call<'_>, eviction: &Value) -> ApiResult<DeleteOptions> {
    let mut options = match eviction.get("deleteOptions") {
        None | Some(Value::Null) => DeleteOptions::default(),
        Some(given) => DeleteOptions::parse(given)?,
    };
    let in_query = dry_run(call.query.all("dryRun"), "CreateOptions")?;
    let in_body = options.dry_run;
    if in_query && !in_body && eviction["deleteOptions"]["dryRun"].is_array()
        || in_body && !in_query && !call.query.all("dryRun").is_empty()
    {
        return Err(ApiError::bad_request("Non-matching dry-run options in request and content"));
    }
    options.dry_run = in_query || in_body;
    Ok(options)
}

#[cfg(test)]
#[path = "eviction_tests.rs"]
mod tests;
