//! The parameters of a binding: objects of the kind that the policy names.

use serde_json::Value;

use crate::admission::request::Lookup;
use crate::selectors::LabelSelector;

#[derive(Debug)]
pub(super) struct ParamKind {
    api_version: String,
    kind: String,
}

impl ParamKind {
    pub(super) fn parse(kind: &Value) -> Option<Self> {
        let text = |name: &str| kind[name].as_str().unwrap_or_default().to_string();
        kind.is_object().then(|| Self { api_version: text("apiVersion"), kind: text("kind") })
    }

    /// Why no object of the kind can be found.
    pub(super) fn problem(&self, lookup: &dyn Lookup) -> Option<String> {
        let known = lookup.kind(&self.api_version, &self.kind).is_some();
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        let sep = if group.is_empty() { "/" } else { "" };
        let group = if group.is_empty() { String::new() } else { format!("{group}/") };
        (!known).then(|| {
            format!(
                "failed to find resource referenced by paramKind: '{sep}{group}{version}, Kind={}'",
                self.kind
            )
        })
    }
}

#[derive(Debug)]
pub(super) struct ParamRef {
    name: String,
    namespace: String,
    selector: Option<Result<LabelSelector, String>>,
    deny_if_missing: bool,
}

impl ParamRef {
    pub(super) fn parse(reference: &Value) -> Option<Self> {
        let text = |name: &str| reference[name].as_str().unwrap_or_default().to_string();
        let selector = reference.get("selector").filter(|selector| selector.is_object());
        reference.is_object().then(|| Self {
            name: text("name"),
            namespace: text("namespace"),
            selector: selector.map(|selector| LabelSelector::from_object(Some(selector))),
            deny_if_missing: reference["parameterNotFoundAction"] == "Deny",
        })
    }

    /// The objects to evaluate the policy with, once for each. `namespace` is that of the request.
    pub(super) fn collect(
        &self,
        kind: &ParamKind,
        namespace: &str,
        lookup: &dyn Lookup,
    ) -> Result<Vec<Value>, String> {
        let Some(row) = lookup.kind(&kind.api_version, &kind.kind) else {
            return Err(kind.problem(lookup).unwrap_or_default());
        };
        let namespace = match (row.namespaced, self.namespace.as_str()) {
            (true, "") if namespace.is_empty() => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_string(),
                );
            }
            (true, "") => namespace,
            (true, own) => own,
            (false, "") => "",
            (false, _) => {
                return Err(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_string()
                );
            }
        };
        let found: Vec<Value> = match &self.selector {
            None => lookup.object(&row, namespace, &self.name).into_iter().collect(),
            Some(selector) => {
                let selector = selector.as_ref().map_err(Clone::clone)?;
                let all = lookup.objects(&row, row.namespaced.then_some(namespace));
                all.into_iter().filter(|o| selector.matches_labels(&o["metadata"]["labels"])).collect()
            }
        };
        if found.is_empty() && self.deny_if_missing {
            return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_string());
        }
        Ok(found)
    }
}
