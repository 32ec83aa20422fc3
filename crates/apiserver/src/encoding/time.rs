//! `metav1.Time` and `metav1.MicroTime` as they are written: in UTC, to the second or to the millionth of one.

use jiff::Timestamp;
use serde_json::Value;

/// The time as Go writes it; null for Go's zero time; nothing if it is none or stays as it is.
pub(super) fn canonical(text: &str, micro: bool) -> Option<Value> {
    if !micro && is_plain(text) {
        return None;
    }
    let at: Timestamp = text.parse().ok()?;
    if at.as_second() == ZERO {
        return Some(Value::Null);
    }
    let layout = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Some(at.strftime(layout).to_string().into())
}

/// The first second of the year 1.
const ZERO: i64 = -62_135_596_800;

/// A time that Go would write just so. Most are; days that not all months have take the long way.
pub(crate) fn is_plain(text: &str) -> bool {
    let number = |from: usize| match text.as_bytes()[from..from + 2] {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => Some((tens - b'0') * 10 + ones - b'0'),
        _ => None,
    };
    let within = |from: usize, least: u8, most: u8| number(from).is_some_and(|n| (least..=most).contains(&n));
    let punctuated = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    text.len() == 20
        && punctuated.iter().all(|(at, mark)| text.as_bytes()[*at] == *mark)
        && within(0, 1, 99)
        && within(2, 0, 99)
        && within(5, 1, 12)
        && within(8, 1, 28)
        && within(11, 0, 23)
        && within(14, 0, 59)
        && within(17, 0, 59)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_that_are_not_plain_take_the_long_way() {
        assert!(is_plain("2026-11-15T08:00:00Z"));
        for other in [
            "2026-11-15T08:00:00.5Z",
            "2026-11-15T08:00:00+01:00",
            "2026-11-15t08:00:00Z",
            "2026-11-15 08:00:00Z",
            "2026-02-30T08:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-13-15T08:00:00Z",
            "2026-11-15T08:00:60Z",
            "0001-01-01T00:00:00Z",
            "2026-11-1éT08:00:00Z",
            "",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_plain_is_a_time_that_stays_as_it_is(text in "[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if is_plain(&text) {
                let at: Timestamp = text.parse().expect("a time");
                prop_assert_eq!(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), text);
            }
        }
    }
}
