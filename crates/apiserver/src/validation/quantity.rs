//! Resource quantities: `100m`, `1.5`, `2Gi`, `1e3`.

/// An amount in billionths, so that everything from `n` to `Ei` is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(pub i128);

const NANO: i128 = 1_000_000_000;

impl Quantity {
    pub fn parse(text: &str) -> Option<Quantity> {
        let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
        let (number, suffix) = text.split_at(split);
        let (sign, digits) = match number.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return None;
        }
        let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let (multiplier, divisor) = scale(suffix)?;
        let shift = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scaled = mantissa.checked_mul(multiplier)?.checked_mul(NANO)?;
        // Fractions below the unit are rounded up, as the server does.
        let by = divisor.checked_mul(shift)?;
        Some(Quantity(sign * (scaled + by - 1).div_euclid(by)))
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0 < 0
    }

    pub(crate) fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];
    const SMALL: [&str; 3] = ["m", "u", "n"];
    let place = |list: &[&str]| list.iter().position(|s| *s == suffix).map(|i| i as u32 + 1);
    if suffix.is_empty() {
        return Some((1, 1));
    }
    if let Some(power) = place(&BINARY) {
        return Some((1024_i128.pow(power), 1));
    }
    if let Some(power) = place(&DECIMAL) {
        return Some((1000_i128.pow(power), 1));
    }
    if let Some(power) = place(&SMALL) {
        return Some((1, 1000_i128.pow(power)));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    match exponent {
        0..=18 => Some((10_i128.pow(exponent.unsigned_abs()), 1)),
        -18..=-1 => Some((1, 10_i128.pow(exponent.unsigned_abs()))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_exactly() {
        let cases = [
            ("1", Some(NANO)),
            ("100m", Some(NANO / 10)),
            ("1.5", Some(NANO * 3 / 2)),
            ("2Gi", Some(2 * 1024 * 1024 * 1024 * NANO)),
            ("1e3", Some(1000 * NANO)),
            ("-1", Some(-NANO)),
            (".5", Some(NANO / 2)),
            ("", None),
            ("abc", None),
            ("1Xi", None),
            ("1.2.3", None),
        ];
        for (text, value) in cases {
            assert_eq!(Quantity::parse(text).map(|q| q.0), value, "{text}");
        }
    }
}
