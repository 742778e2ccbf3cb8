//! Instants, as every part of the program writes them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An instant in milliseconds since the Unix epoch, UTC.
///
/// The core never asks a clock: whoever acts passes the time in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Timestamp(i64);

impl Timestamp {
    /// From the year 0 to the last instants of 9999: what RFC 3339 can write in any time zone.
    const RANGE: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_207_200_000;

    /// Returns the instant `ms` after the epoch, or `None` when no calendar date names it.
    pub fn from_millis(ms: i64) -> Option<Self> {
        Self::RANGE.contains(&ms).then_some(Self(ms))
    }

    /// Returns the nearest instant that a calendar date can name.
    ///
    /// For values read back from storage, where a damaged number must not
    /// cost more than itself.
    pub fn from_millis_clamped(ms: i64) -> Self {
        Self(ms.clamp(*Self::RANGE.start(), *Self::RANGE.end()))
    }

    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339 with any offset; the instant counts, not its spelling.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let at: jiff::Timestamp = text.trim().parse().ok()?;
        Self::from_millis(at.as_millisecond())
    }

    /// Returns the instant this many whole days earlier.
    pub fn days_before(self, days: u32) -> Self {
        Self::from_millis_clamped(self.0.saturating_sub(i64::from(days) * 86_400_000))
    }
}

/// A number of milliseconds that no calendar date names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timestamp {0} is outside the calendar: expected milliseconds since 1970")]
pub struct OutsideCalendar(pub i64);

impl TryFrom<i64> for Timestamp {
    type Error = OutsideCalendar;

    fn try_from(ms: i64) -> Result<Self, Self::Error> {
        Self::from_millis(ms).ok_or(OutsideCalendar(ms))
    }
}

impl From<Timestamp> for i64 {
    fn from(at: Timestamp) -> Self {
        at.0
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC; a fraction only when there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        if self.0 % 1000 == 0 { write!(f, "{at:.0}") } else { write!(f, "{at:.3}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_write_rfc3339_as_instants() {
        let check = |text: &str, written: &str| {
            assert_eq!(Timestamp::parse_rfc3339(text).expect(text).to_string(), written);
        };
        check("2026-11-10T12:00:00Z", "2026-11-10T12:00:00Z");
        check("2026-11-10T12:00:00.120Z", "2026-11-10T12:00:00.120Z");
        check("2026-11-10T14:00:00+02:00", "2026-11-10T12:00:00Z");
        assert_eq!(Timestamp::parse_rfc3339("yesterday"), None);
        assert_eq!(Timestamp::from_millis(i64::MAX), None);
        assert_eq!(Timestamp::from_millis_clamped(i64::MAX).to_string(), "9999-12-30T22:00:00Z");
    }
}
