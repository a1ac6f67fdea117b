//! Who is calling over HTTP: opaque bearer tokens, of which only the hash is known here, and signed tokens of the
//! issuers that are trusted.
//!
//! A token is read from one place, the `Authorization` header. It is never looked for in a URL or an argument, and
//! never shown: not in an error, not in `Debug`, not in a log. It is sent to nobody.

mod algorithm;
mod jwks;
mod jwt;
mod key;

use std::fmt;
use std::sync::Arc;

use counterfoil::Clock;
use counterfoil_core::Principal;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

pub use algorithm::Algorithm;
pub use jwks::{FRESH, NoClient, PATIENCE, PAUSE, SIZE, STALE, Source};
pub use jwt::Trusted;

pub(crate) use jwks::read_file;
pub(crate) use key::usable;

/// Longest token that is looked at, in bytes.
const TOKEN: usize = 16 << 10;

/// SHA-256 of a token. `Debug` shows nothing of it: whoever reads a log could try words against it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash(pub [u8; 32]);

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// One known token and whom it stands for.
#[derive(Clone)]
pub struct TokenEntry {
    /// SHA-256 of the token's bytes.
    pub sha256: TokenHash,
    /// Whom it stands for.
    pub principal: Arc<Principal>,
}

impl fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenEntry").field("principal", &self.principal).finish_non_exhaustive()
    }
}

/// Why there is no principal. None of these quotes what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No `Authorization` header.
    #[error("This server takes no anonymous calls. Send the header \"Authorization: Bearer TOKEN\".")]
    Missing,
    /// More than one `Authorization` header.
    #[error("Send the Authorization header once.")]
    Repeated,
    /// Not a bearer token.
    #[error("The Authorization header must read \"Bearer TOKEN\".")]
    Malformed,
    /// A bearer token that nobody here knows, or that is not valid: what is wrong with it is never said.
    #[error("This token is not valid here. Get a new one, or ask the operator of this server.")]
    Unknown,
    /// The token does not list the workspace of the path.
    #[error("This token does not reach the workspace that the path names.")]
    Elsewhere,
    /// The token lists several workspaces, and the path names none.
    #[error("This token lists several workspaces: name one in the path, as /mcp/WORKSPACE.")]
    Undecided,
    /// The issuer's keys are out of reach, so that no token of its can be judged.
    #[error("This token cannot be checked now. Send the same request again later.")]
    Unavailable,
}

impl Denied {
    /// The `error` of `WWW-Authenticate` (RFC 6750, section 3.1): a request without credentials is told none.
    #[must_use]
    pub fn error(self) -> Option<&'static str> {
        match self {
            Denied::Missing | Denied::Elsewhere | Denied::Undecided | Denied::Unavailable => None,
            Denied::Repeated | Denied::Malformed => Some("invalid_request"),
            Denied::Unknown => Some("invalid_token"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> http::StatusCode {
        match self {
            Denied::Missing | Denied::Repeated | Denied::Malformed | Denied::Unknown => {
                http::StatusCode::UNAUTHORIZED
            }
            Denied::Elsewhere | Denied::Undecided => http::StatusCode::FORBIDDEN,
            Denied::Unavailable => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Knows every token of the configuration, and every issuer that it trusts.
#[derive(Clone, Default)]
pub struct Authenticator {
    entries: Vec<TokenEntry>,
    issuers: Option<Arc<jwt::Issuers>>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Without entries, everybody is denied.
    #[must_use]
    pub fn new(entries: Vec<TokenEntry>) -> Self {
        Self { entries, issuers: None }
    }

    /// Takes the tokens of these issuers too. `clock` judges `exp` and `nbf`, and the age of fetched keys.
    ///
    /// # Errors
    /// [`NoClient`] if keys could not be fetched from here.
    pub fn trusting(self, issuers: Vec<Trusted>, clock: &Arc<dyn Clock>) -> Result<Self, NoClient> {
        let issuers = jwt::Issuers::new(issuers, clock)?;
        Ok(Self { issuers: (!issuers.is_empty()).then(|| Arc::new(issuers)), ..self })
    }

    /// The principal of a request, in the workspace that its path names, if it does.
    ///
    /// # Errors
    /// [`Denied`]
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        workspace: Option<&str>,
    ) -> Result<Arc<Principal>, Denied> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().ok_or(Denied::Missing)?;
        if values.next().is_some() {
            return Err(Denied::Repeated);
        }
        let token = bearer(value.as_bytes()).ok_or(Denied::Malformed)?;
        if let Some(principal) = self.find(Sha256::digest(token).into()) {
            let here = workspace.is_none_or(|name| principal.workspace.as_str() == name);
            return if here { Ok(principal) } else { Err(Denied::Elsewhere) };
        }
        match &self.issuers {
            Some(issuers) => issuers.principal(token, workspace).await.map(Arc::new),
            None => Err(Denied::Unknown),
        }
    }

    /// Compares with every entry, whether or not one matched already: how long it takes tells nothing.
    fn find(&self, hash: [u8; 32]) -> Option<Arc<Principal>> {
        let mut found = u64::MAX;
        for (at, entry) in (0u64..).zip(&self.entries) {
            let same: Choice = entry.sha256.0.ct_eq(&hash);
            found.conditional_assign(&at, same);
        }
        let entry = self.entries.get(usize::try_from(found).ok()?)?;
        Some(Arc::clone(&entry.principal))
    }
}

/// The token of `Bearer TOKEN`, spelled as RFC 6750, section 2.1, spells it. The scheme's case does not matter.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    let fits = !token.is_empty() && token.len() <= TOKEN && token.iter().all(plain);
    (scheme.eq_ignore_ascii_case(b"Bearer") && fits).then_some(token)
}

/// What may stand in a path as it is (RFC 3986, section 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A workspace as one segment of a path.
#[must_use]
pub fn segment(workspace: &str) -> String {
    utf8_percent_encode(workspace, UNRESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use counterfoil_core::{Issuer, Subject, Workspace};
    use http::HeaderValue;

    use super::*;

    fn entry(token: &str, subject: &str) -> TokenEntry {
        let principal = Principal {
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse(subject).unwrap(),
            workspace: Workspace::parse("team-a").unwrap(),
            scopes: BTreeSet::new(),
        };
        TokenEntry { sha256: TokenHash(Sha256::digest(token).into()), principal: Arc::new(principal) }
    }

    async fn check(sent: &[&str], expected: Result<&str, Denied>) {
        let known = Authenticator::new(vec![entry("alice-token", "alice"), entry("bob/token+1==", "bob")]);
        let mut headers = HeaderMap::new();
        for value in sent {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let got = known.authenticate(&headers, None).await;
        assert_eq!(
            got.as_ref().map(|who| who.subject.as_str()).map_err(|denied| *denied),
            expected,
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn who_a_token_stands_for() {
        let long = format!("Bearer {}", "a".repeat(TOKEN + 1));
        let cases: &[(&[&str], Result<&str, Denied>)] = &[
            (&["Bearer alice-token"], Ok("alice")),
            (&["bearer alice-token"], Ok("alice")),
            (&["Bearer  alice-token "], Ok("alice")),
            (&["BEARER bob/token+1=="], Ok("bob")),
            (&[], Err(Denied::Missing)),
            (&["Bearer alice-token", "Bearer alice-token"], Err(Denied::Repeated)),
            (&["Bearer alice-token", "Basic x"], Err(Denied::Repeated)),
            (&["Basic alice-token"], Err(Denied::Malformed)),
            (&["Beareralice-token"], Err(Denied::Malformed)),
            (&["Bearer"], Err(Denied::Malformed)),
            (&["Bearer "], Err(Denied::Malformed)),
            (&["alice-token"], Err(Denied::Malformed)),
            (&[""], Err(Denied::Malformed)),
            (&["Bearer alice token"], Err(Denied::Malformed)),
            (&["Bearer alice-token, Bearer bob"], Err(Denied::Malformed)),
            (&["Bearer alíce"], Err(Denied::Malformed)),
            (&[&long], Err(Denied::Malformed)),
            (&["Bearer Alice-Token"], Err(Denied::Unknown)),
            (&["Bearer alice-toke"], Err(Denied::Unknown)),
            (&["Bearer alice-token1"], Err(Denied::Unknown)),
        ];
        for (sent, expected) in cases {
            check(sent, *expected).await;
        }
    }

    #[tokio::test]
    async fn without_tokens_everybody_is_denied() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        let known = Authenticator::default();
        assert_eq!(known.authenticate(&headers, None).await, Err(Denied::Unknown));
    }

    #[test]
    fn debug_shows_no_hash() {
        let shown = format!("{:?}", Authenticator::new(vec![entry("alice-token", "alice")]));
        assert!(shown.contains("alice") && !shown.contains("sha256"), "{shown}");
    }
}
