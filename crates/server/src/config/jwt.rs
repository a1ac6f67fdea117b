//! `[[auth.jwt]]`: issuers of signed tokens, as written.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil_core::Issuer;
use reqwest::Url;

use super::auth::word;
use super::names::Names;
use super::reader::{Node, Table, duration, every, parsed, text};
use super::{Spanned, bounds, maybe};
use crate::auth::Algorithm;
use crate::diagnostics::{Diagnostic, Report};

/// One `[[auth.jwt]]`
#[derive(Clone, Debug)]
pub struct Jwt {
    /// `iss`, to the letter.
    pub issuer: Spanned<Issuer>,
    /// One of these must be in `aud`.
    pub audiences: Vec<Spanned<String>>,
    /// Where its keys are.
    pub jwks: Spanned<Jwks>,
    /// The signatures that are taken; all that are known unless written.
    pub algorithms: Vec<Algorithm>,
    /// How far its clock may differ.
    pub leeway: Duration,
    /// The claim that names the workspace, or lists several.
    pub workspace: String,
    /// The claim that names the subject.
    pub subject: String,
    /// The claim that lists scopes.
    pub scopes: String,
}

/// Where keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jwks {
    /// At an address.
    Url(String),
    /// In a file; a relative path is relative to the config file.
    File(PathBuf),
}

/// Reads all issuers.
pub(super) fn issuers(report: &mut Report, node: &Node<'_>) -> Option<Vec<Jwt>> {
    let mut names = Names::default();
    every(report, node, |report, node| issuer(report, node, &mut names))
}

fn issuer(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Jwt> {
    let mut table = Table::open(report, node, "`[[auth.jwt]]`")?;
    let issuer = table
        .required("issuer", "write the issuer's `iss`, to the letter: `issuer = \"https://id.example.com\"`");
    let issuer = issuer.and_then(|node| parsed(report, &node, |text| word(Issuer::parse(text))));
    if let Some(issuer) = &issuer {
        names.add(report, issuer.as_str(), &issuer.span, || "this issuer is given twice".to_owned());
    }
    let audience = table.required(
        "audience",
        "write whom tokens must be for: `audience = \"https://tools.example.com/mcp\"`",
    );
    let audiences = audience.and_then(|node| audiences(report, &node));
    let jwks = table.required(
        "jwks",
        "write where the issuer's keys are: `jwks = \"https://id.example.com/jwks.json\"`, or a file",
    );
    let jwks = jwks.and_then(|node| parsed(report, &node, self::jwks));
    let algorithms = table.optional("algorithms");
    let algorithms = maybe(report, algorithms, self::algorithms);
    let leeway = table.optional("leeway");
    let leeway = maybe(report, leeway, |report, node| duration(report, node, bounds::LEEWAY));
    let workspace =
        table.required("workspace", "write which claim names the tenant: `workspace = \"workspace_id\"`");
    let workspace = workspace.and_then(|node| text(report, &node));
    let subject = claim(report, &mut table, "subject", "sub");
    let scopes = claim(report, &mut table, "scopes", "scope");
    table.finish(report);
    Some(Jwt {
        issuer: issuer?,
        audiences: audiences?,
        jwks: jwks?,
        algorithms: algorithms?.unwrap_or_else(|| Algorithm::ALL.map(|(_, algorithm)| algorithm).to_vec()),
        leeway: leeway?.map_or(bounds::DEFAULT_LEEWAY, |leeway| leeway.value),
        workspace: workspace?.value,
        subject: subject?,
        scopes: scopes?,
    })
}

fn claim(report: &mut Report, table: &mut Table<'_>, name: &'static str, usual: &str) -> Option<String> {
    let node = table.optional(name);
    let written = maybe(report, node, text)?;
    Some(written.map_or_else(|| usual.to_owned(), |written| written.value))
}

/// One string, or a list.
fn audiences(report: &mut Report, node: &Node<'_>) -> Option<Vec<Spanned<String>>> {
    if node.value().is_str() {
        return Some(vec![text(report, node)?]);
    }
    let all = every(report, node, text)?;
    if all.is_empty() {
        report.push(node.fault("`audience` is empty", "").help("a token for anybody is for nobody here"));
        return None;
    }
    Some(all)
}

fn algorithms(report: &mut Report, node: &Node<'_>) -> Option<Vec<Algorithm>> {
    let names: Vec<&str> = Algorithm::ALL.iter().map(|(name, _)| *name).collect();
    let known = names.join(", ");
    let all = every(report, node, |report, item| {
        parsed(report, item, |name| {
            Algorithm::parse(name).ok_or_else(|| {
                Diagnostic::error("this signature is not taken")
                    .help(format!("known: {known}; \"none\" and shared secrets (HS256 and the like) never"))
            })
        })
    })?;
    if all.is_empty() {
        report.push(node.fault("`algorithms` is empty", "").help("leave it out to take every known one"));
        return None;
    }
    Some(all.into_iter().map(|algorithm| algorithm.value).collect())
}

const JWKS_HELP: &str =
    "write an https address, or a path relative to this file; http is for this machine alone";

fn jwks(text: &str) -> Result<Jwks, Diagnostic> {
    let wrong = |message: &str| Err(Diagnostic::error(message).help(JWKS_HELP));
    if !text.contains("://") {
        return Ok(Jwks::File(PathBuf::from(text)));
    }
    let Ok(url) = Url::parse(text) else { return wrong("this is no address") };
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return wrong("an address of keys holds no credentials and no fragment");
    }
    match (url.scheme(), url.host_str()) {
        ("https", Some(_)) => Ok(Jwks::Url(text.to_owned())),
        ("http", Some("localhost" | "127.0.0.1" | "[::1]")) => Ok(Jwks::Url(text.to_owned())),
        _ => wrong("keys are fetched over https: over http anybody on the way could put in their own"),
    }
}
