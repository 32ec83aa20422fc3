//! Fingerprints of scenarios and cases, by which a recording knows what it is a recording of.

use serde_json::Value;

/// A fingerprint that changes with every value, and not with the order of fields.
#[must_use]
pub fn of(value: &Value) -> String {
    // FNV-1a: nothing here is hostile, and the same text must give the same fingerprint in every release of Rust.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    add(value, &mut hash);
    format!("{hash:016x}")
}

fn add(value: &Value, hash: &mut u64) {
    let mut text = |text: &str| {
        for byte in text.bytes() {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match value {
        Value::Array(items) => {
            text("[");
            items.iter().for_each(|item| add(item, hash));
        }
        Value::Object(fields) => {
            text("{");
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            for (key, value) in fields {
                add(&Value::String(key.clone()), hash);
                add(value, hash);
            }
        }
        leaf => text(&format!("{leaf},")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_fields_changes_no_fingerprint_and_every_value_does() {
        let read = |text: &str| of(&serde_json::from_str(text).unwrap());
        let one = read(r#"{"a": [1, 2], "b": "x"}"#);
        assert_eq!(one, read(r#"{"b": "x", "a": [1, 2]}"#));
        for other in [r#"{"a": [2, 1], "b": "x"}"#, r#"{"a": [12], "b": "x"}"#, r#"{"a": [1, 2], "b": "y"}"#]
        {
            assert_ne!(one, read(other), "{other}");
        }
        assert_ne!(of(&json!("1")), of(&json!(1)));
    }
}
