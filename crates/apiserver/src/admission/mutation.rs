//! Everything that may change an object on its way in: policies, then webhooks, and both once more where one of them is to
//! see what others made of the object after it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policies::{MutatingPolicies, Target};
use super::request::Request;
use super::webhooks::Webhooks;
use crate::error::ApiResult;

/// Runs the mutating policies and webhooks. `object` is null where there is none (deletes).
pub(crate) async fn mutate(
    policies: &MutatingPolicies,
    webhooks: &Webhooks,
    request: &Request<'_>,
    object: &mut Value,
    target: &Target<'_>,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let (mut of_policies, mut of_webhooks) = (Reinvocation::default(), Reinvocation::default());
    policies.mutate(request, object, target, &mut of_policies)?;
    webhooks.mutate(request, object, warnings, &mut of_webhooks).await?;
    if of_policies.has_changed || of_webhooks.has_changed {
        of_policies.second_pass();
        of_webhooks.second_pass();
        policies.mutate(request, object, target, &mut of_policies)?;
        webhooks.mutate(request, object, warnings, &mut of_webhooks).await?;
    }
    Ok(())
}

/// Who of a family is to see the object again, because it was changed after they saw it.
pub(super) struct Reinvocation<Key> {
    again: BTreeSet<Key>,
    /// Those that want to be asked again if something changes from here on.
    seen: BTreeSet<Key>,
    /// The object as the family left it.
    last: Value,
    is_second: bool,
    has_changed: bool,
}

impl<Key> Default for Reinvocation<Key> {
    fn default() -> Self {
        Self {
            again: BTreeSet::new(),
            seen: BTreeSet::new(),
            last: Value::Null,
            is_second: false,
            has_changed: false,
        }
    }
}

impl<Key: Ord> Reinvocation<Key> {
    fn second_pass(&mut self) {
        self.is_second = true;
    }

    /// A pass of the family begins: what others changed since the last one counts.
    pub(super) fn start(&mut self, object: &Value) {
        if self.is_second && self.last != *object {
            self.again.append(&mut self.seen);
        }
    }

    pub(super) fn is_due(&self, key: &Key) -> bool {
        !self.is_second || self.again.contains(key)
    }

    pub(super) fn changed(&mut self) {
        self.has_changed = true;
        self.again.append(&mut self.seen);
    }

    pub(super) fn may_see_again(&mut self, key: Key) {
        self.seen.insert(key);
    }

    pub(super) fn finish(&mut self, object: &Value) {
        // Nobody asks unless somebody wants to see it again.
        if !self.is_second && !self.seen.is_empty() {
            self.last = object.clone();
        }
    }
}
