//! Durations and ages in kubectl's short form.

use jiff::Timestamp;
use serde_json::Value;

/// `5s`, `3m20s`, `4h`, `2d3h`, `400d`, `3y12d`: fewer parts the longer it is.
pub(crate) fn human_duration(seconds: i64) -> String {
    let two = |major: i64, unit: &str, minor: i64, sub: &str| {
        if minor == 0 { format!("{major}{unit}") } else { format!("{major}{unit}{minor}{sub}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_string(),
        -1 => "0s".to_string(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, "d", hours % 24, "h"),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// How long ago a timestamp was; `<unknown>` where there is none.
pub(crate) fn since(stamp: &Value, now: Timestamp) -> String {
    match parse(stamp) {
        Some(then) => human_duration(between(then, now)),
        None => "<unknown>".to_string(),
    }
}

/// Whole seconds from one time to another, rounded towards zero.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

pub(crate) fn parse(stamp: &Value) -> Option<Timestamp> {
    stamp.as_str()?.parse().ok()
}

/// The age of an object.
pub(crate) fn age(object: &Value, now: Timestamp) -> Value {
    since(&object["metadata"]["creationTimestamp"], now).into()
}
