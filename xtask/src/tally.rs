//! Counts of tests: read from the lines runners print, added up, and closed with one plain line.

use std::ops::AddAssign;

use anyhow::{Result, bail};

/// How many tests passed, failed and were left out.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// A run that broke before it could count anything.
    pub(crate) const BROKEN: Self = Self { passed: 0, failed: 1, skipped: 0 };
    /// A run that was left out.
    pub(crate) const LEFT_OUT: Self = Self { passed: 0, failed: 0, skipped: 1 };

    /// The counts of one test binary, from libtest's `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    pub(crate) fn of_libtest(line: &str) -> Option<Self> {
        Self::of_words(line.trim().strip_prefix("test result: ")?)
    }

    /// The counts of a whole run, from a line that is only `12 passed, 0 failed` or `…, 3 skipped`.
    pub(crate) fn of_closing_line(line: &str) -> Option<Self> {
        let line = line.trim();
        let tally = Self::of_words(line)?;
        (tally.to_string() == line).then_some(tally)
    }

    fn of_words(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
        let before = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
        };
        let skipped = before("ignored").or_else(|| before("skipped")).unwrap_or(0);
        Some(Self { passed: before("passed")?, failed: before("failed")?, skipped })
    }

    /// The tally itself if nothing in it failed.
    pub(crate) fn passed(self) -> Result<Self> {
        if self.failed > 0 {
            println!("{self}");
            bail!("{} failed", self.failed);
        }
        Ok(self)
    }

    /// Print the closing line; it is the last thing on standard output.
    pub(crate) fn close(self) -> Result<()> {
        let tally = self.passed()?;
        println!("{tally}");
        Ok(())
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(to, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(libtest: bool, line: &str, expected: Option<(u64, u64, u64)>) {
        let read = if libtest { Tally::of_libtest(line) } else { Tally::of_closing_line(line) };
        let expected = expected.map(|(passed, failed, skipped)| Tally { passed, failed, skipped });
        assert_eq!(read, expected, "{line:?}");
    }

    #[test]
    fn the_lines_of_runners() {
        let ok =
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s";
        check(true, ok, Some((3, 0, 1)));
        check(true, "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured", Some((1, 2, 0)));
        check(true, "test decide::replays ... ok", None);
        check(false, "12 passed, 0 failed", Some((12, 0, 0)));
        check(false, "12 passed, 1 failed, 3 skipped\n", Some((12, 1, 3)));
        check(false, "python: 12 passed, 0 failed", None);
        check(false, "passed", None);
    }

    #[test]
    fn the_closing_line_reads_as_it_was_written() {
        let mut sum = Tally { passed: 2, failed: 0, skipped: 0 };
        sum += Tally::LEFT_OUT;
        assert_eq!(sum.to_string(), "2 passed, 0 failed, 1 skipped");
        assert!(sum.passed().is_ok());
        sum += Tally::BROKEN;
        assert_eq!(Tally::of_closing_line(&sum.to_string()), Some(sum));
        assert!(sum.passed().is_err());
    }
}
