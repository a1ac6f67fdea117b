//! What a client without a token is told: where to get one, for which resource, with which scopes (RFC 9728), and
//! the challenges that lead there (RFC 6750, section 3).

use counterfoil_core::Scope;
use http::{HeaderValue, Uri};
use serde_json::json;

use crate::auth;

/// Where protected resource metadata is (RFC 9728, section 3).
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// This server as an OAuth 2.1 protected resource.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// `https://tools.example.com`
    origin: String,
    /// `/mcp`, or where a proxy puts it.
    path: String,
    issuers: Vec<String>,
    scopes: Vec<Scope>,
    first: Vec<Scope>,
}

/// The resource identifier is no `https` or `http` address, or it has a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a resource is an https address without query and fragment, such as https://tools.example.com/mcp")]
pub struct NoResource;

impl Metadata {
    /// Of the server that clients reach as `resource`, whose tokens come from `issuers`. `scopes` are all that any
    /// tool asks for; `first` are those to ask for at first.
    ///
    /// # Errors
    /// [`NoResource`]
    pub fn new(
        resource: &str,
        issuers: Vec<String>,
        scopes: Vec<Scope>,
        first: Vec<Scope>,
    ) -> Result<Self, NoResource> {
        let uri: Uri = resource.parse().map_err(|_| NoResource)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(NoResource);
        };
        let plain = !authority.as_str().contains('@') && uri.query().is_none() && !resource.contains('#');
        if !matches!(scheme, "https" | "http") || !plain {
            return Err(NoResource);
        }
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { origin: format!("{scheme}://{authority}"), path, issuers, scopes, first })
    }

    /// The name, and the port if it has one, under which the resource is addressed.
    #[must_use]
    pub fn host(&self) -> &str {
        self.origin.split_once("://").map_or("", |(_, authority)| authority)
    }

    /// The document at [`WELL_KNOWN`]`/suffix`; `None` if there is no such resource.
    ///
    /// Whether a workspace exists is not asked: the answer tells nothing.
    #[must_use]
    pub fn document(&self, suffix: &str) -> Option<String> {
        let below = |path: &str| suffix.strip_prefix(path).filter(|_| !path.is_empty());
        let rest = below(&self.path).or_else(|| below(super::MCP_PATH)).unwrap_or(suffix);
        let fits = rest.is_empty() || rest.strip_prefix('/').is_some_and(plain_segment);
        let document = json!({
            "resource": format!("{}{}{rest}", self.origin, self.path),
            "authorization_servers": self.issuers,
            "scopes_supported": self.scopes.iter().map(Scope::as_str).collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
        });
        fits.then(|| document.to_string())
    }

    /// Where the document of this resource, or of a workspace below it, is.
    fn url(&self, workspace: Option<&str>) -> String {
        let below = workspace.map(|name| format!("/{}", auth::segment(name))).unwrap_or_default();
        format!("{}{WELL_KNOWN}{}{below}", self.origin, self.path)
    }
}

/// One segment of a path, short and spelled with what may stand there.
fn plain_segment(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@".contains(&byte);
    !text.is_empty() && text.len() <= 3 * counterfoil_core::limits::NAME && text.bytes().all(plain)
}

/// The value of `WWW-Authenticate`. Scopes are tokens that need no escape.
pub(super) fn challenge(
    metadata: Option<&Metadata>,
    error: Option<&str>,
    scopes: &[Scope],
    workspace: Option<&str>,
) -> Option<HeaderValue> {
    let scopes: Vec<&str> = scopes.iter().map(Scope::as_str).collect();
    let scopes = (!scopes.is_empty()).then(|| scopes.join(" "));
    let parameters = [
        ("error", error.map(str::to_owned)),
        ("scope", scopes),
        ("resource_metadata", metadata.map(|metadata| metadata.url(workspace))),
    ];
    let written = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}=\"{}\"", value?)));
    let written: Vec<String> = written.collect();
    format!("Bearer {}", written.join(", ")).trim_end().parse().ok()
}

impl Metadata {
    /// The scopes to ask for at first.
    pub(super) fn first(&self) -> &[Scope] {
        &self.first
    }

    /// Does any tool here ask for it?
    pub(super) fn knows(&self, scope: &Scope) -> bool {
        self.scopes.contains(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(resource: &str) -> Result<Metadata, NoResource> {
        let scope = Scope::parse("a:read").unwrap();
        Metadata::new(resource, vec!["https://id.example.com".into()], vec![scope], Vec::new())
    }

    fn check(resource: &str, suffix: &str, expected: Option<&str>) {
        let document = metadata(resource).unwrap().document(suffix);
        let got = document.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
        let got = got.as_ref().and_then(|document| document["resource"].as_str());
        assert_eq!(got, expected, "{resource} {suffix}");
    }

    #[test]
    fn every_resource_has_its_document() {
        let (plain, moved) = ("https://tools.example.com/mcp", "https://example.com:8443/tools/mcp/");
        let cases = [
            (plain, "", Some("https://tools.example.com/mcp")),
            (plain, "/mcp", Some("https://tools.example.com/mcp")),
            (plain, "/mcp/team-a", Some("https://tools.example.com/mcp/team-a")),
            (plain, "/mcp/a%2Fb", Some("https://tools.example.com/mcp/a%2Fb")),
            (plain, "/mcp/a/b", None),
            (plain, "/mcp/", None),
            (plain, "/mcp/a\"b", None),
            (plain, "/elsewhere/x", None),
            (moved, "/tools/mcp", Some("https://example.com:8443/tools/mcp")),
            (moved, "/tools/mcp/team-a", Some("https://example.com:8443/tools/mcp/team-a")),
            (moved, "/mcp/team-a", Some("https://example.com:8443/tools/mcp/team-a")),
            ("https://tools.example.com", "/mcp", Some("https://tools.example.com")),
        ];
        for (resource, suffix, expected) in cases {
            check(resource, suffix, expected);
        }
        for wrong in
            ["tools", "/mcp", "ftp://a/mcp", "https://a/mcp?x=1", "https://a/mcp#x", "https://u@a/mcp"]
        {
            assert_eq!(metadata(wrong).unwrap_err(), NoResource, "{wrong}");
        }
    }

    #[test]
    fn challenges() {
        let metadata = metadata("https://tools.example.com/mcp").unwrap();
        let scopes = ["a:read", "a:write"].map(|scope| Scope::parse(scope).unwrap());
        let well_known = "https://tools.example.com/.well-known/oauth-protected-resource/mcp";
        let cases = [
            (challenge(None, None, &[], None), "Bearer".to_owned()),
            (challenge(None, Some("invalid_token"), &[], None), "Bearer error=\"invalid_token\"".to_owned()),
            (
                challenge(Some(&metadata), Some("insufficient_scope"), &scopes, None),
                format!(
                    "Bearer error=\"insufficient_scope\", scope=\"a:read a:write\", resource_metadata=\"{well_known}\""
                ),
            ),
            (
                challenge(Some(&metadata), None, &[], Some("a b/c")),
                format!("Bearer resource_metadata=\"{well_known}/a%20b%2Fc\""),
            ),
        ];
        for (got, expected) in cases {
            assert_eq!(got.unwrap(), expected);
        }
    }
}
