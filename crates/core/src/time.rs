//! Instants and windows. Nothing here reads a clock.

use std::fmt;
use std::time::Duration;

/// An instant in UTC, in whole microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// One day: how far ahead of the clock an id may date itself, and the slack added to every removal.
pub const DAY: Duration = Duration::from_secs(86_400);

impl Timestamp {
    /// Earliest and latest instants that RFC 3339 can write: years 0000 to 9999.
    const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200_000_000..=253_402_207_199_999_999;

    /// From microseconds since 1970; out-of-range values are clamped to the years 0000 to 9999.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        let (first, last) = (*Self::RANGE.start(), *Self::RANGE.end());
        // `Ord::clamp` is not const.
        Self(if micros < first {
            first
        } else if micros > last {
            last
        } else {
            micros
        })
    }

    /// From milliseconds since 1970, as UUIDv7 and ULID carry them.
    #[must_use]
    pub fn from_millis(millis: u64) -> Self {
        Self::from_micros(i64::try_from(millis.saturating_mul(1000)).unwrap_or(i64::MAX))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub fn micros(self) -> i64 {
        self.0
    }

    /// This instant moved forward by `by`.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(by)))
    }

    /// This instant moved back by `by`.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros(by)))
    }

    /// Reads RFC 3339.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let instant: jiff::Timestamp = text.parse().map_err(|e: jiff::Error| e.to_string())?;
        Ok(Self::from_micros(instant.as_microsecond()))
    }
}

fn micros(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC with six decimals and `Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(instant) => write!(f, "{instant:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_with_six_decimals() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (1, "1970-01-01T00:00:00.000001Z"),
            (1_796_000_000_123_456, "2026-11-30T00:53:20.123456Z"),
            (i64::MIN, "0000-01-01T00:00:00.000000Z"),
            (i64::MAX, "9999-12-30T21:59:59.999999Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
            assert_eq!(Timestamp::parse(text), Ok(Timestamp::from_micros(micros)));
        }
    }
}
