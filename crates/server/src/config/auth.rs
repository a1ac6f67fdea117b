//! `[auth]`: who may call, as written.

use std::collections::BTreeSet;

use counterfoil_core::{Issuer, Principal, Scope, Subject, Workspace};

use super::jwt::{Jwt, issuers};
use super::names::Names;
use super::reader::{Node, Table, every, list, parsed, text};
use super::{Spanned, Sql, bounds, maybe};
use crate::auth::TokenHash;
use crate::diagnostics::{Diagnostic, Report};
use crate::http::Metadata;

/// `[auth]`
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// SQL that must find a row for the principal to act in its workspace at all.
    pub membership: Option<Sql>,
    /// `[[auth.token]]`
    pub tokens: Vec<Token>,
    /// `[[auth.jwt]]`
    pub jwt: Vec<Jwt>,
    /// The address by which clients know this server, as an OAuth resource.
    pub resource: Option<Spanned<String>>,
    /// The scopes that a client without a token is told to ask for.
    pub first_scopes: Vec<Spanned<Scope>>,
    /// `[auth.stdio]`
    pub stdio: Option<Credentials>,
}

/// One `[[auth.token]]`: a bearer token, of which only the hash is written.
#[derive(Clone, Debug)]
pub struct Token {
    /// SHA-256 of the token.
    pub sha256: Spanned<TokenHash>,
    /// Who calls with it.
    pub credentials: Credentials,
}

/// Who calls, and what they may do.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Who vouches for the subject; [`bounds::DEFAULT_ISSUER`] unless written.
    pub issuer: Option<Spanned<Issuer>>,
    /// Who calls.
    pub subject: Spanned<Subject>,
    /// The tenant they act in.
    pub workspace: Spanned<Workspace>,
    /// What they may do.
    pub scopes: Vec<Spanned<Scope>>,
}

impl Credentials {
    /// The principal that calls with these credentials.
    pub fn principal(&self) -> Option<Principal> {
        let issuer = match &self.issuer {
            Some(issuer) => issuer.value.clone(),
            None => Issuer::parse(bounds::DEFAULT_ISSUER).ok()?,
        };
        let scopes: BTreeSet<Scope> = self.scopes.iter().map(|scope| scope.value.clone()).collect();
        Some(Principal {
            issuer,
            subject: self.subject.value.clone(),
            workspace: self.workspace.value.clone(),
            scopes,
        })
    }
}

pub(super) fn auth(report: &mut Report, mut table: Table<'_>) -> Option<Auth> {
    let membership = table.optional("membership");
    let membership = maybe(report, membership, text);
    let tokens = table.optional("token");
    let mut names = Names::default();
    let tokens = maybe(report, tokens, |report, node| {
        every(report, node, |report, node| token(report, node, &mut names))
    });
    let stdio = table.optional("stdio");
    let stdio = maybe(report, stdio, |report, node| {
        let mut table = Table::open(report, node, "`[auth.stdio]`")?;
        let credentials = credentials(report, &mut table);
        table.finish(report);
        credentials
    });
    let jwt = table.optional("jwt");
    let jwt = maybe(report, jwt, issuers);
    let resource = table.optional("resource");
    let resource = maybe(report, resource, |report, node| parsed(report, node, self::resource));
    let first_scopes = table.optional("first_scopes");
    let first_scopes = maybe(report, first_scopes, scopes);
    table.finish(report);
    Some(Auth {
        membership: membership?,
        tokens: tokens?.unwrap_or_default(),
        jwt: jwt?.unwrap_or_default(),
        resource: resource?,
        first_scopes: first_scopes?.unwrap_or_default(),
        stdio: stdio?,
    })
}

fn resource(text: &str) -> Result<String, Diagnostic> {
    match Metadata::new(text, Vec::new(), Vec::new(), Vec::new()) {
        Ok(_fine) => Ok(text.to_owned()),
        Err(wrong) => Err(Diagnostic::error(wrong.to_string())),
    }
}

fn token(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Token> {
    let mut table = Table::open(report, node, "`[[auth.token]]`")?;
    let sha256 = table.required("sha256", "`counterfoil token new` makes a token and prints its hash");
    let sha256 = sha256.and_then(|node| parsed(report, &node, hash));
    if let Some(sha256) = &sha256 {
        let digits: String = sha256.0.iter().map(|byte| format!("{byte:02x}")).collect();
        names.add(report, &digits, &sha256.span, || "the same token is given twice".to_owned());
    }
    let credentials = credentials(report, &mut table);
    table.finish(report);
    Some(Token { sha256: sha256?, credentials: credentials? })
}

fn hash(text: &str) -> Result<TokenHash, Diagnostic> {
    let wrong = || {
        Diagnostic::error("`sha256` must be 64 hexadecimal digits")
            .help("write the hash of the token, never the token: `counterfoil token new` prints both")
    };
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let bytes = digits.ok_or_else(wrong)?;
    let bytes: Vec<u8> = bytes.chunks(2).filter_map(byte).collect();
    if text.len() == 64 { bytes.try_into().map(TokenHash).map_err(|_| wrong()) } else { Err(wrong()) }
}

fn byte(digits: &[u32]) -> Option<u8> {
    match digits {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        _ => None,
    }
}

fn credentials(report: &mut Report, table: &mut Table<'_>) -> Option<Credentials> {
    let issuer = table.optional("issuer");
    let issuer = maybe(report, issuer, |report, node| parsed(report, node, |text| word(Issuer::parse(text))));
    let subject = table.required("subject", "say who calls: `subject = \"alice\"`");
    let subject = subject.and_then(|node| parsed(report, &node, |text| word(Subject::parse(text))));
    let workspace = table.required("workspace", "say which tenant they act in: `workspace = \"team-a\"`");
    let workspace = workspace.and_then(|node| parsed(report, &node, |text| word(Workspace::parse(text))));
    let scopes = table.required("scopes", "say what they may do: `scopes = [\"automation:read\"]`");
    let scopes = scopes.and_then(|node| self::scopes(report, &node));
    Some(Credentials { issuer: issuer?, subject: subject?, workspace: workspace?, scopes: scopes? })
}

fn scopes(report: &mut Report, node: &Node<'_>) -> Option<Vec<Spanned<Scope>>> {
    if node.value().is_str() {
        report
            .push(node.mismatch("a list").help("write `scopes = [\"…\", \"…\"]`, one string for each scope"));
        return None;
    }
    if list(report, node)?.is_empty() {
        report.push(
            node.fault(format!("{} is empty", node.said()), "").help("without a scope no tool can be called"),
        );
        return None;
    }
    every(report, node, |report, item| parsed(report, item, scope))
}

/// Reads one scope.
pub(super) fn scope(text: &str) -> Result<Scope, Diagnostic> {
    Scope::parse(text).map_err(|invalid| {
        if text.contains(char::is_whitespace) {
            return Diagnostic::error("a scope holds no spaces")
                .help("a tool asks for one scope; a caller's `scopes` are several strings");
        }
        Diagnostic::error(invalid.to_string())
            .help("a scope is printable ASCII without quotes and backslashes, such as \"automation:write\"")
    })
}

/// A word of the core, or what is wrong with it.
pub(super) fn word<T>(parsed: Result<T, counterfoil_core::words::InvalidWord>) -> Result<T, Diagnostic> {
    parsed.map_err(|invalid| Diagnostic::error(invalid.to_string()))
}
