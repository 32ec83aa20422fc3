//! Admission: webhooks around every write, and nobody grants rights that they do not have.

use std::sync::Arc;

use serde_json::Value;

use super::Server;
use crate::admission::{self, Operation, Request, Webhooks};
use crate::auth::escalation::check_escalation;
use crate::error::ApiResult;
use crate::rest::Call;
use crate::store::Key;

const CONFIGURATIONS: [&str; 2] = [
    "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "admissionregistration.k8s.io/validatingwebhookconfigurations",
];

impl Server {
    fn webhooks(&self) -> Arc<Webhooks> {
        self.webhooks.get(&self.store, &CONFIGURATIONS, || {
            let [mutating, validating] = CONFIGURATIONS.map(|resource| {
                let objects = self.store.list(resource, None).objects;
                objects.iter().map(|object| object.value()).collect::<Vec<_>>()
            });
            Webhooks::compile(&mutating, &validating, self.endpoints.clone())
        })
    }

    /// Whether any webhook wants to hear of such a request.
    pub fn is_asked_about(&self, call: &Call<'_>, operation: Operation) -> bool {
        let webhooks = self.webhooks();
        !webhooks.is_empty() && webhooks.any_match(&call.attributes, &kind_of(call), operation)
    }

    fn namespace_labels(&self, namespace: &str) -> Option<Value> {
        let found = self.store.get("namespaces", &Key::new("", namespace))?;
        Some(found.value()["metadata"]["labels"].take())
    }

    /// Lets mutating webhooks change the object; true if one did.
    pub async fn mutate(
        &self,
        call: &mut Call<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> ApiResult<bool> {
        let webhooks = self.webhooks();
        if !webhooks.mutates() || !self.is_asked_about(call, operation) {
            return Ok(false);
        }
        let (kind, attributes) = (kind_of(call), call.attributes.clone());
        let before = object.clone();
        let labels = |namespace: &str| self.namespace_labels(namespace);
        let request = Request {
            attributes: &attributes,
            user: &call.user,
            kind: &kind,
            operation,
            old,
            options: &Value::Null,
            dry_run,
            namespace_labels: &labels,
        };
        webhooks.mutate(&request, object, &mut call.warnings).await?;
        Ok(*object != before)
    }

    /// Asks validating webhooks; for writes of roles also whether the caller may grant what they grant.
    pub async fn admit(
        &self,
        call: &mut Call<'_>,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        dry_run: bool,
    ) -> ApiResult<()> {
        if let Some(object) = object
            && call.kind.group == "rbac.authorization.k8s.io"
        {
            check_escalation(&call.user, &call.attributes, object, &self.rbac())?;
        }
        self.ask(call, operation, object, old, &Value::Null, dry_run).await
    }

    /// Webhooks on deletes see the object as the old one.
    pub async fn admit_delete(
        &self,
        call: &mut Call<'_>,
        object: &Value,
        options: &Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        self.ask(call, Operation::Delete, None, Some(object), options, dry_run).await
    }

    async fn ask(
        &self,
        call: &mut Call<'_>,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        options: &Value,
        dry_run: bool,
    ) -> ApiResult<()> {
        if !self.is_asked_about(call, operation) {
            return Ok(());
        }
        let (webhooks, kind, attributes) = (self.webhooks(), kind_of(call), call.attributes.clone());
        let labels = |namespace: &str| self.namespace_labels(namespace);
        let request = Request {
            attributes: &attributes,
            user: &call.user,
            kind: &kind,
            operation,
            old,
            options,
            dry_run,
            namespace_labels: &labels,
        };
        webhooks.validate(&request, object.unwrap_or(&Value::Null), &mut call.warnings).await
    }
}

/// The kind of the body: for most subresources that of the object, for some one of its own.
fn kind_of(call: &Call<'_>) -> admission::Kind {
    let row = &call.kind;
    match row.subresource(call.subresource()) {
        Some(own) if !own.version.is_empty() => {
            admission::Kind { group: own.group.into(), version: own.version.into(), kind: own.kind.clone() }
        }
        _ => {
            admission::Kind { group: row.group.clone(), version: row.version.clone(), kind: row.kind.clone() }
        }
    }
}
