//! The string and number formats that schemas may name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

use crate::schema::Type;

const STRING_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Formats that the server enforces for a type; any other is ignored.
pub(crate) fn is_known(ty: Type, format: &str) -> bool {
    match ty {
        Type::String | Type::Any => STRING_FORMATS.contains(&format.replace('-', "").as_str()),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Whether a string has the (known) format.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "duration" => is_duration(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme)) || text.starts_with('/'),
        "hostname" => text.len() <= 255 && pattern_matches("hostname", text),
        "k8sshortname" => text.len() <= 63 && pattern_matches("k8sshortname", text),
        "k8slongname" => text.len() <= 253 && pattern_matches("k8slongname", text),
        "isbn" => is_isbn(text, 10) || is_isbn(text, 13),
        "isbn10" => is_isbn(text, 10),
        "isbn13" => is_isbn(text, 13),
        other => pattern_matches(other, text),
    }
}

static PATTERNS: LazyLock<Vec<(&'static str, Regex)>> = LazyLock::new(|| {
    let sources = [
        ("bsonobjectid", r"(?i)^[0-9a-f]{24}$"),
        ("email", r#"^[^@\s<>()\[\]\\,;:"]+@[^@\s<>()\[\]\\,;:"]+$"#),
        (
            "hostname",
            r"^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$",
        ),
        ("mac", r"(?i)^([0-9a-f]{2}([:-][0-9a-f]{2}){5,7}|[0-9a-f]{4}(\.[0-9a-f]{4}){2,3})$"),
        ("uuid", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        ("uuid3", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$"),
        ("uuid4", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        ("uuid5", r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$"),
        ("creditcard", r"^[0-9][0-9 -]{11,22}$"),
        ("ssn", r"^\d{3}[- ]?\d{2}[- ]?\d{4}$"),
        ("hexcolor", r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
        ("rgbcolor", r"^rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)$"),
        ("k8sshortname", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"),
        ("k8slongname", r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
    ];
    sources.into_iter().filter_map(|(name, source)| Some((name, Regex::new(source).ok()?))).collect()
});

/// Formats without a pattern (`password`) accept every string.
fn pattern_matches(format: &str, text: &str) -> bool {
    PATTERNS.iter().find(|(name, _)| *name == format).is_none_or(|(_, regex)| regex.is_match(text))
}

fn is_scheme(scheme: &str) -> bool {
    let mut chars = scheme.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    match (address.parse::<IpAddr>(), bits.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Ok(bits)) => bits <= 128,
        _ => false,
    }
}

/// Go's durations (`1h30m`), or a number and a spelled-out unit (`22 ns`, `3 weeks`).
fn is_duration(text: &str) -> bool {
    static GO: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"^[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)$").ok());
    static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(
            r"^(\d+)\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?)$",
        )
        .ok()
    });
    [&*GO, &*WORDS].into_iter().flatten().any(|regex| regex.is_match(text))
}

/// ISBN with its check digit; dashes and spaces do not count.
fn is_isbn(text: &str, digits: usize) -> bool {
    let compact: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if compact.len() != digits {
        return false;
    }
    let mut sum = 0;
    for (index, c) in compact.iter().enumerate() {
        let value = match c.to_digit(10) {
            Some(value) => value,
            None if digits == 10 && index == 9 && matches!(c, 'X' | 'x') => 10,
            None => return false,
        };
        sum += match digits {
            10 => value * (10 - index as u32),
            _ => value * if index % 2 == 0 { 1 } else { 3 },
        };
    }
    sum % if digits == 10 { 11 } else { 10 } == 0
}
