//! `keep` and `remember`: written for all tools under `[receipts]`, and for one tool beside its `write`.

use std::time::Duration;

use counterfoil_core::Windows;

use super::reader::{Table, duration};
use super::{Spanned, bounds, maybe, units};
use crate::diagnostics::{Diagnostic, Report, Span};

/// Windows as written; what is not written comes from further out.
#[derive(Clone, Debug, Default)]
pub struct WrittenWindows {
    /// How long results are replayable.
    pub keep: Option<Spanned<Duration>>,
    /// How long the fact that they committed is known.
    pub remember: Option<Spanned<Duration>>,
}

impl WrittenWindows {
    /// What is written, laid over `base`.
    pub fn over(&self, base: Windows) -> Windows {
        Windows {
            keep: self.keep.as_ref().map_or(base.keep, |keep| keep.value),
            remember: self.remember.as_ref().map_or(base.remember, |remember| remember.value),
        }
    }

    fn is_written(&self) -> bool {
        self.keep.is_some() || self.remember.is_some()
    }

    /// Reads both. `outer` is what holds for what is not written here; `None` if that could not be read.
    pub(super) fn read(report: &mut Report, table: &mut Table<'_>, outer: Option<&Self>) -> Option<Self> {
        let keep = table.optional("keep");
        let keep = maybe(report, keep, |report, node| duration(report, node, bounds::WINDOW));
        let remember = table.optional("remember");
        let remember = maybe(report, remember, |report, node| duration(report, node, bounds::WINDOW));
        let written = WrittenWindows { keep: keep?, remember: remember? };
        if written.is_written()
            && let Some(outer) = outer
        {
            written.fit(report, outer);
        }
        Some(written)
    }

    /// `remember` must not be shorter than `keep`, wherever the two were written.
    fn fit(&self, report: &mut Report, outer: &Self) {
        let windows = self.over(outer.over(Windows::default()));
        if windows.remember >= windows.keep {
            return;
        }
        let (keep, remember) = (units::show_duration(windows.keep), units::show_duration(windows.remember));
        let spots = [
            (self.remember.as_ref().map(span), "and known this long"),
            (self.keep.as_ref().map(span), "results are kept this long"),
            (outer.remember.as_ref().filter(|_| self.remember.is_none()).map(span), "and known this long"),
            (outer.keep.as_ref().filter(|_| self.keep.is_none()).map(span), "results are kept this long"),
        ];
        let diagnostic =
            Diagnostic::error(format!("`remember` (\"{remember}\") is shorter than `keep` (\"{keep}\")"));
        let diagnostic = spots
            .into_iter()
            .filter_map(|(span, text)| span.map(|span| (span, text)))
            .fold(diagnostic, |diagnostic, (span, text)| diagnostic.at(span, text));
        report.push(diagnostic.help(format!("write `remember = \"{keep}\"` or more, or a shorter `keep`")));
    }
}

fn span(written: &Spanned<Duration>) -> Span {
    written.span.clone()
}
