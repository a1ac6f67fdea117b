//! A bearer token: read from the environment or a file, never shown.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::limits;

/// A secret. `Debug` shows none of it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

/// Why there is no token. Never quotes it.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    /// The variable is not set, or not text.
    #[error("the environment variable {0} holds no token")]
    Variable(String),
    /// The file cannot be read.
    #[error("the token file cannot be read")]
    File(#[source] std::io::Error),
    /// Empty, too long, or with characters that no token has (RFC 6750, section 2.1).
    #[error("what was given is no bearer token")]
    Malformed,
}

impl Token {
    /// Takes a token; blanks around it are dropped.
    ///
    /// # Errors
    /// [`NoToken::Malformed`]
    pub fn parse(text: &str) -> Result<Self, NoToken> {
        let text = text.trim();
        let fine = (1..=limits::TOKEN).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fine { Ok(Self(text.into())) } else { Err(NoToken::Malformed) }
    }

    /// Reads the environment variable `name`.
    ///
    /// # Errors
    /// [`NoToken`]
    pub fn from_env(name: &str) -> Result<Self, NoToken> {
        let text = std::env::var(name).map_err(|_| NoToken::Variable(name.to_owned()))?;
        Self::parse(&text)
    }

    /// Reads a file that holds nothing else.
    ///
    /// # Errors
    /// [`NoToken`]
    pub fn from_file(path: &Path) -> Result<Self, NoToken> {
        let mut text = String::new();
        let most = limits::TOKEN as u64 + 2;
        let file = File::open(path).map_err(NoToken::File)?;
        file.take(most).read_to_string(&mut text).map_err(NoToken::File)?;
        Self::parse(&text)
    }

    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_strictly_and_never_shown() {
        let long = "x".repeat(limits::TOKEN + 1);
        let cases = [
            ("alice-local-token", true),
            (" alice-local-token\n", true),
            ("", false),
            ("two words", false),
            ("x\r\nHost: y", false),
            ("é", false),
            (&long, false),
        ];
        for (text, fine) in cases {
            let token = Token::parse(text);
            assert_eq!(token.is_ok(), fine, "{text:?}");
            assert!(text.trim().is_empty() || !format!("{token:?}").contains(text.trim()), "{token:?}");
        }
    }
}
