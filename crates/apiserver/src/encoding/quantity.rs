//! Resource quantities in canonical form: the largest suffix with which the number is whole.

use crate::validation::Quantity;

const NANO: i128 = 1_000_000_000;
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Binary quantities are capped.
const MOST: i128 = i64::MAX as i128;
/// Numbers of more digits take the slow way in Go, which always rewrites them.
const FAST_DIGITS: usize = 18;

/// The quantity as Go writes it after reading `text`; nothing if it is none or stays as it is.
pub(super) fn canonical(text: &str) -> Option<String> {
    let Quantity(nanos) = Quantity::parse(text)?;
    let suffix_at = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(suffix_at);
    let format = Format::of(suffix);
    if format == Format::Binary && nanos.abs() > MOST * NANO {
        return Some((nanos.signum() * MOST).to_string());
    }
    if stays(number, suffix, format) {
        return None;
    }
    let binary = format == Format::Binary && nanos.abs() >= 1024 * NANO && nanos % NANO == 0;
    Some(if binary { in_powers_of_1024(nanos / NANO) } else { in_powers_of_1000(nanos, format) })
}

#[derive(Clone, Copy, PartialEq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

impl Format {
    fn of(suffix: &str) -> Self {
        match suffix {
            _ if suffix.ends_with('i') => Self::Binary,
            _ if suffix.len() > 1 => Self::Exponent,
            _ => Self::Decimal,
        }
    }
}

/// Go keeps the text where a quick look finds nothing to shorten, even if it is not quite canonical (`1.500`).
fn stays(number: &str, suffix: &str, format: Format) -> bool {
    let unsigned = number.trim_start_matches(['+', '-']);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let whole = whole.trim_start_matches('0');
    let digits = format!("{}{fraction}", if whole.is_empty() { "0" } else { whole });
    if digits.len() > FAST_DIGITS {
        return false;
    }
    let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let exponent = match format {
        Format::Binary => return fraction.is_empty() && digits.parse::<u64>().is_ok_and(|n| n & 7 != 0),
        Format::Exponent => suffix[1..].parse().unwrap_or_default(),
        Format::Decimal => DECIMAL.iter().position(|s| *s == suffix).map_or(0, |i| 3 * i as i32 - 9),
    };
    let scale = exponent - places;
    scale >= -9 && scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
}

fn in_powers_of_1000(nanos: i128, format: Format) -> String {
    if nanos == 0 {
        return "0".to_string();
    }
    let (mut number, mut place) = (nanos, 0);
    while number % 1000 == 0 && place + 1 < DECIMAL.len() {
        number /= 1000;
        place += 1;
    }
    match format {
        Format::Exponent if DECIMAL[place].is_empty() => number.to_string(),
        Format::Exponent => format!("{number}e{}", 3 * place as i32 - 9),
        _ => format!("{number}{}", DECIMAL[place]),
    }
}

fn in_powers_of_1024(mut number: i128) -> String {
    let mut place = 0;
    while number % 1024 == 0 && place + 1 < BINARY.len() {
        number /= 1024;
        place += 1;
    }
    format!("{number}{}", BINARY[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `resource.Quantity` of apimachinery v0.37.1 writes them.
    #[test]
    fn quantities_are_written_with_the_largest_suffix_that_keeps_them_whole() {
        for (text, written) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1500Mi", "1500Mi"),
            ("0.5Gi", "512Mi"),
            ("512Ki", "512Ki"),
            ("1000Ki", "1000Ki"),
            ("1000", "1k"),
            ("100", "100"),
            ("0", "0"),
            ("0m", "0"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("0.1Ki", "102400m"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("-1000m", "-1"),
            ("5G", "5G"),
            ("0.0000000001", "1n"),
            ("3074965000Ti", "9223372036854775807"),
            ("-3211299000Ti", "-9223372036854775807"),
        ] {
            assert_eq!(canonical(text).unwrap_or_else(|| text.to_string()), written, "{text}");
        }
    }
}
