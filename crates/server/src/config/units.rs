//! Durations and sizes as they are written: `"30d"`, `"256KiB"`.

use std::time::Duration;

/// Units as they are written, and what each is worth.
type Units = [(&'static str, u64)];
/// What people write for a unit, and how many of which unit it is.
type OtherUnits = [(&'static [&'static str], u64, &'static str)];

const DURATIONS: &Units =
    &[("y", 31_536_000_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZES: &Units = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

const OTHER_DURATIONS: &OtherUnits = &[
    (&["millis", "millisecond", "milliseconds"], 1, "ms"),
    (&["", "sec", "secs", "second", "seconds"], 1, "s"),
    (&["min", "mins", "minute", "minutes"], 1, "m"),
    (&["hr", "hrs", "hour", "hours"], 1, "h"),
    (&["day", "days"], 1, "d"),
    (&["w", "wk", "week", "weeks"], 7, "d"),
    (&["mo", "month", "months"], 30, "d"),
    (&["yr", "yrs", "year", "years"], 1, "y"),
];
const OTHER_SIZES: &OtherUnits = &[
    (&["", "byte", "bytes"], 1, "B"),
    (&["k", "kb", "kib"], 1, "KiB"),
    (&["m", "mb", "mib"], 1, "MiB"),
    (&["g", "gb", "gib"], 1, "GiB"),
];

const DURATION_HELP: &str = r#"durations are written "90s", "15m", "24h", "30d" or "1y""#;
const SIZE_HELP: &str = r#"sizes are written "512B", "256KiB" or "1MiB""#;

/// Reads a duration, or says how to write one.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let millis =
        amount(text, DURATIONS).ok_or_else(|| advice(text, DURATIONS, OTHER_DURATIONS, DURATION_HELP))?;
    Ok(Duration::from_millis(millis))
}

/// Reads a size in bytes, or says how to write one.
pub(super) fn size(text: &str) -> Result<u64, String> {
    amount(text, SIZES).ok_or_else(|| advice(text, SIZES, OTHER_SIZES, SIZE_HELP))
}

/// A duration as it would be written.
pub(crate) fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), DURATIONS, "0s")
}

/// A size as it would be written.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, SIZES, "0B")
}

fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

fn amount(text: &str, units: &Units) -> Option<u64> {
    let (digits, unit) = split(text);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*factor)
}

fn advice(text: &str, units: &Units, others: &OtherUnits, otherwise: &str) -> String {
    match guess(text, units, others) {
        Some(meant) => format!("did you mean \"{}\"? {otherwise}", show(meant, units, "0")),
        None => otherwise.to_owned(),
    }
}

fn guess(text: &str, units: &Units, others: &OtherUnits) -> Option<u64> {
    let (digits, unit) = split(text.trim());
    let unit = unit.trim().to_ascii_lowercase();
    let (_, times, unit) = others.iter().find(|(names, ..)| names.contains(&unit.as_str()))?;
    let meant = amount(&format!("{digits}{unit}"), units)?;
    meant.checked_mul(*times).filter(|meant| *meant > 0)
}

fn show(amount: u64, units: &Units, zero: &str) -> String {
    let unit = units.iter().find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
    unit.map_or(zero.to_owned(), |(name, factor)| format!("{}{name}", amount / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_alike() {
        for text in ["90s", "15m", "1h", "23h", "30d", "1y", "250ms"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
        assert_eq!(duration("24h").unwrap(), Duration::from_secs(86_400));
        for text in
            ["", "d", "30", "30 d", "-1d", "1.5h", "30D", "99999999999999999999d", "9999999999999999y"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_shown_alike() {
        for text in ["512B", "256KiB", "1MiB", "3GiB"] {
            assert_eq!(show_size(size(text).unwrap()), text);
        }
        for text in ["", "256", "256KB", "1 MiB", "1mib", "-1B"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn advice_guesses_the_unit() {
        let cases = [("30 days", "\"30d\""), ("2w", "\"14d\""), ("6mo", "\"180d\""), ("90", "\"90s\"")];
        for (text, meant) in cases {
            assert!(duration(text).unwrap_err().contains(meant), "{text}");
        }
        assert!(size("256kb").unwrap_err().contains("\"256KiB\""));
        assert_eq!(duration("soon").unwrap_err(), DURATION_HELP);
    }
}
