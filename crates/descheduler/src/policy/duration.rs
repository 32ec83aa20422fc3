//! Durations as Go writes them: `1h30m`, `90s`, `1.5h`.

use jiff::SignedDuration;

/// None if it is not a duration.
pub fn parse(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.')?;
        let (number, tail) = rest.split_at(end);
        let unit_end = tail.find(|one: char| one.is_ascii_digit() || one == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 18 {
            return None;
        }
        let decimals = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        nanos = nanos.checked_add(mantissa.checked_mul(unit)? / decimals)?;
        rest = next;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    Some(SignedDuration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("0", 0), ("2m0s", 120), ("-3s", -3)];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Some(SignedDuration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1", "5d", "h", "1h30", "1..5h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
