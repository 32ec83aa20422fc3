//! The times of the API: RFC 3339, parsed as Go does.

use crate::encoding::is_plain;

/// Why the text is no time, in Go's words; nothing if it is one.
///
/// A `micro` time must have exactly six digits after the point, another may have any number of them.
pub(super) fn problem(text: &str, micro: bool) -> Option<String> {
    if !micro && is_plain(text) {
        return None;
    }
    if text.parse::<jiff::Timestamp>().is_ok() && text.contains('T') && (!micro || has_micros(text)) {
        return None;
    }
    let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    // Go names the first part that it could not read.
    let mut rest = text;
    for (part, width, after) in
        [("2006", 4, "-"), ("01", 2, "-"), ("02", 2, "T"), ("15", 2, ":"), ("04", 2, ":"), ("05", 2, "")]
    {
        let digits = rest.get(..width).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
        if digits.is_none() {
            return Some(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}"));
        }
        rest = &rest[width..];
        let Some(left) = rest.strip_prefix(after) else {
            return Some(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {after:?}"));
        };
        rest = left;
    }
    let missing = if micro && !has_micros(text) { ".000000" } else { "Z07:00" };
    Some(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {missing:?}"))
}

fn has_micros(text: &str) -> bool {
    let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
    fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len()) == 6
}
