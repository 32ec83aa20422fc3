//! The head of an object in its text: the metadata, read without the larger part that comes after it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

/// The metadata of an object; what comes after it is not looked at, and may be anything.
pub fn metadata_of<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    let mut metadata = None;
    let visitor = UpToMetadata { found: &mut metadata, lifetime: PhantomData };
    let read = serde_json::Deserializer::from_str(json).deserialize_map(visitor);
    match (metadata, read) {
        (Some(metadata), _) => Ok(metadata),
        (None, Err(why)) => Err(why),
        (None, Ok(())) => Err(serde_json::Error::missing_field("metadata")),
    }
}

/// Puts what it found aside, since whoever stops in the middle of an object gets an error.
struct UpToMetadata<'n, 'a, T> {
    found: &'n mut Option<T>,
    lifetime: PhantomData<&'a ()>,
}

impl<'a, T: Deserialize<'a>> Visitor<'a> for UpToMetadata<'_, 'a, T> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut fields: M) -> Result<(), M::Error> {
        while let Some(field) = fields.next_key::<Cow<'a, str>>()? {
            if field == "metadata" {
                *self.found = Some(fields.next_value()?);
                return Ok(());
            }
            fields.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn what_comes_after_the_metadata_is_not_looked_at() {
        let metadata: Value = metadata_of(r#"{"kind":"Pod","metadata":{"name":"p"},"spec":{"#).unwrap();
        assert_eq!(metadata["name"], "p");
        for bad in [r#"{"kind":"Pod"}"#, r#"{"kind":"Pod","metadata":{"#, "[]", ""] {
            assert!(metadata_of::<Value>(bad).is_err(), "{bad}");
        }
    }
}
