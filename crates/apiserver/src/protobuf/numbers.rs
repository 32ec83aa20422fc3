//! Which protobuf field number is which JSON field, from data that is compiled in. What the fields hold is in the
//! schemas.

use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

use serde_json::{Map, Value};

static DATA: &[u8] = include_bytes!("../../data/protobuf-numbers.json.gz");

/// The fields of a message by their numbers.
pub(super) type Message = HashMap<u64, Field>;

pub(super) enum Field {
    Named(String),
    /// A message whose fields are the outer one's own in JSON.
    Inlined(Message),
}

// The data is part of the program and a test unpacks it, so a failure here is a broken build.
#[expect(clippy::expect_used, reason = "compiled-in data, proven readable by a test")]
static MESSAGES: LazyLock<HashMap<String, Message>> =
    LazyLock::new(|| load(DATA).expect("the compiled-in field numbers are readable"));

/// The message of a definition of the built-in schemas.
pub(super) fn message(definition: &str) -> Option<&'static Message> {
    MESSAGES.get(definition)
}

fn load(data: &[u8]) -> Option<HashMap<String, Message>> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(data).read_to_end(&mut text).ok()?;
    let document: Map<String, Value> = serde_json::from_slice(&text).ok()?;
    document.into_iter().map(|(name, fields)| Some((name, fields_of(&fields)?))).collect()
}

fn fields_of(fields: &Value) -> Option<Message> {
    let read = |(number, field): (&String, &Value)| {
        let field = match field {
            Value::String(name) => Field::Named(name.clone()),
            inlined => Field::Inlined(fields_of(inlined)?),
        };
        Some((number.parse().ok()?, field))
    };
    fields.as_object()?.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{SchemaRef, builtin};

    fn named(message: &Message, schema: SchemaRef<'_>, definition: &str) {
        for field in message.values() {
            match field {
                Field::Named(name) => assert!(schema.field(name).is_some(), "{definition}.{name}"),
                Field::Inlined(message) => named(message, schema, definition),
            }
        }
    }

    #[test]
    fn every_number_is_that_of_a_field_of_the_schema() {
        let messages = load(DATA).expect("readable");
        assert!(messages.len() > 300);
        for (definition, message) in &messages {
            named(message, builtin().named(definition).expect(definition), definition);
        }
    }

    #[test]
    fn damaged_data_is_noticed() {
        assert!(load(b"not gzip").is_none());
    }
}
