//! The metadata of an object in its text, without the rest as a value.

use serde::Deserialize;

/// The metadata of an object; of the rest only the syntax is looked at.
pub fn metadata_of<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    #[derive(Deserialize)]
    struct Headed<T> {
        metadata: T,
    }
    serde_json::from_str::<Headed<T>>(json).map(|object| object.metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn metadata_is_read_wherever_it_is() {
        let text =
            r#"{"kind":"Pod","spec":{"metadata":{"name":"other"}},"metadata":{"name":"p"},"status":{}}"#;
        let metadata: Value = metadata_of(text).unwrap();
        assert_eq!(metadata["name"], "p");
        for bad in [r#"{"kind":"Pod"}"#, r#"{"kind":"Pod","metadata":{"#, "[]", ""] {
            assert!(metadata_of::<Value>(bad).is_err(), "{bad}");
        }
    }
}
