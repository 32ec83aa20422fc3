//! Custom resources: what a CustomResourceDefinition declares, whether it is acceptable, and how objects of
//! the kinds it declares are pruned, defaulted and validated.
//!
//! Start with [`CustomKind`]: one per version of a definition, with everything compiled once. A request runs
//! [`CustomKind::prune`] and [`CustomKind::default`], and then one of the `validate_*` methods.
//! Everything here is pure and synchronous.

mod approval;
mod cel;
mod cel_scope;
mod cel_value;
mod correlate;
mod defaulting;
mod definition;
mod definition_version;
mod formats;
mod jsonpath;
mod lists;
mod objectmeta;
mod openapi_rules;
mod owned_schema;
mod pruning;
mod resource;
mod scalars;
mod scale;
mod schema_build;
mod status;
mod structural;
mod values;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use crate::schema::{NodeId, SchemaRef, SchemaSet};

pub(crate) use definition::{default_definition, validate_definition, validate_definition_update};
pub(crate) use jsonpath::{JsonPath, print as print_json_path_value};
pub(crate) use status::{ClaimedNames, compute_status, is_established};

pub(crate) use cel::TYPES;
pub(crate) use cel_scope::unbound;
pub(crate) use cel_value::RESERVED;

use cel::Programs;

/// The compiled `pattern` of every node that has one.
type Patterns = HashMap<NodeId, Regex>;

/// One version of a custom resource, ready to serve.
#[derive(Debug)]
pub(crate) struct CustomKind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub served: bool,
    pub storage: bool,
    /// The `Warning` header text of a deprecated version.
    pub deprecation_warning: Option<String>,
    pub schema: SchemaSet,
    pub root: NodeId,
    /// The root with apiVersion, kind and metadata, for patches and field ownership.
    owned_root: NodeId,
    pub has_status: bool,
    pub scale: Option<ScalePaths>,
    pub columns: Vec<PrinterColumn>,
    pub selectable_fields: Vec<String>,
    /// `spec.preserveUnknownFields`, which only definitions from old times may still carry.
    pub preserve_unknown_fields: bool,
    patterns: Patterns,
    programs: Programs,
}

/// Where the scale subresource reads and writes, as simple JSON paths (`.spec.replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// An entry of `additionalPrinterColumns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrinterColumn {
    pub name: String,
    pub ty: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub path: JsonPath,
}

impl CustomKind {
    /// All versions of a definition that passed validation, in the order written.
    pub(crate) fn parse(crd: &Value) -> Vec<CustomKind> {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
        versions.into_iter().flatten().map(|version| Self::parse_version(crd, version)).collect()
    }

    fn parse_version(crd: &Value, version: &Value) -> CustomKind {
        let names = &crd["spec"]["names"];
        let open_api_v3_schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Null);
        let mut schema = SchemaSet::default();
        let root = schema_build::build(&mut schema, &open_api_v3_schema);
        let patterns = compile_patterns(&schema);
        let programs = Programs::compile(&schema);
        let owned_root = owned_schema::build(&mut schema, root);
        let group = text(&crd["spec"]["group"]);
        let name = text(&version["name"]);
        let kind = text(&names["kind"]);
        let singular = match names["singular"].as_str() {
            Some(singular) if !singular.is_empty() => singular.to_string(),
            _ => kind.to_lowercase(),
        };
        let list_kind = match names["listKind"].as_str() {
            Some(list_kind) if !list_kind.is_empty() => list_kind.to_string(),
            _ => format!("{kind}List"),
        };
        let deprecation_warning =
            (version["deprecated"] == true).then(|| match version["deprecationWarning"].as_str() {
                Some(warning) => warning.to_string(),
                None => format!("{group}/{name} {kind} is deprecated"),
            });
        let subresources = &version["subresources"];
        let scale = subresources.get("scale").filter(|s| s.is_object()).map(|scale| ScalePaths {
            spec_replicas: text(&scale["specReplicasPath"]),
            status_replicas: text(&scale["statusReplicasPath"]),
            label_selector: scale["labelSelectorPath"].as_str().filter(|p| !p.is_empty()).map(str::to_string),
        });
        let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        CustomKind {
            plural: text(&names["plural"]),
            singular,
            list_kind,
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            namespaced: crd["spec"]["scope"] == "Namespaced",
            served: version["served"] == true,
            storage: version["storage"] == true,
            deprecation_warning,
            has_status: subresources.get("status").is_some_and(Value::is_object),
            scale,
            columns: columns.map(PrinterColumn::parse).collect(),
            selectable_fields: selectable.map(|field| text(&field["jsonPath"])).collect(),
            preserve_unknown_fields: crd["spec"]["preserveUnknownFields"] == true,
            group,
            version: name,
            kind,
            schema,
            root,
            owned_root,
            patterns,
            programs,
        }
    }

    pub(crate) fn schema_root(&self) -> SchemaRef<'_> {
        self.schema.at(self.root)
    }

    /// The whole object's schema, metadata included.
    pub(crate) fn owned_schema(&self) -> SchemaRef<'_> {
        self.schema.at(self.owned_root)
    }

    pub(crate) fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

impl PrinterColumn {
    fn parse(column: &Value) -> PrinterColumn {
        let path = text(&column["jsonPath"]);
        PrinterColumn {
            name: text(&column["name"]),
            ty: text(&column["type"]),
            format: text(&column["format"]),
            description: match column["description"].as_str() {
                Some(description) if !description.is_empty() => description.to_string(),
                _ => format!("Custom resource definition column (in JSONPath format): {path}"),
            },
            priority: column["priority"].as_i64().unwrap_or(0),
            path: JsonPath::parse(&path),
        }
    }
}

fn compile_patterns(schema: &SchemaSet) -> Patterns {
    let mut patterns = HashMap::new();
    for (index, node) in schema.nodes.iter().enumerate() {
        let pattern = node.rules.as_ref().and_then(|rules| rules.pattern.as_ref());
        if let Some(regex) = pattern.and_then(|pattern| Regex::new(pattern).ok()) {
            patterns.insert(NodeId(index as u32), regex);
        }
    }
    patterns
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}
