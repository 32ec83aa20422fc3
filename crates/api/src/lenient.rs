//! Objects that somebody wrote something into that this process cannot read.
//!
//! API servers take what our types do not, such as the year 9999 in a time: whoever may write one object could keep everybody
//! from reading the list that it is in. [`Lenient`] reads one after another, and says of which it could not make sense.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::resource_within;

/// Times that cannot be told are read as one late enough for everybody, with room to add to it, or as the first.
const LAST: &str = "9000-01-01T00:00:00Z";
const FIRST: &str = "1970-01-01T00:00:00Z";

/// An object, or who it is and why it cannot be read.
#[derive(Debug, Clone)]
pub enum Lenient<K> {
    Read(K),
    Unreadable(Box<Unreadable>),
}

/// An object that cannot be read.
#[derive(Debug, Clone)]
pub struct Unreadable {
    /// Its name, namespace, UID and version, as far as they can be told.
    pub metadata: ObjectMeta,
    /// In which way, without its contents.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&self.metadata.namespace), text(&self.metadata.name));
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{namespace}{slash}{name} cannot be read: {}", self.why)
    }
}

impl std::error::Error for Unreadable {}

impl<K> Lenient<K> {
    /// # Errors
    /// It cannot be read.
    pub fn read(self) -> Result<K, Box<Unreadable>> {
        match self {
            Self::Read(object) => Ok(object),
            Self::Unreadable(object) => Err(object),
        }
    }
}

impl<'de, K: serde::de::DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        Ok(match serde_json::from_str(text.get()) {
            Ok(object) => Self::Read(object),
            Err(_) => read_again(text.get()),
        })
    }
}

/// Once more, with times that can be told, and without what is null.
fn read_again<K: serde::de::DeserializeOwned>(text: &str) -> Lenient<K> {
    let mut value = value_of(text);
    correct(&mut value);
    let metadata = identity(&value["metadata"]);
    match serde_json::from_value(value) {
        Ok(object) => Lenient::Read(object),
        Err(why) => {
            let why = if why.is_data() { "a value is not of its type" } else { "it is no object" };
            Lenient::Unreadable(Box::new(Unreadable { metadata, why: why.to_owned() }))
        }
    }
}

/// The object as JSON. What is nested deeper than anybody reads is left out: `managedFields` may be, and nothing is decided by what is
/// that deep in them.
pub fn value_of(text: &str) -> Value {
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    let mut fields = shallow(text);
    if let Some(metadata) = fields.get("metadata").and_then(Value::as_str).map(str::to_owned) {
        fields.insert("metadata".to_owned(), Value::Object(read_each(shallow(&metadata))));
    }
    Value::Object(read_each(fields))
}

/// The fields of an object, each as its text.
fn shallow(text: &str) -> serde_json::Map<String, Value> {
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text).unwrap_or_default();
    fields.into_iter().map(|(name, text)| (name, Value::String(text.get().to_owned()))).collect()
}

fn read_each(fields: serde_json::Map<String, Value>) -> serde_json::Map<String, Value> {
    let read = |(name, text): (String, Value)| match text {
        Value::String(text) => serde_json::from_str(&text).ok().map(|value| (name, value)),
        value => Some((name, value)),
    };
    fields.into_iter().filter_map(read).collect()
}

fn identity(metadata: &Value) -> ObjectMeta {
    let text = |name: &str| metadata[name].as_str().map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

/// Makes times that cannot be told early or late ones that can, and takes out what is null. Texts of people are left alone.
pub fn correct(value: &mut Value) {
    match value {
        Value::String(text) if is_a_time(text) && text.parse::<Timestamp>().is_err() => {
            *text = if text.as_str() > "5" { LAST } else { FIRST }.to_owned();
        }
        Value::Array(values) => {
            values.retain(|value| !value.is_null());
            values.iter_mut().for_each(correct);
        }
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            let values = fields.iter_mut().filter(|(name, _)| *name != "annotations" && *name != "labels");
            values.for_each(|(_, value)| correct(value));
        }
        _ => {}
    }
}

fn is_a_time(text: &str) -> bool {
    let begins_with_a_date = |bytes: &[u8]| {
        let is_right = |(at, byte): (usize, &u8)| match at {
            4 | 7 => *byte == b'-',
            10 => matches!(byte, b'T' | b't' | b' '),
            _ => byte.is_ascii_digit(),
        };
        bytes.len() > 10 && bytes[..11].iter().enumerate().all(is_right)
    };
    begins_with_a_date(text.as_bytes())
}

resource_within!(Lenient, metadata, metadata_mut);

fn metadata<K: Resource<DynamicType = ()>>(object: &Lenient<K>) -> &ObjectMeta {
    match object {
        Lenient::Read(object) => object.meta(),
        Lenient::Unreadable(object) => &object.metadata,
    }
}

fn metadata_mut<K: Resource<DynamicType = ()>>(object: &mut Lenient<K>) -> &mut ObjectMeta {
    match object {
        Lenient::Read(object) => object.meta_mut(),
        Lenient::Unreadable(object) => &mut object.metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeMaintenance;
    use serde_json::json;

    fn maintenance(name: &str) -> Value {
        json!({
            "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
            "metadata": {"name": name, "uid": "u", "resourceVersion": "7"},
            "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": []}},
        })
    }

    #[test]
    fn a_time_that_nobody_can_tell_does_not_keep_anybody_from_reading() {
        for (time, wanted) in [
            ("9999-12-31T23:59:59Z", LAST),
            ("9999-12-31T23:59:59.999999999+00:00", LAST),
            ("0000-01-01T00:00:00+23:59", "0000-01-01T00:00:00+23:59"),
            ("2026-02-30T00:00:00Z", FIRST),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ] {
            let mut object = maintenance("m");
            object["metadata"]["managedFields"] = json!([{"manager": "x", "time": time}]);
            object["metadata"]["annotations"] = json!({"note": time});
            object["status"] = json!({"stageStatuses": [{"name": "Drain", "startTimestamp": time}]});
            let read: Lenient<NodeMaintenance> = serde_json::from_str(&object.to_string()).unwrap();
            let read = read.read().unwrap();
            assert_eq!(read.metadata.annotations.unwrap()["note"], time, "texts of people are left alone");
            let written = read.metadata.managed_fields.unwrap()[0].time.as_ref().unwrap().0;
            assert_eq!(written, wanted.parse::<Timestamp>().unwrap(), "{time}");
        }
    }

    #[test]
    fn fields_that_are_nested_without_end_keep_nobody_from_reading() {
        let nested = format!("{}1{}", "{\"f:a\":".repeat(5000), "}".repeat(5000));
        let mut object = maintenance("m");
        object["metadata"]["managedFields"] = json!([{"manager": "x", "fieldsV1": "NESTED"}]);
        object["spec"]["stage"] = json!("Cordon");
        let text = object.to_string().replace("\"NESTED\"", &nested);
        let read: Lenient<NodeMaintenance> = serde_json::from_str(&text).unwrap();
        let read = read.read().unwrap();
        assert_eq!(read.metadata.name.as_deref(), Some("m"));
        assert_eq!(read.spec.stage, crate::NodeMaintenanceStage::Cordon);
        let odd = text.replace("\"Cordon\"", "\"Odd\"");
        let unread: Lenient<NodeMaintenance> = serde_json::from_str(&odd).unwrap();
        assert_eq!(unread.read().unwrap_err().metadata.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn one_that_cannot_be_read_is_named_and_the_others_are_read() {
        let mut odd = maintenance("odd");
        odd["spec"]["stage"] = json!("Secret-Value");
        let list = json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"},
            "items": [maintenance("a"), odd, maintenance("b")],
        });
        let list: kube::core::ObjectList<Lenient<NodeMaintenance>> =
            serde_json::from_str(&list.to_string()).unwrap();
        let read: Vec<Result<String, String>> = list
            .items
            .into_iter()
            .map(|object| match object.read() {
                Ok(object) => Ok(object.metadata.name.unwrap_or_default()),
                Err(object) => Err(object.to_string()),
            })
            .collect();
        let names: Vec<&String> = read.iter().flatten().collect();
        assert_eq!(names, ["a", "b"]);
        let told = read[1].as_ref().unwrap_err();
        assert_eq!(told, "odd cannot be read: a value is not of its type");
        assert!(!told.contains("Secret"), "what is in it is not told");
    }
}
