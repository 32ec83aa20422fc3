//! Quantities as integers: thousandths of CPUs, and units of everything else, rounded up as the API machinery does.

/// A quantity in thousandths, as the API server reads it: at most three decimals, and rounded away from zero. None if it is not one.
pub fn parse_milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() + fraction.len() > 24
    {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let decimals = u32::try_from(fraction.len()).ok()?;
    let (multiplier, divisor) = scale(suffix)?;
    let numerator = mantissa.checked_mul(multiplier)?.checked_mul(1000)?;
    let denominator = divisor.checked_mul(10_i128.checked_pow(decimals)?)?;
    let milli = numerator / denominator + i128::from(numerator % denominator != 0);
    Some(if negative { -milli } else { milli })
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1000),
        "k" => (1000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let tens = 10_i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, tens) } else { (tens, 1) }
        }
    })
}

/// Thousandths of a quantity; 0 if it is none.
pub fn milli(text: &str) -> i64 {
    clamp(parse_milli(text).unwrap_or(0))
}

/// A quantity in whole units, rounded up; 0 if it is none.
pub fn value(text: &str) -> i64 {
    let milli = parse_milli(text).unwrap_or(0);
    clamp(milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) != 0))
}

fn clamp(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_the_api_machinery_reads_them() {
        let cases = [
            ("100m", 100, 1),
            ("1", 1000, 1),
            ("1.5", 1500, 2),
            (".5", 500, 1),
            ("1Ki", 1_024_000, 1024),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("1e3", 1_000_000, 1000),
            ("5E-1", 500, 1),
            ("100n", 1, 1),
            ("0", 0, 0),
            ("-2", -2000, -2),
            ("2k", 2_000_000, 2000),
        ];
        for (text, thousandths, whole) in cases {
            assert_eq!(milli(text), thousandths, "{text}");
            assert_eq!(value(text), whole, "{text}");
        }
        for text in ["", "x", "1Q", "1..2", "e", "--1"] {
            assert_eq!(parse_milli(text), None, "{text}");
        }
    }
}
