//! The times of the API: RFC 3339, parsed as Go does.

/// Why the text is no time, in Go's words; nothing if it is one.
pub(super) fn problem(text: &str) -> Option<String> {
    if text.parse::<jiff::Timestamp>().is_ok() && text.contains('T') {
        return None;
    }
    let layout = "2006-01-02T15:04:05Z07:00";
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
    Some(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as \"Z07:00\""))
}
