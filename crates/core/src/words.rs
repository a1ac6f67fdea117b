//! The nouns of the contract as checked types: a value that exists is a value that is right.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::frame::frame;
use crate::limits;
use crate::time::Timestamp;

/// Why a text is not the word it was taken for. Never quotes the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {problem}")]
pub struct InvalidWord {
    what: &'static str,
    problem: String,
}

/// How one kind of word is checked.
struct Rule {
    what: &'static str,
    most: usize,
    allowed: fn(&str) -> Result<(), &'static str>,
}

impl Rule {
    fn check(&self, text: &str) -> Result<(), InvalidWord> {
        let wrong = |problem: String| InvalidWord { what: self.what, problem };
        if text.is_empty() {
            return Err(wrong("is empty".into()));
        }
        if text.len() > self.most {
            return Err(wrong(format!("is longer than {} bytes", self.most)));
        }
        (self.allowed)(text).map_err(|problem| wrong(problem.into()))
    }
}

fn plain(text: &str) -> Result<(), &'static str> {
    let ok = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if text.bytes().all(ok) { Ok(()) } else { Err("may only hold A-Z a-z 0-9 _ -") }
}

fn no_nul(text: &str) -> Result<(), &'static str> {
    if text.contains('\0') { Err("holds U+0000") } else { Ok(()) }
}

fn scope_token(text: &str) -> Result<(), &'static str> {
    // RFC 6749, section 3.3: scope-token = 1*( %x21 / %x23-5B / %x5D-7E )
    let ok = |b: u8| matches!(b, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    if text.bytes().all(ok) { Ok(()) } else { Err("is not a scope token of RFC 6749") }
}

macro_rules! word {
    ($(#[$doc:meta])* $name:ident, $rule:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            const RULE: Rule = $rule;

            /// Checks `text`.
            ///
            /// # Errors
            /// [`InvalidWord`] says which rule the text breaks, without quoting it.
            pub fn parse(text: &str) -> Result<Self, InvalidWord> {
                Self::RULE.check(text)?;
                Ok(Self(text.into()))
            }

            /// The word as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), &*self.0)
            }
        }
    };
}

word!(
    /// The tenant a call acts in; comes only from trusted context.
    Workspace,
    Rule { what: "workspace", most: limits::NAME, allowed: no_nul }
);
word!(
    /// Who calls, as the issuer names them; never an e-mail address or a token.
    Subject,
    Rule { what: "subject", most: limits::NAME, allowed: no_nul }
);
word!(
    /// Who vouches for the subject.
    Issuer,
    Rule { what: "issuer", most: limits::NAME, allowed: no_nul }
);
word!(
    /// One permission, as OAuth writes it (RFC 6749, section 3.3).
    Scope,
    Rule { what: "scope", most: limits::NAME, allowed: scope_token }
);
word!(
    /// The name of a tool. Holds no dot: `tool.revision` is how a call pins a revision.
    ToolName,
    Rule { what: "tool name", most: limits::TOOL_NAME, allowed: plain }
);
word!(
    /// One contract of a tool: schema, SQL, access rule.
    Revision,
    Rule { what: "revision", most: limits::REVISION, allowed: plain }
);
word!(
    /// The caller's name for one intended operation: 1 to 64 of `A-Z a-z 0-9 _ -`.
    RequestId,
    Rule { what: "request id", most: limits::REQUEST_ID, allowed: plain }
);
word!(
    /// The identity of one unbroken history of the database.
    Epoch,
    Rule { what: "epoch", most: limits::REQUEST_ID, allowed: plain }
);

impl RequestId {
    /// A UUIDv7 (RFC 9562) of this instant, its other 74 bits taken from `random`.
    #[must_use]
    pub fn uuid_v7(at: Timestamp, random: u128) -> Self {
        let millis = at.micros().max(0).unsigned_abs() / 1000;
        let fixed = (u128::from(millis) << 80) | (0x7 << 76) | (0x2 << 62);
        let free = (0xfff << 64) | ((1 << 62) - 1);
        let digits = format!("{:032x}", fixed | (random & free));
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        Self(parts.join("-").into())
    }

    /// Enough of the id to find it in a log, not enough to use it.
    #[must_use]
    pub fn short(&self) -> String {
        let head: String = self.0.chars().take(8).collect();
        if head.len() < self.0.len() { format!("{head}…") } else { head }
    }

    /// Lower-case hyphenated UUID of any version: the only form under `request_ids = "uuid"`.
    #[must_use]
    pub fn is_uuid(&self) -> bool {
        uuid(&self.0) && !self.0.bytes().any(|b| b.is_ascii_uppercase())
    }

    /// When the id says it was made: a UUIDv7 (RFC 9562), or an upper-case ULID dated 2020 or later.
    /// Every other id is opaque.
    #[must_use]
    pub fn dated(&self) -> Option<Timestamp> {
        uuid_v7_millis(&self.0).or_else(|| ulid_millis(&self.0)).map(Timestamp::from_millis)
    }
}

/// Is it a hyphenated UUID?
fn uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| {
        if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() }
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// The first 48 bits, which a hyphen parts.
fn uuid_v7_millis(text: &str) -> Option<u64> {
    let (version, variant) = (text.as_bytes().get(14)?, text.as_bytes().get(19)?);
    if !uuid(text) || *version != b'7' || !matches!(variant, b'8' | b'9' | b'a' | b'b' | b'A' | b'B') {
        return None;
    }
    let bits = |at: std::ops::Range<usize>| u64::from_str_radix(&text[at], 16).ok();
    Some(bits(0..8)? << 16 | bits(9..13)?)
}

/// 2020-01-01: ULIDs were not in use before; what looks like an older one is some other id.
const ULID_SINCE_MILLIS: u64 = 1_577_836_800_000;

fn ulid_millis(text: &str) -> Option<u64> {
    const CROCKFORD: &str = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    if text.len() != 26 || text.as_bytes()[0] > b'7' {
        return None;
    }
    let digits = text.chars().map(|c| CROCKFORD.find(c).map(|d| d as u64)).collect::<Option<Vec<_>>>()?;
    let millis = digits.iter().take(10).fold(0, |all, digit| all * 32 + digit);
    (millis >= ULID_SINCE_MILLIS).then_some(millis)
}

/// A tool at one of its revisions, `set_interval.v1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToolRevision {
    /// The tool.
    pub tool: ToolName,
    /// Its revision.
    pub revision: Revision,
}

impl ToolRevision {
    /// Reads `tool` or `tool.revision`.
    ///
    /// # Errors
    /// [`InvalidWord`] for either half.
    pub fn split(name: &str) -> Result<(ToolName, Option<Revision>), InvalidWord> {
        match name.split_once('.') {
            None => Ok((ToolName::parse(name)?, None)),
            Some((tool, revision)) => Ok((ToolName::parse(tool)?, Some(Revision::parse(revision)?))),
        }
    }
}

impl fmt::Display for ToolRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.tool, self.revision)
    }
}

/// Who calls: issuer, subject, workspace and scopes. Made by authentication code, never from arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Who vouches for the subject.
    pub issuer: Issuer,
    /// Who calls.
    pub subject: Subject,
    /// The tenant they act in.
    pub workspace: Workspace,
    /// What they may do.
    pub scopes: BTreeSet<Scope>,
}

impl Principal {
    /// An opaque name for this caller, `dev.counterfoil/caller` on the wire: equal for equal issuer, subject and
    /// workspace, and telling nothing else.
    #[must_use]
    pub fn caller(&self) -> String {
        let mut hash = Sha256::new();
        let parts =
            ["counterfoil.caller.v1", self.issuer.as_str(), self.subject.as_str(), self.workspace.as_str()];
        for part in parts {
            frame(&mut hash, part.as_bytes());
        }
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_are_one_to_sixty_four_plain_characters() {
        let long = "x".repeat(65);
        let cases = [
            ("edit-42", true),
            ("A", true),
            (&long[..64], true),
            (&long, false),
            ("", false),
            ("with space", false),
            ("k1 ", false),
            ("a.b", false),
            ("é", false),
            ("a\0b", false),
        ];
        for (text, fine) in cases {
            assert_eq!(RequestId::parse(text).is_ok(), fine, "{text:?}");
        }
    }

    #[test]
    fn only_uuid_v7_and_recent_ulids_are_dated() {
        let cases = [
            ("01932f3e-7b00-7000-8000-000000000000", Some(1_731_664_444_160)),
            ("01932F3E-7B00-7000-8000-000000000000", Some(1_731_664_444_160)),
            ("01932f3e-7b00-4000-8000-000000000000", None),
            ("01932f3e-7b00-7000-c000-000000000000", None),
            ("01JCQKWYR00000000000000000", Some(1_731_664_444_160)),
            ("01jcqkwyr00000000000000000", None),
            ("00000000000000000000000000", None),
            ("01DXF6DSZZZZZZZZZZZZZZZZZZ", None),
            ("01DXF6DT000000000000000000", Some(1_577_836_800_000)),
            ("81JCQKWYR00000000000000000", None),
            ("edit-42", None),
        ];
        for (text, millis) in cases {
            let dated = RequestId::parse(text).unwrap().dated();
            assert_eq!(dated, millis.map(Timestamp::from_millis), "{text}");
        }
    }

    #[test]
    fn a_made_uuid_v7_is_one_and_tells_its_date() {
        for random in [0, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let at = Timestamp::from_millis(1_731_664_444_160);
            let id = RequestId::uuid_v7(at, random);
            assert_eq!(RequestId::parse(id.as_str()), Ok(id.clone()));
            assert!(id.is_uuid(), "{id}");
            assert_eq!(id.dated(), Some(at), "{id}");
        }
        let id = RequestId::uuid_v7(Timestamp::from_millis(1_731_664_444_160), u128::MAX);
        assert_eq!(id.as_str(), "01932f3e-7b00-7fff-bfff-ffffffffffff");
    }

    #[test]
    fn callers_with_joined_names_differ() {
        let principal = |issuer: &str, subject: &str, workspace: &str| Principal {
            issuer: Issuer::parse(issuer).unwrap(),
            subject: Subject::parse(subject).unwrap(),
            workspace: Workspace::parse(workspace).unwrap(),
            scopes: BTreeSet::new(),
        };
        let names =
            [("i", "c", "a|b"), ("i", "b|c", "a"), ("i", "a\n", "b"), ("i", "a", "\nb"), ("ia", "b", "c")];
        let hashes: BTreeSet<String> = names.iter().map(|(i, s, w)| principal(i, s, w).caller()).collect();
        assert_eq!(hashes.len(), names.len());
    }
}
