//! `namespaceSelector` and `objectSelector`, of webhooks and of policies.

use serde_json::{Value, json};

use super::errors::internal;
use super::request::{Operation, Request};
use crate::error::{ApiError, ApiResult};
use crate::selectors::LabelSelector;

#[derive(Debug)]
pub(super) struct Selectors {
    namespace: Result<LabelSelector, String>,
    object: Result<LabelSelector, String>,
}

impl Selectors {
    /// Those of a webhook, or of the match resources of a policy.
    pub(super) fn parse(parent: &Value) -> Self {
        Self {
            namespace: LabelSelector::from_object(parent.get("namespaceSelector")),
            object: LabelSelector::from_object(parent.get("objectSelector")),
        }
    }

    /// Whether both select the request. One that does not decides, even if the other cannot be told.
    pub(super) fn select(&self, request: &Request<'_>, object: &Value) -> ApiResult<bool> {
        let namespace = self.namespace_matches(request, object);
        if matches!(namespace, Ok(false)) {
            return Ok(false);
        }
        let selected = self.object_matches(request, object);
        if matches!(selected, Ok(false)) {
            return Ok(false);
        }
        namespace?;
        selected
    }

    /// Objects of the cluster are never exempted by namespace, except namespaces, which have labels themselves.
    fn namespace_matches(&self, request: &Request<'_>, object: &Value) -> ApiResult<bool> {
        let a = request.attributes;
        let namespace = request.namespace(object);
        if namespace.is_empty() && a.resource != "namespaces" {
            return Ok(true);
        }
        let selector = self.namespace.as_ref().map_err(internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        let writes_namespace = a.resource == "namespaces"
            && a.subresource.is_empty()
            && matches!(request.operation, Operation::Create | Operation::Update);
        if writes_namespace {
            return Ok(selector.matches_labels(&object["metadata"]["labels"]));
        }
        match request.lookup.namespace(namespace) {
            Some(found) => Ok(selector.matches_labels(&found["metadata"]["labels"])),
            None => Err(ApiError::new(404, "NotFound", format!("namespaces {namespace:?} not found"))
                .with_details(json!({"name": namespace, "kind": "namespaces"}))),
        }
    }

    /// The object before or the object after: one that is about to lose its label is still concerned.
    fn object_matches(&self, request: &Request<'_>, object: &Value) -> ApiResult<bool> {
        let selector = self.object.as_ref().map_err(internal)?;
        let matches = |object: &Value| selector.matches_labels(&object["metadata"]["labels"]);
        Ok(selector.is_empty() || (object.is_object() && matches(object)) || request.old.is_some_and(matches))
    }
}
