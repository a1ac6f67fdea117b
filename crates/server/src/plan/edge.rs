//! How a server is reached over HTTP: whose tokens it takes, and what it tells clients that have none.

use std::collections::BTreeSet;
use std::time::Duration;

use counterfoil_core::Scope;

use super::Planner;
use crate::audit::Target;
use crate::auth::{PATIENCE, Source, Trusted, read_file, usable};
use crate::config::{Jwks, Jwt};
use crate::diagnostics::Diagnostic;
use crate::http::{BadCertificate, Certificates, Files, Metadata};
use crate::limit::Rates;

/// The edge of a server, ready to run.
#[derive(Debug, Clone)]
pub struct Edge {
    /// The issuers whose tokens are taken.
    pub trusted: Vec<Trusted>,
    /// The server as an OAuth resource.
    pub metadata: Option<Metadata>,
    /// A proxy in front speaks TLS.
    pub behind_proxy: bool,
    /// Certificate and key.
    pub tls: Option<Files>,
    /// Names besides loopback's and the resource's.
    pub hosts: Vec<String>,
    /// Web pages that may call.
    pub origins: Vec<String>,
    /// Where the audit log goes.
    pub audit: Option<Target>,
    /// Connections at once.
    pub connections: usize,
    /// How long a connection may be silent.
    pub header_wait: Duration,
    /// How long a body may take.
    pub body_wait: Duration,
    /// How often a caller may call.
    pub rates: Option<Rates>,
}

impl Planner<'_> {
    pub(super) fn edge(&mut self) -> Option<Edge> {
        let config = self.config;
        let trusted: Vec<Option<Trusted>> = config.auth.jwt.iter().map(|jwt| self.trusted(jwt)).collect();
        let (server, tls) = (&config.server, self.tls());
        let audit = server.audit.as_ref().map(|audit| match audit.to_str() {
            Some("stdout") => Target::Stdout,
            _ => Target::File(config.resolve(audit)),
        });
        // Nothing written as 0 is counted; the other is.
        let most = |rate: u32| if rate == 0 { u32::MAX } else { rate };
        let limited = server.rates.writes > 0 || server.rates.reads > 0;
        let rates = Rates { writes: most(server.rates.writes), reads: most(server.rates.reads) };
        Some(Edge {
            trusted: trusted.into_iter().collect::<Option<_>>()?,
            metadata: self.metadata(),
            behind_proxy: server.behind_proxy,
            tls: tls?,
            hosts: server.hosts.clone(),
            origins: server.origins.clone(),
            audit,
            connections: server.connections,
            header_wait: server.header_time,
            body_wait: server.body_time,
            rates: limited.then_some(rates),
        })
    }

    /// The files are read, so that what is wrong with them is known before they are needed.
    #[expect(clippy::option_option, reason = "no TLS, and TLS that cannot be, are two answers")]
    fn tls(&mut self) -> Option<Option<Files>> {
        let Some(written) = &self.config.server.tls else { return Some(None) };
        let files =
            Files { cert: self.config.resolve(&written.cert), key: self.config.resolve(&written.key) };
        let wrong = Certificates::load(files.clone()).err();
        let Some(wrong) = wrong else { return Some(Some(files)) };
        let place = match &wrong {
            BadCertificate::Key(_) => &written.key.span,
            BadCertificate::Certificate(_) | BadCertificate::Pair(_) => &written.cert.span,
        };
        let problem = match &wrong {
            BadCertificate::Pair(why) => format!("{wrong}: {why}"),
            BadCertificate::Key(_) | BadCertificate::Certificate(_) => wrong.to_string(),
        };
        self.report.push(Diagnostic::error(problem).at(place.clone(), ""));
        None
    }

    fn trusted(&mut self, jwt: &Jwt) -> Option<Trusted> {
        let keys = match &jwt.jwks.value {
            Jwks::Url(url) => Source::Url(url.clone()),
            Jwks::File(path) => {
                let path = self.config.resolve(path);
                let keys = read_file(&path).and_then(|text| usable(&text));
                let problem = match keys {
                    Ok(0) => Some("it holds no key that verifies signatures"),
                    Ok(_) => None,
                    Err(problem) => Some(problem),
                };
                if let Some(problem) = problem {
                    let fault = Diagnostic::error(format!("the keys cannot be used: {problem}"));
                    self.report.push(fault.at(jwt.jwks.span.clone(), ""));
                    return None;
                }
                Source::File(path)
            }
        };
        Some(Trusted {
            issuer: jwt.issuer.value.clone(),
            audiences: jwt.audiences.iter().map(|audience| audience.value.clone()).collect(),
            keys,
            patience: PATIENCE,
            algorithms: jwt.algorithms.clone(),
            leeway: jwt.leeway,
            workspace: jwt.workspace.clone(),
            subject: jwt.subject.clone(),
            scopes: jwt.scopes.clone(),
        })
    }

    /// The resource that is written, or the first audience that is an address.
    fn metadata(&self) -> Option<Metadata> {
        let auth = &self.config.auth;
        let written = auth.resource.iter().map(|resource| &resource.value);
        let audiences = auth.jwt.iter().flat_map(|jwt| &jwt.audiences).map(|audience| &audience.value);
        let scopes: BTreeSet<&Scope> = self.config.tools.iter().map(|tool| &tool.scope.value).collect();
        let scopes: Vec<Scope> = scopes.into_iter().cloned().collect();
        let first: Vec<Scope> = auth.first_scopes.iter().map(|scope| scope.value.clone()).collect();
        let issuers: Vec<String> = auth.jwt.iter().map(|jwt| jwt.issuer.as_str().to_owned()).collect();
        let of =
            |resource: &String| Metadata::new(resource, issuers.clone(), scopes.clone(), first.clone()).ok();
        written.chain(audiences).find_map(of).filter(|_| !issuers.is_empty())
    }

    /// Clients that have no token find out from the resource where to get one.
    pub(super) fn doubt_resource(&mut self) {
        let auth = &self.config.auth;
        if let Some(jwt) = auth.jwt.first().filter(|_| self.metadata().is_none()) {
            let doubt = Diagnostic::warning(
                "clients may not find out where to get a token: no audience is an address",
            );
            let help = "write the address by which they know this server: `resource = \"https://tools.example.com/mcp\"` in `[auth]`";
            self.report.push(doubt.at(jwt.issuer.span.clone(), "").help(help));
        }
        if let Some(resource) = auth.resource.as_ref().filter(|_| auth.jwt.is_empty()) {
            let doubt = Diagnostic::warning(
                "`resource` may say nothing: there is no `[[auth.jwt]]` whose tokens it is for",
            );
            self.report.push(doubt.at(resource.span.clone(), "").help("remove it, or add an issuer"));
        }
    }
}
