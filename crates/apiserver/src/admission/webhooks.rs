//! All webhooks of the cluster: their order, calling them, and the failure policy.

use std::sync::Arc;

use futures::future::join_all;
use serde_json::Value;

use super::endpoints::Caller;
use super::errors::{Failure, denied, internal, no_dry_run};
use super::hook::Hook;
use super::mutation::Reinvocation;
use super::patch::{self, Problem};
use super::request::{Kind, Operation, Request};
use super::review::{Review, Verdict, new_uid, verdict};
use super::rules::is_exempt;
use crate::attributes::Attributes;
use crate::error::ApiResult;

/// The webhooks of all configurations, compiled. Rebuilt when a configuration changes.
#[derive(Default)]
pub(crate) struct Webhooks {
    mutating: Vec<Hook>,
    validating: Vec<Hook>,
    caller: Arc<Caller>,
}

impl Webhooks {
    /// Reads the configurations. Webhooks are called by the name of their configuration, then in the order in it.
    pub(crate) fn compile<'a>(
        mutating: impl IntoIterator<Item = &'a Value>,
        validating: impl IntoIterator<Item = &'a Value>,
        caller: Arc<Caller>,
    ) -> Self {
        Self { mutating: hooks(mutating), validating: hooks(validating), caller }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Whether any rule names such a request. If not, `mutate` and `validate` would do nothing.
    pub(crate) fn any_match(&self, attributes: &Attributes, kind: &Kind, operation: Operation) -> bool {
        self.mutating.iter().chain(&self.validating).any(|hook| hook.rules_match(attributes, operation))
            && !is_exempt(attributes, kind)
    }

    /// Runs the mutating webhooks one after another; in the second pass only those that are to see once more what others
    /// made of the object. `object` is null where there is none (deletes); defaults are not filled in after patches, that
    /// is up to the server.
    pub(super) async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
        reinvocation: &mut Reinvocation<usize>,
    ) -> ApiResult<()> {
        if self.mutating.is_empty() || is_exempt(request.attributes, request.kind) {
            return Ok(());
        }
        reinvocation.start(object);
        for (index, hook) in self.mutating.iter().enumerate() {
            if !reinvocation.is_due(&index) || !hook.concerns(request, object)? {
                continue;
            }
            if self.mutate_once(hook, request, object, warnings).await? {
                reinvocation.changed();
            }
            if hook.reinvoke {
                reinvocation.may_see_again(index);
            }
        }
        reinvocation.finish(object);
        Ok(())
    }

    /// Runs the validating webhooks, all at once. The first in order that refuses decides the error.
    pub(crate) async fn validate(
        &self,
        request: &Request<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        if self.validating.is_empty() || is_exempt(request.attributes, request.kind) {
            return Ok(());
        }
        let mut concerned = Vec::new();
        for hook in &self.validating {
            if hook.concerns(request, object)? {
                concerned.push(hook);
            }
        }
        let calls = concerned.iter().map(|hook| async {
            let mut own_warnings = Vec::new();
            let result = self.ask(hook, request, object, false, &mut own_warnings).await;
            (judge(hook, result.map(|_| ())), own_warnings)
        });
        let mut outcome = Ok(());
        for (result, own_warnings) in join_all(calls).await {
            warnings.extend(own_warnings);
            outcome = outcome.and(result.map(|_| ()));
        }
        outcome
    }

    /// Whether the webhook changed the object.
    async fn mutate_once(
        &self,
        hook: &Hook,
        request: &Request<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<bool> {
        let verdict = self.ask(hook, request, object, true, warnings).await;
        let changed = verdict.and_then(|verdict| apply(hook, &verdict, object));
        Ok(judge(hook, changed)?.unwrap_or(false))
    }

    /// Asks one webhook; the verdict is one that allows.
    async fn ask(
        &self,
        hook: &Hook,
        request: &Request<'_>,
        object: &Value,
        mutating: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Failure> {
        if request.dry_run {
            match hook.side_effects.as_deref() {
                None => return Err(Failure::Calling("Webhook SideEffects is nil".to_string())),
                Some("None" | "NoneOnDryRun") => {}
                Some(_) => return Err(Failure::Final(no_dry_run(&hook.name))),
            }
        }
        let version = hook.version.ok_or_else(|| {
            let problem = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Calling(format!("could not create admission objects: {problem}"))
        })?;
        let uid = new_uid();
        let review = Review::new(version, &uid, request, object);
        let answer = self.caller.call(hook, &review).await;
        let answer =
            answer.map_err(|problem| Failure::Calling(format!("failed to call webhook: {problem}")))?;
        let verdict = verdict(&answer, version, &uid, mutating)
            .map_err(|problem| Failure::Calling(format!("received invalid webhook response: {problem}")))?;
        warnings.extend(verdict.warnings.iter().cloned());
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(Failure::Final(denied(&hook.name, verdict.status.as_ref())))
        }
    }
}

fn hooks<'a>(configurations: impl IntoIterator<Item = &'a Value>) -> Vec<Hook> {
    let mut configurations: Vec<&Value> = configurations.into_iter().collect();
    configurations.sort_by_key(|c| c.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default());
    configurations
        .into_iter()
        .flat_map(|c| c["webhooks"].as_array().into_iter().flatten())
        .map(Hook::parse)
        .collect()
}

/// Applies the patch of a webhook and says whether that changed anything.
fn apply(hook: &Hook, verdict: &Verdict, object: &mut Value) -> Result<bool, Failure> {
    if verdict.patch.is_empty() {
        return Ok(false);
    }
    let failed = |problem| match problem {
        Problem::Undecodable(why) => {
            Failure::Calling(format!("received undecodable patch in webhook response: {why}"))
        }
        Problem::DoesNotApply(why) | Problem::TestFailed(why) => Failure::Final(internal(why)),
    };
    let operations = patch::decode(&verdict.patch).map_err(failed)?;
    if operations.is_empty() {
        return Ok(false);
    }
    if object.is_null() {
        return Err(Failure::Final(internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            hook.name
        ))));
    }
    if verdict.patch_type != "JSONPatch" {
        return Err(Failure::Calling(format!("unsupported patch type {:?}", verdict.patch_type)));
    }
    patch::apply(object, &operations).map_err(failed)
}

/// The failure policy: what failed to be called is an error of the request, or as if it had not been asked.
fn judge<T>(hook: &Hook, result: Result<T, Failure>) -> ApiResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Failure::Final(error)) => Err(error),
        Err(Failure::Calling(why)) if hook.fail_closed => {
            Err(internal(format!("failed calling webhook {:?}: {why}", hook.name)))
        }
        Err(Failure::Calling(why)) => {
            tracing::warn!(webhook = hook.name, "failed calling webhook, failing open: {why}");
            Ok(None)
        }
    }
}
