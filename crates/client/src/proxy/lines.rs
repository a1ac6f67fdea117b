//! One message a line, each of bounded length.

use std::borrow::Cow;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// With something in it.
    Text(String),
    /// No UTF-8.
    NotText,
    /// Longer than the bound; it was passed over.
    TooLong,
    /// There are no more.
    End,
}

/// A message as one line: an end of line can only be a blank between two words of it.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.contains(['\n', '\r']) {
        Cow::Owned(text.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(text)
    }
}

/// Cuts a stream into lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    from: R,
    most: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(from: R, most: usize) -> Self {
        Self { from, most }
    }

    /// The next line that is not empty.
    pub(crate) async fn next(&mut self) -> std::io::Result<Line> {
        loop {
            match self.line().await? {
                Line::Text(text) if text.trim().is_empty() => {}
                line @ (Line::Text(_) | Line::NotText | Line::TooLong | Line::End) => return Ok(line),
            }
        }
    }

    /// Not cancel-safe: what was read of a line is lost with it.
    async fn line(&mut self) -> std::io::Result<Line> {
        let (mut line, mut too_long) = (Vec::new(), false);
        loop {
            let chunk = self.from.fill_buf().await?;
            if chunk.is_empty() {
                // A last line without its end is no message.
                return Ok(if too_long { Line::TooLong } else { Line::End });
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            too_long |= part.len() > self.most - line.len();
            if !too_long {
                line.extend_from_slice(part);
            }
            let read = part.len() + usize::from(end.is_some());
            self.from.consume(read);
            if end.is_some() {
                return Ok(match String::from_utf8(line) {
                    _ if too_long => Line::TooLong,
                    Ok(text) => Line::Text(text),
                    Err(_) => Line::NotText,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_what_is_too_long_is_passed_over() {
        let text = |text: &str| Line::Text(text.into());
        let cases: [(&[u8], &[Line]); 5] = [
            (b"a\n\n  \nbb\r\n", &[text("a"), text("bb\r"), Line::End]),
            (b"12345678\n123456789\nx\n", &[text("12345678"), Line::TooLong, text("x"), Line::End]),
            (b"\xff\nx\n", &[Line::NotText, text("x"), Line::End]),
            (b"unended", &[Line::End]),
            (b"", &[Line::End]),
        ];
        for (bytes, expected) in cases {
            let mut lines = Lines::new(tokio::io::BufReader::with_capacity(3, bytes), 8);
            for line in expected {
                assert_eq!(lines.next().await.unwrap(), *line, "{bytes:?}");
            }
        }
    }
}
