//! `metav1.Time` and `metav1.MicroTime` as they are written: in UTC, to the second or to the millionth of one.

use jiff::Timestamp;
use serde_json::Value;

/// The time as Go writes it; null for Go's zero time; nothing if it is none.
pub(super) fn canonical(text: &str, micro: bool) -> Option<Value> {
    let at: Timestamp = text.parse().ok()?;
    if at.as_second() == ZERO {
        return Some(Value::Null);
    }
    let layout = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(at.strftime(layout).to_string().into())
}

/// The first second of the year 1.
const ZERO: i64 = -62_135_596_800;
