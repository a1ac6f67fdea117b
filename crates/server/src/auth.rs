//! Who is calling over HTTP: opaque bearer tokens, of which only the hash is known here.
//!
//! A token is read from one place, the `Authorization` header. It is never looked for in a URL or an argument, and
//! never shown: not in an error, not in `Debug`, not in a log.

use std::fmt;
use std::sync::Arc;

use counterfoil_core::Principal;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Longest token that is hashed, in bytes.
const TOKEN: usize = 4096;

/// One known token and whom it stands for.
#[derive(Clone)]
pub struct TokenEntry {
    /// SHA-256 of the token's bytes.
    pub sha256: [u8; 32],
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
    /// A bearer token that nobody here knows.
    #[error("This token is not known here. Check it, or ask the operator of this server for one.")]
    Unknown,
}

impl Denied {
    /// The value of `WWW-Authenticate` (RFC 6750, section 3): a request without credentials is told no error.
    #[must_use]
    pub fn challenge(self) -> &'static str {
        match self {
            Denied::Missing => "Bearer",
            Denied::Repeated | Denied::Malformed => "Bearer error=\"invalid_request\"",
            Denied::Unknown => "Bearer error=\"invalid_token\"",
        }
    }
}

/// Knows every token of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Authenticator {
    entries: Vec<TokenEntry>,
}

impl Authenticator {
    /// Without entries, everybody is denied.
    #[must_use]
    pub fn new(entries: Vec<TokenEntry>) -> Self {
        Self { entries }
    }

    /// The principal of a request.
    ///
    /// # Errors
    /// [`Denied`], to be answered 401.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Principal>, Denied> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().ok_or(Denied::Missing)?;
        if values.next().is_some() {
            return Err(Denied::Repeated);
        }
        let token = bearer(value.as_bytes()).ok_or(Denied::Malformed)?;
        self.find(Sha256::digest(token).into()).ok_or(Denied::Unknown)
    }

    /// Compares with every entry, whether or not one matched already: how long it takes tells nothing.
    fn find(&self, hash: [u8; 32]) -> Option<Arc<Principal>> {
        let mut found = u64::MAX;
        for (at, entry) in (0u64..).zip(&self.entries) {
            let same: Choice = entry.sha256.ct_eq(&hash);
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
        TokenEntry { sha256: Sha256::digest(token).into(), principal: Arc::new(principal) }
    }

    fn check(sent: &[&str], expected: Result<&str, Denied>) {
        let known = Authenticator::new(vec![entry("alice-token", "alice"), entry("bob/token+1==", "bob")]);
        let mut headers = HeaderMap::new();
        for value in sent {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let got = known.authenticate(&headers);
        assert_eq!(
            got.as_ref().map(|who| who.subject.as_str()).map_err(|denied| *denied),
            expected,
            "{sent:?}"
        );
    }

    #[test]
    fn who_a_token_stands_for() {
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
            check(sent, *expected);
        }
    }

    #[test]
    fn without_tokens_everybody_is_denied() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        assert_eq!(Authenticator::default().authenticate(&headers), Err(Denied::Unknown));
    }

    #[test]
    fn debug_shows_no_hash() {
        let shown = format!("{:?}", Authenticator::new(vec![entry("alice-token", "alice")]));
        assert!(shown.contains("alice") && !shown.contains("sha256"), "{shown}");
    }
}
