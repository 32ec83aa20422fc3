//! Server-side printing: `meta.k8s.io/v1` Tables, as `kubectl get` shows them.
//!
//! A [`Printer`] knows the columns of one kind and makes a row of each object; lists and watch events use the
//! same rows. `now` is an argument, because ages are part of the rows.

mod age;
mod autoscaling;
mod cells;
mod custom;
mod kinds;
mod objects;
mod pods;
mod workloads;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::crd::CustomKind;

#[cfg(test)]
pub(crate) use age::human_duration;
pub(crate) use cells::selector as selector_text;

/// What a row carries of its object, `includeObject` of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Reads the query parameter; none for a value that does not exist.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A column of a built-in kind. Columns of priority above 0 show with `-o wide`.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    ty: &'static str,
    priority: i64,
}

/// Makes the cells of one row, one for each column.
type Cells = fn(&Value, Timestamp) -> Vec<Value>;

struct Layout {
    columns: &'static [Column],
    cells: Cells,
}

/// How objects of one kind are printed.
pub(crate) struct Printer<'a> {
    way: Way<'a>,
}

enum Way<'a> {
    BuiltIn(Layout),
    Custom(&'a CustomKind),
}

impl<'a> Printer<'a> {
    /// The printer of a built-in resource (`""`, `pods`); resources without columns of their own show name and
    /// creation time.
    pub(crate) fn built_in(group: &str, resource: &str) -> Printer<'static> {
        Printer { way: Way::BuiltIn(kinds::layout(group, resource)) }
    }

    pub(crate) fn custom(kind: &'a CustomKind) -> Printer<'a> {
        Printer { way: Way::Custom(kind) }
    }

    /// `columnDefinitions`.
    pub(crate) fn columns(&self) -> Value {
        match &self.way {
            Way::BuiltIn(layout) => layout.columns.iter().map(|column| column.definition()).collect(),
            Way::Custom(kind) => custom::columns(kind),
        }
    }

    /// An entry of `rows`.
    pub(crate) fn row(&self, object: &Value, now: Timestamp, include: IncludeObject) -> Value {
        let cells = match &self.way {
            Way::BuiltIn(layout) => (layout.cells)(object, now),
            Way::Custom(kind) => custom::cells(kind, object, now),
        };
        let mut row = json!({"cells": cells});
        if let Some(condition) = completed(object) {
            row["conditions"] = json!([condition]);
        }
        match include {
            IncludeObject::None => row["object"] = Value::Null,
            IncludeObject::Object => row["object"] = object.clone(),
            IncludeObject::Metadata => {
                row["object"] = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
                });
            }
        }
        row
    }
}

impl Column {
    fn definition(self) -> Value {
        let is_name = self.name == "Name";
        json!({
            "name": self.name, "type": self.ty, "format": if is_name { "name" } else { "" },
            "description": self.name, "priority": self.priority,
        })
    }
}

/// Finished pods are marked, so that clients may leave them out.
fn completed(object: &Value) -> Option<Value> {
    if object["kind"] != "Pod" {
        return None;
    }
    let (reason, message) = match object["status"]["phase"].as_str() {
        Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
        Some("Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
