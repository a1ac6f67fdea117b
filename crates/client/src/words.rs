//! The client's own nouns as checked types.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use reqwest::Url;
use sha2::{Digest as _, Sha256};

use crate::limits;

/// Why a text is not the word it was taken for. Never quotes the text, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidWord {
    what: &'static str,
    problem: &'static str,
}

/// A server with its workspace path: `https://tools.example.com/team-a/mcp`; or a command that speaks over standard
/// input and output: `stdio:NAME/HASH`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl(Url);

/// The scheme of a server that is a command.
const COMMAND: &str = "stdio";

impl ServerUrl {
    /// Reads and normalises a URL.
    ///
    /// # Errors
    /// It is not an http or https URL, or it holds a user, a password or a fragment.
    pub fn parse(text: &str) -> Result<Self, InvalidWord> {
        let wrong = |problem| InvalidWord { what: "the server's URL", problem };
        let url = Url::parse(text).map_err(|_| wrong("is not a URL"))?;
        if url.scheme() == COMMAND && url.as_str().len() <= limits::URL {
            return Ok(Self(url));
        }
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

    /// A command, run in `folder`. Its arguments may hold secrets: only a hash of them is kept.
    ///
    /// # Errors
    /// There is no program in it.
    pub fn of_command(command: &[OsString], folder: &Path) -> Result<Self, InvalidWord> {
        let wrong = |problem| InvalidWord { what: "the command", problem };
        let program = command.first().ok_or(wrong("is empty"))?;
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
        let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = name.chars().map(word).take(64).collect();
        let mut hash = Sha256::new();
        for part in [folder.as_os_str()].into_iter().chain(command.iter().map(OsString::as_os_str)) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_encoded_bytes());
        }
        let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self::parse(&format!("{COMMAND}:{name}/{hash}"))
    }

    /// It is a command, which only the proxy in front of it reaches.
    #[must_use]
    pub fn is_command(&self) -> bool {
        self.0.scheme() == COMMAND
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
    fn a_command_is_named_without_its_arguments() {
        let named = |words: &[&str], folder: &str| {
            let words: Vec<OsString> = words.iter().map(Into::into).collect();
            ServerUrl::of_command(&words, Path::new(folder)).unwrap()
        };
        let one = named(&["/usr/bin/my server", "--key", "secret"], "/a");
        assert!(one.as_str().starts_with("stdio:my_server/") && !one.as_str().contains("secret"), "{one}");
        assert_eq!(ServerUrl::parse(one.as_str()).as_ref(), Ok(&one));
        assert!(one.is_command() && !one.in_the_clear());
        for other in [
            named(&["/usr/bin/my server", "--key", "other"], "/a"),
            named(&["/usr/bin/my server", "--keysecret"], "/a"),
            named(&["/usr/bin/my server", "--key", "secret"], "/b"),
        ] {
            assert_ne!(one, other);
        }
        assert!(ServerUrl::of_command(&[], Path::new("/")).is_err());
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
