//! What the story is written on: headings, what was sent and got, and claims, each of which is checked.

use std::fmt::Display;
use std::io::{self, Write};

use serde_json::Value;

/// Columns of a line, its margin included.
const WIDTH: usize = 100;
const MARGIN: &str = "   ";

/// A claim that did not hold.
#[derive(Debug, thiserror::Error)]
#[error("\"{claim}\": expected {expected}, and {came} came")]
pub(super) struct Broken {
    pub claim: String,
    pub expected: Value,
    pub came: Value,
}

#[derive(Debug, Clone, Copy)]
enum Style {
    Heading,
    Sent,
    Got,
    Held,
    Broken,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Heading => "1",
            Style::Sent => "36",
            Style::Got => "33",
            Style::Held => "32",
            Style::Broken => "1;31",
        }
    }
}

pub(super) struct Page<W> {
    out: W,
    colour: bool,
    held: usize,
}

impl<W: Write> Page<W> {
    pub(super) fn new(out: W, colour: bool) -> Self {
        Self { out, colour, held: 0 }
    }

    /// Claims that held so far.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.painted(Style::Heading, text);
        writeln!(self.out, "\n{text}\n")
    }

    pub(super) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    pub(super) fn sent(&mut self, text: impl Display) -> io::Result<()> {
        self.arrow(Style::Sent, "→ ", &text.to_string())
    }

    pub(super) fn got(&mut self, text: impl Display) -> io::Result<()> {
        self.arrow(Style::Got, "← ", &text.to_string())
    }

    /// Holds what came against what was to come. What does not hold is shown, and ends the story.
    pub(super) fn claim(&mut self, claim: &str, expected: Value, came: Value) -> anyhow::Result<()> {
        if expected == came {
            self.held += 1;
            self.arrow(Style::Held, "✓ ", claim)?;
            return Ok(());
        }
        self.arrow(Style::Broken, "✗ ", claim)?;
        self.arrow(Style::Broken, "  expected ", &expected.to_string())?;
        self.arrow(Style::Broken, "  came     ", &came.to_string())?;
        Err(Broken { claim: claim.to_owned(), expected, came }.into())
    }

    fn arrow(&mut self, style: Style, mark: &str, text: &str) -> io::Result<()> {
        let indent = format!("{MARGIN}{}", " ".repeat(mark.chars().count()));
        let lines = filled(text, WIDTH - indent.chars().count());
        let text = self.painted(style, &format!("{mark}{}", lines.join(&format!("\n{indent}"))));
        writeln!(self.out, "{MARGIN}{text}")
    }

    fn painted(&self, style: Style, text: &str) -> String {
        if self.colour { format!("\u{1b}[{}m{text}\u{1b}[0m", style.code()) } else { text.to_owned() }
    }
}

/// Breaks a text after spaces, and JSON after commas as well, into lines of at most `width` columns where it can.
fn filled(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in text.split_inclusive([' ', ',']) {
        let full = lines.last().is_some_and(|line| {
            !line.is_empty() && line.chars().count() + part.trim_end().chars().count() > width
        });
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}
