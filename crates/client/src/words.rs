//! The client's own nouns as checked types.

use std::fmt;

use reqwest::Url;

use crate::limits;

/// Why a text is not the word it was taken for. Never quotes the text, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidWord {
    what: &'static str,
    problem: &'static str,
}

/// A server with its workspace path: `https://tools.example.com/team-a/mcp`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl(Url);

impl ServerUrl {
    /// Reads and normalises a URL.
    ///
    /// # Errors
    /// It is not an http or https URL, or it holds a user, a password or a fragment.
    pub fn parse(text: &str) -> Result<Self, InvalidWord> {
        let wrong = |problem| InvalidWord { what: "the server's URL", problem };
        let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("is neither http:// nor https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user or a password: give a token by environment or file"));
        }
        if url.fragment().is_some() {
            return Err(wrong("holds a fragment"));
        }
        if url.as_str().len() > limits::URL {
            return Err(wrong("is too long"));
        }
        Ok(Self(url))
    }

    /// The normalised text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// What is sent to it can be read on the way: plain HTTP to another machine.
    #[must_use]
    pub fn in_the_clear(&self) -> bool {
        let loopback = match self.0.host_str() {
            Some("localhost" | "[::1]") => true,
            Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
            None => false,
        };
        self.0.scheme() == "http" && !loopback
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerUrl({self})")
    }
}

/// Who we are to a server: what the server calls us, else the name of the identity in use.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller(Box<str>);

impl Caller {
    const SERVER: &str = "server:";
    const IDENTITY: &str = "identity:";

    /// The server's word, `dev.counterfoil/caller`.
    ///
    /// # Errors
    /// Empty or too long.
    pub fn of_server(word: &str) -> Result<Self, InvalidWord> {
        Self::checked(Self::SERVER, word)
    }

    /// The name of a configured identity, for a server that says nothing.
    ///
    /// # Errors
    /// Empty or too long.
    pub fn of_identity(name: &str) -> Result<Self, InvalidWord> {
        Self::checked(Self::IDENTITY, name)
    }

    /// Reads what [`Caller::as_str`] wrote.
    ///
    /// # Errors
    /// It was not written by it.
    pub fn parse(text: &str) -> Result<Self, InvalidWord> {
        let kind = [Self::SERVER, Self::IDENTITY].into_iter().find(|kind| text.starts_with(kind));
        match kind {
            Some(kind) => Self::checked(kind, &text[kind.len()..]),
            None => Err(InvalidWord { what: "the caller", problem: "is of no known kind" }),
        }
    }

    fn checked(kind: &str, word: &str) -> Result<Self, InvalidWord> {
        let wrong = |problem| Err(InvalidWord { what: "the caller", problem });
        if word.is_empty() {
            return wrong("has no name");
        }
        if word.len() > limits::CALLER - kind.len() || word.contains('\0') {
            return wrong("has a name that is too long or holds U+0000");
        }
        Ok(Self(format!("{kind}{word}").into()))
    }

    /// Kind and name; the two kinds never meet.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a tool of any server: 1 to 256 bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tool(Box<str>);

impl Tool {
    const MOST: usize = 256;

    /// Checks `text`.
    ///
    /// # Errors
    /// Empty, too long, or with control characters.
    pub fn parse(text: &str) -> Result<Self, InvalidWord> {
        let fine = !text.is_empty() && text.len() <= Self::MOST && !text.chars().any(char::is_control);
        let problem = "must have 1 to 256 bytes and no control characters";
        if fine { Ok(Self(text.into())) } else { Err(InvalidWord { what: "the tool's name", problem }) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_hold_no_secrets_and_are_normalised() {
        let cases = [
            ("https://tools.example.com", Some("https://tools.example.com/")),
            ("HTTPS://Tools.Example.com:443/team-a/mcp", Some("https://tools.example.com/team-a/mcp")),
            ("http://127.0.0.1:8080/mcp", Some("http://127.0.0.1:8080/mcp")),
            ("https://alice:secret@tools.example.com/", None),
            ("https://alice@tools.example.com/", None),
            ("https://tools.example.com/#x", None),
            ("ftp://tools.example.com/", None),
            ("tools.example.com", None),
        ];
        for (text, expected) in cases {
            let parsed = ServerUrl::parse(text);
            assert_eq!(parsed.as_ref().ok().map(ServerUrl::as_str), expected, "{text}");
            assert!(!format!("{parsed:?}").contains("secret"), "{parsed:?}");
        }
    }

    #[test]
    fn only_loopback_is_private_without_tls() {
        let cases = [
            ("http://localhost:1/", false),
            ("http://127.9.9.9/", false),
            ("http://[::1]/", false),
            ("https://example.com/", false),
            ("http://example.com/", true),
            ("http://10.0.0.1/", true),
            ("http://127.0.0.1.example.com/", true),
        ];
        for (text, clear) in cases {
            assert_eq!(ServerUrl::parse(text).unwrap().in_the_clear(), clear, "{text}");
        }
    }

    #[test]
    fn an_identity_is_never_taken_for_a_word_of_the_server() {
        let (server, identity) = (Caller::of_server("a").unwrap(), Caller::of_identity("a").unwrap());
        assert_ne!(server, identity);
        for caller in [server, identity] {
            assert_eq!(Caller::parse(caller.as_str()), Ok(caller));
        }
        assert!(Caller::parse("a").is_err());
        assert!(Caller::of_server("").is_err());
    }
}
