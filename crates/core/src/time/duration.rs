//! Durations as text.

use std::time::Duration;

use crate::{Error, Result};

/// Parses `500ms`, `30s`, `1.5m`, `2h`, `1d`, and sums such as `1h30m`. A number without a unit is
/// refused: it could mean seconds or milliseconds.
///
/// ```
/// use clinch_core::parse_duration;
/// use std::time::Duration;
/// assert_eq!(parse_duration("1m30s").unwrap(), Duration::from_secs(90));
/// assert!(parse_duration("5").unwrap_err().to_string().contains("5s"));
/// ```
pub fn parse_duration(text: &str) -> Result<Duration> {
    let wrong = || {
        Error::invalid(format!("{text:?} is not a duration"))
            .with_advice("write it with a unit: 500ms, 30s, 5m, 2h, 1h30m")
    };
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.') && rest != "0" {
        return Err(
            Error::invalid(format!("{text:?} has no unit")).with_advice(format!(
                "write {rest}s for seconds or {rest}ms for milliseconds"
            )),
        );
    }
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let seconds = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    Ok(total)
}

/// Formats a duration for people, with at most two units.
///
/// ```
/// use clinch_core::format_duration;
/// use std::time::Duration;
/// assert_eq!(format_duration(Duration::from_millis(1500)), "1.5s");
/// assert_eq!(format_duration(Duration::from_secs(3700)), "1h1m");
/// assert_eq!(format_duration(Duration::from_micros(70)), "70us");
/// ```
pub fn format_duration(span: Duration) -> String {
    let secs = span.as_secs();
    let two = |a: u64, unit_a: &str, b: u64, unit_b: &str| match b {
        0 => format!("{a}{unit_a}"),
        _ => format!("{a}{unit_a}{b}{unit_b}"),
    };
    match secs {
        86_400.. => two(secs / 86_400, "d", secs % 86_400 / 3600, "h"),
        3600.. => two(secs / 3600, "h", secs % 3600 / 60, "m"),
        60.. => two(secs / 60, "m", secs % 60, "s"),
        10.. => format!("{secs}s"),
        1.. => {
            let tenths = span.as_millis() / 100;
            match tenths % 10 {
                0 => format!("{}s", tenths / 10),
                t => format!("{}.{t}s", tenths / 10),
            }
        }
        0 if span.as_millis() > 0 => format!("{}ms", span.as_millis()),
        0 => format!("{}us", span.as_micros()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_refused_with_both_readings() {
        let e = parse_duration("5").unwrap_err().to_string();
        assert!(e.contains("5s") && e.contains("5ms"), "{e}");
        for bad in ["", "s", "5x", "-5s", "5s3", "1e9d", "five"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sums_and_fractions_are_read() {
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(
            parse_duration("1d2h3m").unwrap(),
            Duration::from_secs(93_780)
        );
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
    }
}
