//! Lines in, lines out: the bounded reading and the ordered writing of a stdio session. Knows nothing of MCP.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Answers that may wait for the writer.
const WAITING: usize = 64;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line longer than the limit. It is skipped, not kept.
    TooLong,
}

/// Reads lines of at most `limit` bytes, in memory bounded by it.
pub struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    /// The rest of a line that was too long is being skipped.
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads from `reader`.
    pub fn new(reader: R, limit: usize) -> Self {
        Self { reader: BufReader::new(reader), limit, line: Vec::new(), skipping: false }
    }

    /// The next line that is not empty; `None` at the end. An unfinished last line is a line.
    ///
    /// Dropping the future loses nothing: what was read so far is kept here.
    ///
    /// # Errors
    /// What the reader says.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(self.last());
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            let fits = !self.skipping && self.line.len() + part.len() <= self.limit;
            if fits {
                self.line.extend_from_slice(part);
            }
            let taken = part.len() + usize::from(end.is_some());
            self.reader.consume(taken);
            if let Some(line) = self.step(fits, end.is_some()) {
                return Ok(Some(line));
            }
        }
    }

    /// What the part just read makes of the line.
    fn step(&mut self, fits: bool, ended: bool) -> Option<Line> {
        let refused = !fits && !self.skipping;
        self.skipping = !fits && !ended;
        if refused {
            self.line.clear();
            return Some(Line::TooLong);
        }
        if ended { self.take() } else { None }
    }

    fn last(&mut self) -> Option<Line> {
        self.skipping = false;
        self.take()
    }

    fn take(&mut self) -> Option<Line> {
        let mut line = std::mem::take(&mut self.line);
        while line.last() == Some(&b'\r') {
            line.pop();
        }
        (!line.trim_ascii().is_empty()).then_some(Line::Whole(line))
    }
}

/// A task that writes whole lines, one after the other: a dropped sender never leaves half a line behind.
pub struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
    task: JoinHandle<io::Result<()>>,
}

impl Writer {
    /// Writes to `out` until it is closed.
    pub fn spawn<W: AsyncWrite + Unpin + Send + 'static>(out: W) -> Self {
        let (lines, waiting) = mpsc::channel(WAITING);
        Self { lines, task: tokio::spawn(write(out, waiting)) }
    }

    /// Where lines go in. Each is given without its end.
    #[must_use]
    pub fn lines(&self) -> mpsc::Sender<Vec<u8>> {
        self.lines.clone()
    }

    /// Waits until everything that was sent has been written. All other senders must be gone, or it waits for them.
    ///
    /// # Errors
    /// What the output says.
    pub async fn close(self) -> io::Result<()> {
        drop(self.lines);
        self.task.await.map_err(io::Error::other)?
    }
}

async fn write<W: AsyncWrite + Unpin>(mut out: W, mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        out.write_all(&line).await?;
        if lines.is_empty() {
            out.flush().await?;
        }
    }
    out.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(text: &str, expected: &[Option<&str>]) {
        let mut lines = Lines::new(text.as_bytes(), 8);
        let mut got = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            got.push(match line {
                Line::Whole(line) => Some(String::from_utf8(line).unwrap()),
                Line::TooLong => None,
            });
        }
        let got: Vec<Option<&str>> = got.iter().map(Option::as_deref).collect();
        assert_eq!(got, expected, "{text:?}");
    }

    #[tokio::test]
    async fn lines_are_bounded() {
        let cases: &[(&str, &[Option<&str>])] = &[
            ("", &[]),
            ("\n\n \r\n", &[]),
            ("a\nb\r\nc", &[Some("a"), Some("b"), Some("c")]),
            ("12345678\n", &[Some("12345678")]),
            ("123456789\nb\n", &[None, Some("b")]),
            ("123456789", &[None]),
            ("a\n123456789\n123456789\nb", &[Some("a"), None, None, Some("b")]),
        ];
        for (text, expected) in cases {
            check(text, expected).await;
        }
        let long = format!("{}\nb\n", "x".repeat(100_000));
        check(&long, &[None, Some("b")]).await;
    }
}
