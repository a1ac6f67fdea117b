//! Signed tokens (RFC 7519, under the advice of RFC 8725): one issuer's keys, one audience, a time that has come and
//! not passed, and claims that say who calls, where, and what they may do.
//!
//! Header and claims are read by the strict reader, so that a name that stands twice has no second meaning. A bad
//! token is answered the same whatever is wrong with it; the log says what, and never shows the token.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil::Clock;
use counterfoil_core::json::{self, Bounds, Value};
use counterfoil_core::{Issuer, Principal, Scope, Subject, Timestamp, Workspace};

use super::Denied;
use super::algorithm::Algorithm;
use super::jwks::{KeySet, NoClient, NoKey, Source};

/// A header or a claims set beyond this is nobody's.
const BOUNDS: Bounds = Bounds { nesting: 16, values: 2000 };
/// Workspaces that one token may list.
const WORKSPACES: usize = 256;
/// Longest name of a key.
const KID: usize = 1024;

/// One issuer whose tokens are taken.
#[derive(Debug, Clone)]
pub struct Trusted {
    /// `iss`, to the letter.
    pub issuer: Issuer,
    /// One of these must be in `aud`.
    pub audiences: Vec<String>,
    /// Where its keys are.
    pub keys: Source,
    /// How long one fetch of them may take, its last byte included.
    pub patience: Duration,
    /// The signatures that it makes.
    pub algorithms: Vec<Algorithm>,
    /// How far its clock may differ from ours.
    pub leeway: Duration,
    /// The claim that names the workspace, or lists several.
    pub workspace: String,
    /// The claim that names the subject.
    pub subject: String,
    /// The claim that lists scopes: one string with spaces, or several.
    pub scopes: String,
}

/// Every issuer whose tokens are taken.
pub(super) struct Issuers {
    all: Vec<(Trusted, Arc<KeySet>)>,
    clock: Arc<dyn Clock>,
}

/// What is wrong with a token; for the log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Flaw {
    #[error("it is not three parts of base64url")]
    Shape,
    #[error("its {0} is not a JSON object")]
    Json(&'static str),
    #[error("its header parameter {0} is missing, or is not taken here")]
    Header(&'static str),
    #[error("the claim {0} is missing")]
    Missing(String),
    #[error("the claim {0} is not of the form it must have")]
    Malformed(String),
    #[error("its issuer is not known here")]
    Issuer,
    #[error("its issuer has no such key")]
    Key,
    #[error("the signature is not by that key")]
    Signature,
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("its time has not come")]
    Early,
}

/// A token that has passed, before its workspace is chosen.
struct Verified {
    issuer: Issuer,
    subject: Subject,
    scopes: BTreeSet<Scope>,
    workspaces: Vec<Workspace>,
}

/// A token, taken apart.
struct Parts<'a> {
    header: Value,
    claims: Value,
    signature: Vec<u8>,
    message: &'a [u8],
}

impl Issuers {
    pub(super) fn new(trusted: Vec<Trusted>, clock: &Arc<dyn Clock>) -> Result<Self, NoClient> {
        let with_keys = |one: Trusted| {
            let keys = KeySet::new(&one, Arc::clone(clock))?;
            Ok((one, Arc::new(keys)))
        };
        let all = trusted.into_iter().map(with_keys).collect::<Result<_, NoClient>>()?;
        Ok(Self { all, clock: Arc::clone(clock) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The principal of `token` in `workspace`, or in the only one that it lists.
    pub(super) async fn principal(&self, token: &[u8], workspace: Option<&str>) -> Result<Principal, Denied> {
        let verified = self.verify(token, workspace).await?;
        let chosen = match (workspace, &*verified.workspaces) {
            (None, [only]) => only,
            (None, _) => return Err(Denied::Undecided),
            (Some(name), listed) => {
                listed.iter().find(|one| one.as_str() == name).ok_or(Denied::Elsewhere)?
            }
        };
        Ok(Principal {
            workspace: chosen.clone(),
            issuer: verified.issuer,
            subject: verified.subject,
            scopes: verified.scopes,
        })
    }

    async fn verify(&self, token: &[u8], workspace: Option<&str>) -> Result<Verified, Denied> {
        let unsigned = |flaw: Flaw| {
            tracing::info!(problem = %flaw, "a token was refused");
            Denied::Unknown
        };
        let parts = Parts::of(token).map_err(unsigned)?;
        let algorithm = algorithm(&parts.header).map_err(unsigned)?;
        let named = parts.claims.get("iss").and_then(Value::as_str);
        let known = self.all.iter().find(|(trusted, _)| Some(trusted.issuer.as_str()) == named);
        let (trusted, keys) = known.ok_or_else(|| unsigned(Flaw::Issuer))?;
        if !trusted.algorithms.contains(&algorithm) {
            return Err(unsigned(Flaw::Header("alg")));
        }
        let kid = kid(&parts.header).map_err(unsigned)?;
        let keys = keys.find(kid, algorithm).await.map_err(|missing| match missing {
            NoKey::Unknown => unsigned(Flaw::Key),
            NoKey::Unavailable => Denied::Unavailable,
        })?;
        if !keys.iter().any(|key| key.verifies(algorithm, parts.message, &parts.signature)) {
            return Err(unsigned(Flaw::Signature));
        }
        trusted.judge(&parts.claims, workspace, self.clock.now()).map_err(|flaw| {
            // Signed by a known issuer: what is wrong concerns the operator.
            tracing::warn!(issuer = trusted.issuer.as_str(), problem = %flaw, "a token was refused");
            Denied::Unknown
        })
    }
}

impl<'a> Parts<'a> {
    fn of(token: &'a [u8]) -> Result<Self, Flaw> {
        let mut parts = token.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Flaw::Shape);
        };
        let decoded = |part: &[u8]| URL_SAFE_NO_PAD.decode(part).map_err(|_| Flaw::Shape);
        let object = |what, part: &[u8]| match json::parse(&decoded(part)?, BOUNDS) {
            Ok(object @ Value::Object(_)) => Ok(object),
            _ => Err(Flaw::Json(what)),
        };
        Ok(Self {
            message: &token[..header.len() + 1 + claims.len()],
            header: object("header", header)?,
            claims: object("payload", claims)?,
            signature: decoded(signature)?,
        })
    }
}

/// The algorithm, of a header that asks for nothing that is not understood here.
fn algorithm(header: &Value) -> Result<Algorithm, Flaw> {
    // What is critical must be understood, and no extension is (RFC 7515, section 4.1.11; RFC 7797).
    for name in ["crit", "b64"] {
        if header.get(name).is_some() {
            return Err(Flaw::Header(name));
        }
    }
    // A token of another kind, signed by the same issuer, is no access token (RFC 8725, section 3.11).
    let kind = |value: &Value| {
        let name = value.as_str().unwrap_or_default().to_ascii_lowercase();
        matches!(name.strip_prefix("application/").unwrap_or(&name), "jwt" | "at+jwt")
    };
    if header.get("typ").is_some_and(|typ| !kind(typ)) {
        return Err(Flaw::Header("typ"));
    }
    // Something else inside, a nested token say.
    if header.get("cty").is_some() {
        return Err(Flaw::Header("cty"));
    }
    header.get("alg").and_then(Value::as_str).and_then(Algorithm::parse).ok_or(Flaw::Header("alg"))
}

fn kid(header: &Value) -> Result<Option<&str>, Flaw> {
    match header.get("kid") {
        None => Ok(None),
        Some(Value::String(kid)) if kid.len() <= KID => Ok(Some(kid)),
        Some(_) => Err(Flaw::Header("kid")),
    }
}

impl Trusted {
    fn judge(&self, claims: &Value, workspace: Option<&str>, now: Timestamp) -> Result<Verified, Flaw> {
        self.in_time(claims, now)?;
        if !texts(claims, "aud")?.iter().any(|aud| self.is_ours(aud, workspace)) {
            return Err(Flaw::Audience);
        }
        Ok(Verified {
            issuer: self.issuer.clone(),
            subject: self.who(claims)?,
            scopes: self.granted(claims)?,
            workspaces: self.workspaces(claims)?,
        })
    }

    /// An audience of ours; or, of a call to `/mcp/WORKSPACE`, that resource (RFC 8707).
    fn is_ours(&self, aud: &str, workspace: Option<&str>) -> bool {
        let beneath = |whole: &String| {
            let segment = aud.strip_prefix(whole.as_str())?.strip_prefix('/')?;
            Some(Some(segment) == workspace.map(super::segment).as_deref())
        };
        self.audiences.iter().any(|ours| ours == aud || beneath(ours).unwrap_or(false))
    }

    /// Valid from `nbf` on and before `exp`, give or take the leeway (RFC 7519, sections 4.1.4 and 4.1.5).
    fn in_time(&self, claims: &Value, now: Timestamp) -> Result<(), Flaw> {
        let exp = date(claims, "exp")?.ok_or(Flaw::Missing("exp".into()))?;
        let nbf = date(claims, "nbf")?;
        #[expect(clippy::cast_precision_loss, reason = "microseconds of this era are exact in a double")]
        let now = now.micros() as f64;
        let leeway = self.leeway.as_secs_f64() * 1e6;
        if now >= exp + leeway {
            return Err(Flaw::Expired);
        }
        if nbf.is_some_and(|nbf| now < nbf - leeway) {
            return Err(Flaw::Early);
        }
        Ok(())
    }

    fn who(&self, claims: &Value) -> Result<Subject, Flaw> {
        let malformed = || Flaw::Malformed(self.subject.clone());
        match &*texts(claims, &self.subject)? {
            [only] if claims.get(&self.subject).and_then(Value::as_str).is_some() => {
                Subject::parse(only).map_err(|_| malformed())
            }
            _ => Err(malformed()),
        }
    }

    /// What is not a scope token (RFC 6749, section 3.3) is a scope that no tool asks for.
    fn granted(&self, claims: &Value) -> Result<BTreeSet<Scope>, Flaw> {
        let lists = texts(claims, &self.scopes)?;
        let words = lists.iter().flat_map(|list| list.split(' '));
        Ok(words.filter_map(|word| Scope::parse(word).ok()).collect())
    }

    fn workspaces(&self, claims: &Value) -> Result<Vec<Workspace>, Flaw> {
        let names = texts(claims, &self.workspace)?;
        if names.is_empty() {
            return Err(Flaw::Missing(self.workspace.clone()));
        }
        let malformed = || Flaw::Malformed(self.workspace.clone());
        if names.len() > WORKSPACES {
            return Err(malformed());
        }
        names.iter().map(|name| Workspace::parse(name).map_err(|_| malformed())).collect()
    }
}

/// A claim that is a string, or a list of strings.
fn texts<'c>(claims: &'c Value, name: &str) -> Result<Vec<&'c str>, Flaw> {
    let malformed = || Flaw::Malformed(name.into());
    match claims.get(name) {
        None | Some(Value::Null) => Err(Flaw::Missing(name.into())),
        Some(Value::String(text)) => Ok(vec![text]),
        Some(Value::Array(items)) => {
            items.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(malformed)
        }
        Some(Value::Boolean(_) | Value::Number(_) | Value::Object(_)) => Err(malformed()),
    }
}

/// A NumericDate in microseconds: seconds since 1970, fractions allowed.
fn date(claims: &Value, name: &'static str) -> Result<Option<f64>, Flaw> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(spelled)) => match spelled.parse::<f64>() {
            Ok(seconds) if seconds.is_finite() => Ok(Some(seconds * 1e6)),
            _ => Err(Flaw::Malformed(name.into())),
        },
        Some(_) => Err(Flaw::Malformed(name.into())),
    }
}
