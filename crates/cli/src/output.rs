//! Writing to standard output as a good neighbour of other programs.

use std::io::{ErrorKind, IsTerminal, Write as _};

/// Writes `text` to standard output. A reader that has seen enough and left, such as `head`, is no failure.
///
/// # Errors
/// The output cannot be written, to a full disk for instance.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether `stream` is to be coloured: a terminal, unless `NO_COLOR` says something.
pub(crate) fn coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// `text` without the power to move a cursor or forge a line: whoever calls may choose the words of a receipt.
pub(crate) fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}
