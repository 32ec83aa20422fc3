//! Times as people read them: as ages like kubectl's, and with the date where it matters.

use jiff::{SignedDuration, Timestamp};

/// `90s`, `3m5s`, `42m`, `3h20m`, `20h`, `3d4h`, `30d`: as exact as it is of interest.
pub fn human(span: SignedDuration) -> String {
    let seconds = span.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// How long ago.
pub fn age(then: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(then))
}

/// `12m ago (2026-01-01 10:00:00Z)`, or `in 12m (...)`.
pub fn describe(time: Timestamp, now: Timestamp) -> String {
    let date = time.strftime("%Y-%m-%d %H:%M:%SZ");
    if time > now {
        format!("in {} ({date})", human(up_to_a_second(time.duration_since(now))))
    } else {
        format!("{} ago ({date})", age(time, now))
    }
}

/// The same of what has happened. Clocks may be apart, but nothing has happened in the future.
pub fn since(time: Timestamp, now: Timestamp) -> String {
    match time > now {
        true => format!("just now ({})", time.strftime("%Y-%m-%d %H:%M:%SZ")),
        false => describe(time, now),
    }
}

/// How long it still takes. What is left is rounded up, so that it is 0 only when nothing is.
pub fn left(until: Timestamp, now: Timestamp) -> String {
    human(up_to_a_second(until.duration_since(now)))
}

/// `5m`, `now`, or `2m late` if it was expected to be over.
pub fn eta(at: Timestamp, now: Timestamp) -> String {
    match (at > now, now.duration_since(at).as_secs()) {
        (true, _) => left(at, now),
        (false, 0) => "now".to_string(),
        (false, _) => format!("{} late", age(at, now)),
    }
}

fn up_to_a_second(span: SignedDuration) -> SignedDuration {
    let up = i64::from(span.subsec_nanos() > 0);
    SignedDuration::from_secs(span.as_secs() + up)
}

/// Reads `90`, `90s`, `30m`, `1h30m`, `2d`.
pub fn parse(text: &str) -> Result<SignedDuration, String> {
    let wrong = || format!("{text:?} is not a duration: write 90s, 30m or 1h30m");
    let mut seconds: i64 = 0;
    let mut number = String::new();
    for letter in text.chars() {
        let unit: i64 = match letter {
            '0'..='9' => {
                number.push(letter);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let part = number.parse::<i64>().ok().and_then(|number| number.checked_mul(unit));
        seconds = part.and_then(|part| seconds.checked_add(part)).ok_or_else(wrong)?;
        number.clear();
    }
    if !number.is_empty() {
        // A bare number counts seconds, but not behind other units.
        if seconds > 0 {
            return Err(wrong());
        }
        seconds = number.parse().map_err(|_| wrong())?;
    } else if text.is_empty() {
        return Err(wrong());
    }
    Ok(SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_exact_as_they_are_of_interest() {
        let text = |seconds| human(SignedDuration::from_secs(seconds));
        for (seconds, expected) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (2520, "42m"),
            (12_000, "3h20m"),
            (72_000, "20h"),
            (273_600, "3d4h"),
            (2_592_000, "30d"),
        ] {
            assert_eq!(text(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn what_has_happened_is_never_in_the_future() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(since(at(3660), at(0)), "just now (1970-01-01 01:01:00Z)");
        assert_eq!(since(at(0), at(60)), "60s ago (1970-01-01 00:00:00Z)");
        assert_eq!(describe(at(60), at(0)), "in 60s (1970-01-01 00:01:00Z)", "what is to come may be");
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        let now = Timestamp::from_millisecond(500).unwrap();
        assert_eq!(left(Timestamp::from_millisecond(900).unwrap(), now), "1s");
        assert_eq!(left(now, now), "0s");
    }

    #[test]
    fn what_is_expected_this_second_is_not_late() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(eta(at(5000), at(4500)), "1s");
        assert_eq!(eta(at(5000), at(5000)), "now");
        assert_eq!(eta(at(5000), at(5900)), "now");
        assert_eq!(eta(at(5000), at(6000)), "1s late");
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172_800), ("0", 0)]
        {
            assert_eq!(parse(text).unwrap().as_secs(), seconds, "{text}");
        }
        for wrong in ["", "m", "1x", "-5m", "1h30", "30 m", "99999999999999999999s", "9999999999999999d"] {
            let message = parse(wrong).unwrap_err();
            assert_eq!(message, format!("{wrong:?} is not a duration: write 90s, 30m or 1h30m"));
        }
    }
}
