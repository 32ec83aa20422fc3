//! Turning stored objects into the form and version that was asked for.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::Call;
use crate::events;
use crate::kinds::{Kind, KindSchema};
use crate::negotiate::Form;
use crate::response::{self, ServerResponse};
use crate::server::Server;
use crate::store::Object;
use crate::table::{IncludeObject, Printer};

/// How a client wants to see objects of a kind.
#[derive(Clone)]
pub(crate) struct View {
    server: Arc<Server>,
    pub kind: Arc<Kind>,
    pub form: Form,
    include: IncludeObject,
}

impl View {
    pub(crate) fn of(call: &Call<'_>) -> Self {
        // How much of each object the rows of a table carry.
        let include = call.query.get("includeObject").and_then(IncludeObject::parse).unwrap_or_default();
        Self { server: call.server.clone(), kind: call.kind.clone(), form: call.form, include }
    }

    /// True when stored bytes can be sent as they are.
    pub(crate) fn is_stored_form(&self) -> bool {
        self.form == Form::Object && is_stored_version(&self.kind)
    }

    /// One stored object, in the form and version of the request.
    pub(crate) fn bytes(&self, object: &Object, first: bool) -> Bytes {
        if self.is_stored_form() {
            return object.bytes();
        }
        self.shape(in_version(&self.kind, object.value()), first).to_string().into()
    }

    /// One object that is already in the version of the request; tables carry their columns on the `first` only.
    fn shape(&self, value: Value, first: bool) -> Value {
        match self.form {
            Form::Object => value,
            Form::Metadata(version) => metadata_only(&value, version),
            Form::Table(version) => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                self.table(version, &[value], metadata, first)
            }
        }
    }

    pub(crate) fn table(
        &self,
        version: &str,
        values: &[Value],
        metadata: Value,
        with_columns: bool,
    ) -> Value {
        let printer = match &self.kind.schema {
            KindSchema::Custom(custom) => Printer::custom(custom),
            _ => Printer::built_in(&self.kind.group, &self.kind.plural),
        };
        let now = self.server.now();
        let mut rows: Vec<Value> = values.iter().map(|value| printer.row(value, now, self.include)).collect();
        if self.include == IncludeObject::Metadata {
            for row in &mut rows {
                row["object"]["apiVersion"] = format!("meta.k8s.io/{version}").into();
            }
        }
        let columns = if with_columns { printer.columns() } else { Value::Null };
        json!({
            "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }
}

fn is_stored_version(kind: &Kind) -> bool {
    kind.api_version() == kind.storage_api_version
}

/// The object in the version of the request.
pub(crate) fn in_version(kind: &Kind, mut value: Value) -> Value {
    if !is_stored_version(kind) {
        if &*kind.storage == "events" {
            events::to_modern(&mut value);
        }
        value["apiVersion"] = kind.api_version().into();
    }
    value
}

/// The object in the version it is stored in.
pub(crate) fn to_stored(kind: &Kind, mut value: Value) -> Value {
    if !is_stored_version(kind) {
        if &*kind.storage == "events" {
            events::to_core(&mut value);
        }
        value["apiVersion"] = kind.storage_api_version.clone().into();
    }
    value
}

/// `PartialObjectMetadata`.
pub(crate) fn metadata_only(value: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": value["metadata"],
    })
}

/// One stored object as an answer.
pub(crate) fn object(call: &Call<'_>, code: u16, object: &Object) -> ServerResponse {
    response::json_bytes(code, View::of(call).bytes(object, true))
}

/// An object that is not (or no longer) in the store, already in the version of the request.
pub(crate) fn value(call: &Call<'_>, code: u16, value: Value) -> ServerResponse {
    response::json(code, &View::of(call).shape(value, true))
}
