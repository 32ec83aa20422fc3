//! Admission: policies and webhooks around every write, and nobody grants rights that they do not have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use serde_json::Value;

use super::Server;
use crate::admission::{
    self, Lookup, MutatingPolicies, Operation, Request, Target, ValidatingPolicies, Webhooks,
};
use crate::auth::Rbac;
use crate::auth::escalation::check_escalation;
use crate::error::ApiResult;
use crate::kinds::Kind;
use crate::rest::{Call, answer, prepare};
use crate::schema::builtin_kind;
use crate::store::Key;

const GROUP: &str = "admissionregistration.k8s.io";

/// Everything that is registered for admission, compiled.
#[derive(Default)]
pub(super) struct Registered {
    mutating_policies: MutatingPolicies,
    validating_policies: ValidatingPolicies,
    webhooks: Webhooks,
    is_empty: bool,
}

impl Registered {
    fn any_match(&self, call: &Call<'_>, operation: Operation) -> bool {
        !self.is_empty
            && (self.mutating_policies.any_match(&call.attributes, operation)
                || self.validating_policies.any_match(&call.attributes, operation)
                || self.webhooks.any_match(&call.attributes, &kind_of(call), operation))
    }
}

/// What is registered, and how many writes of registrations it takes into account.
#[derive(Default)]
pub(super) struct Registrations {
    writes: AtomicU64,
    compiled: RwLock<Option<(u64, Arc<Registered>)>>,
}

impl Registrations {
    /// Called after each write, so that a write that registers nothing costs the next one nothing.
    pub(super) fn written(&self, kind: &Kind) {
        if kind.group == GROUP {
            self.writes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Server {
    fn registered(&self) -> Arc<Registered> {
        let writes = self.registrations.writes.load(Ordering::Acquire);
        if let Some((at, compiled)) = &*self.registrations.compiled.read()
            && *at == writes
        {
            return compiled.clone();
        }
        let list = |resource: &str| -> Vec<Value> {
            let objects = self.store.list(&format!("{GROUP}/{resource}"), None).objects;
            objects.iter().map(|object| object.value()).collect()
        };
        let mut registered = Registered {
            mutating_policies: MutatingPolicies::compile(
                &list("mutatingadmissionpolicies"),
                &list("mutatingadmissionpolicybindings"),
            ),
            validating_policies: ValidatingPolicies::compile(
                &list("validatingadmissionpolicies"),
                &list("validatingadmissionpolicybindings"),
            ),
            webhooks: Webhooks::compile(
                &list("mutatingwebhookconfigurations"),
                &list("validatingwebhookconfigurations"),
                self.endpoints.clone(),
            ),
            is_empty: false,
        };
        registered.is_empty = registered.mutating_policies.is_empty()
            && registered.validating_policies.is_empty()
            && registered.webhooks.is_empty();
        let registered = Arc::new(registered);
        *self.registrations.compiled.write() = Some((writes, registered.clone()));
        registered
    }

    /// Whether any policy or webhook wants to hear of such a request.
    pub(crate) fn is_asked_about(&self, call: &Call<'_>, operation: Operation) -> bool {
        self.registered().any_match(call, operation)
    }

    /// Lets mutating policies and webhooks change the object; true if one did.
    pub(crate) async fn mutate(
        &self,
        call: &mut Call<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> ApiResult<bool> {
        let registered = self.registered();
        if !registered.any_match(call, operation) {
            return Ok(false);
        }
        let (kind, row, attributes) = (kind_of(call), call.kind.clone(), call.attributes.clone());
        let before = object.clone();
        let options = write_options(call, operation);
        let request = Request {
            attributes: &attributes,
            user: &call.user,
            kind: &kind,
            operation,
            old,
            options: &options,
            dry_run,
            lookup: self,
        };
        // Bodies of some subresources are kinds of their own.
        let is_own = kind.kind == row.kind;
        let schema =
            if is_own { row.schema_ref() } else { builtin_kind(&kind.group, &kind.version, &kind.kind) };
        let default = |object: &mut Value| {
            if is_own {
                prepare::default(&row, object);
            }
        };
        let target = Target { schema, default: &default };
        let Registered { mutating_policies, webhooks, .. } = &*registered;
        admission::mutate(mutating_policies, webhooks, &request, object, &target, &mut call.warnings).await?;
        Ok(*object != before)
    }

    /// Asks validating policies and webhooks; for writes of roles also whether the caller may grant what they grant.
    pub(crate) async fn admit(
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
        let options = write_options(call, operation);
        self.ask(call, operation, object, old, &options, dry_run).await
    }

    /// Policies and webhooks see the object of a delete as the old one.
    pub(crate) async fn admit_delete(
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
        let registered = self.registered();
        if !registered.any_match(call, operation) {
            return Ok(());
        }
        let (kind, attributes) = (kind_of(call), call.attributes.clone());
        let request = Request {
            attributes: &attributes,
            user: &call.user,
            kind: &kind,
            operation,
            old,
            options,
            dry_run,
            lookup: self,
        };
        let object = object.unwrap_or(&Value::Null);
        registered.validating_policies.validate(&request, object, &mut call.warnings)?;
        registered.webhooks.validate(&request, object, &mut call.warnings).await
    }
}

impl Lookup for Server {
    fn namespace(&self, name: &str) -> Option<Value> {
        Some(self.store.get("namespaces", &Key::new("", name))?.value())
    }

    fn rbac(&self) -> Arc<Rbac> {
        Self::rbac(self)
    }

    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.registry().by_kind(group, version, kind).cloned()
    }

    fn versions(&self, group: &str, resource: &str) -> Vec<String> {
        self.registry().iter().filter(|row| row.is(group, resource)).map(|row| row.version.clone()).collect()
    }

    fn object(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Value> {
        let found = self.store.get(&kind.storage, &Key::new(namespace, name))?;
        Some(answer::in_version(kind, found.value()))
    }

    fn objects(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Value> {
        let found = self.store.list(&kind.storage, namespace).objects;
        found.iter().map(|object| answer::in_version(kind, object.value())).collect()
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

/// What a write says of itself, where that is more than what it is.
fn write_options(call: &Call<'_>, operation: Operation) -> Value {
    let Some(manager) = call.query.get("fieldManager") else { return Value::Null };
    let mut options = admission::options_of(&call.attributes.verb, operation);
    options["fieldManager"] = manager.into();
    options
}
