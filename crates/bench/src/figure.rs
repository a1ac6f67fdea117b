//! Rounds of two programs in turns, and the line that tells what came out.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Rounds that count; one more runs before them, to warm up.
const ROUNDS: usize = 9;

/// One figure: what it is called, what it must reach, and how it is measured in a directory of its own with slices
/// of a given length.
pub(crate) struct Figure {
    pub name: &'static str,
    pub bar: f64,
    pub measure: fn(&Path, Duration) -> anyhow::Result<Vec<Round>>,
}

/// Calls a second of both programs, one right after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub ours: f64,
    pub baseline: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.ours / self.baseline
    }
}

/// Runs the two in turns, and in the other order every second time, so that a drift favours neither.
pub(crate) fn rounds(
    mut ours: impl FnMut() -> anyhow::Result<f64>,
    mut baseline: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for number in 0..=ROUNDS {
        let round = if number % 2 == 0 {
            let ours = ours()?;
            Round { ours, baseline: baseline()? }
        } else {
            let baseline = baseline()?;
            Round { ours: ours()?, baseline }
        };
        rounds.push(round);
    }
    rounds.remove(0);
    Ok(rounds)
}

/// Calls a second of `call`, repeated for `slice` and at least once. `call` tells how many calls it made.
pub(crate) fn rate(slice: Duration, mut call: impl FnMut() -> anyhow::Result<u32>) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut made = call()?;
    while start.elapsed() < slice {
        made += call()?;
    }
    Ok(per_second(made, start))
}

pub(crate) fn per_second(calls: u32, since: Instant) -> f64 {
    f64::from(calls) / since.elapsed().as_secs_f64()
}

impl Figure {
    /// Medians over the rounds; the ratio's is that of the rounds' own ratios, with their quartiles as its spread.
    pub(crate) fn line(&self, rounds: &[Round], commit: Option<&str>) -> Value {
        let sorted = |of: fn(&Round) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (ratios, ours) = (sorted(Round::ratio), sorted(|round| round.ours));
        let baseline = sorted(|round| round.baseline);
        let ratio = quantile(&ratios, 0.5);
        let mut line = json!({
            "bench": self.name,
            "ratio": thousandths(ratio),
            "ours": quantile(&ours, 0.5).round(),
            "baseline": quantile(&baseline, 0.5).round(),
            "unit": "calls/s",
            "spread": [thousandths(quantile(&ratios, 0.25)), thousandths(quantile(&ratios, 0.75))],
            "rounds": rounds.len(),
            "bar": self.bar,
            "met": ratio >= self.bar,
        });
        if let Some(commit) = commit {
            line["commit"] = commit.into();
        }
        line
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// By the nearest rank of sorted values.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a rank"
    )]
    let rank = (last as f64 * share).round() as usize;
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_medians_spread_and_bar() {
        let figure = Figure { name: "f", bar: 0.5, measure: |_, _| Ok(Vec::new()) };
        let round = |ours, baseline| Round { ours, baseline };
        let rounds = [round(50.0, 100.0), round(10.0, 100.0), round(60.0, 100.0)];
        let line = figure.line(&rounds, Some("abc"));
        assert_eq!(
            (&line["ratio"], &line["met"], &line["commit"]),
            (&0.5.into(), &true.into(), &"abc".into())
        );
        assert_eq!(line["spread"], json!([0.5, 0.6]));
    }
}
