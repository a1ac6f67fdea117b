//! `[server]`: where to listen, how to be reached, and how much one caller or one connection may ask for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::reader::{Node, Table, boolean, count, duration, every, parsed, text};
use super::{Spanned, bounds, maybe};
use crate::diagnostics::{Diagnostic, Report};
use crate::http::{Host, is_origin};

/// `[server]`
#[derive(Clone, Debug)]
pub struct Server {
    /// Where to listen; [`bounds::DEFAULT_LISTEN`] unless written.
    pub listen: Option<Spanned<SocketAddr>>,
    /// A proxy in front speaks TLS.
    pub behind_proxy: bool,
    /// `tls = { cert, key }`
    pub tls: Option<Tls>,
    /// Names under which it may be addressed, besides those of loopback and of the resource.
    pub hosts: Vec<String>,
    /// Web pages that may call.
    pub origins: Vec<String>,
    /// Where the audit log goes, if there is one: `stdout`, or a file.
    pub audit: Option<Spanned<PathBuf>>,
    /// Where the server keeps what it must not keep in the database.
    pub state_dir: Option<Spanned<PathBuf>>,
    /// Connections at once.
    pub connections: usize,
    /// How long a connection may be silent.
    pub header_time: Duration,
    /// How long a body may take.
    pub body_time: Duration,
    /// Calls a second for each caller, if they are limited.
    pub rates: Rates,
}

/// `tls = { cert, key }`; relative paths are relative to the config file.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub cert: Spanned<PathBuf>,
    /// Its key, PEM.
    pub key: Spanned<PathBuf>,
}

/// Calls a second for each caller; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Writes that are no replays.
    pub writes: u32,
    /// Everything else.
    pub reads: u32,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: None,
            behind_proxy: false,
            tls: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            audit: None,
            state_dir: None,
            connections: bounds::DEFAULT_CONNECTIONS,
            header_time: bounds::DEFAULT_WAIT,
            body_time: bounds::DEFAULT_WAIT,
            rates: Rates { writes: 1000, reads: 5000 },
        }
    }
}

impl Server {
    /// Where to listen unless told otherwise.
    pub fn listen(&self) -> SocketAddr {
        self.listen.as_ref().map_or(bounds::DEFAULT_LISTEN, |listen| listen.value)
    }
}

pub(super) fn server(report: &mut Report, mut table: Table<'_>) -> Option<Server> {
    let usual = Server::default();
    let listen = table.optional("listen");
    let listen = maybe(report, listen, |report, node| parsed(report, node, address));
    let behind_proxy = table.optional("behind_proxy");
    let behind_proxy = maybe(report, behind_proxy, boolean);
    let tls = table.optional("tls");
    let tls = maybe(report, tls, self::tls);
    let hosts = table.optional("hosts");
    let hosts = maybe(report, hosts, |report, node| every(report, node, |r, item| parsed(r, item, host)));
    let origins = table.optional("origins");
    let origins =
        maybe(report, origins, |report, node| every(report, node, |r, item| parsed(r, item, origin)));
    let audit = table.optional("audit");
    let audit = maybe(report, audit, path);
    let state_dir = table.optional("state_dir");
    let state_dir = maybe(report, state_dir, path);
    let connections = table.optional("connections");
    let connections = maybe(report, connections, |r, node| count(r, node, bounds::CONNECTIONS));
    let header_time = wait(report, &mut table, "header_time", usual.header_time);
    let body_time = wait(report, &mut table, "body_time", usual.body_time);
    let rates = table.optional("rates");
    let rates = maybe(report, rates, |report, node| self::rates(report, node, usual.rates));
    table.finish(report);
    let texts = |all: Vec<Spanned<String>>| all.into_iter().map(|one| one.value).collect();
    Some(Server {
        listen: listen?,
        behind_proxy: behind_proxy?.is_some_and(|written| written.value),
        tls: tls?,
        hosts: hosts?.map(texts).unwrap_or_default(),
        origins: origins?.map(texts).unwrap_or_default(),
        audit: audit?,
        state_dir: state_dir?,
        connections: connections?.map_or(Some(usual.connections), |n| usize::try_from(n.value).ok())?,
        header_time: header_time?,
        body_time: body_time?,
        rates: rates?.unwrap_or(usual.rates),
    })
}

fn address(text: &str) -> Result<SocketAddr, Diagnostic> {
    text.parse().map_err(|_| {
        Diagnostic::error("`listen` must be an address and a port")
            .help(format!("for this machine alone, write `listen = \"{}\"`", bounds::DEFAULT_LISTEN))
    })
}

fn tls(report: &mut Report, node: &Node<'_>) -> Option<Tls> {
    let mut table = Table::open(report, node, "`tls`")?;
    let cert = table.required("cert", "write the certificate chain's PEM file: `cert = \"cert.pem\"`");
    let cert = cert.and_then(|node| path(report, &node));
    let key = table.required("key", "write the private key's PEM file: `key = \"key.pem\"`");
    let key = key.and_then(|node| path(report, &node));
    table.finish(report);
    Some(Tls { cert: cert?, key: key? })
}

fn rates(report: &mut Report, node: &Node<'_>, usual: Rates) -> Option<Rates> {
    let mut table = Table::open(report, node, "`rates`")?;
    let mut rate = |name: &'static str, usual: u32| {
        let node = table.optional(name);
        maybe(report, node, |report, node| count(report, node, bounds::RATE))
            .map(|n| n.map_or(usual, |n| n.value))
    };
    let (writes, reads) = (rate("writes", usual.writes), rate("reads", usual.reads));
    table.finish(report);
    Some(Rates { writes: writes?, reads: reads? })
}

fn path(report: &mut Report, node: &Node<'_>) -> Option<Spanned<PathBuf>> {
    text(report, node).map(|text| Spanned::new(PathBuf::from(&text.value), text.span))
}

fn wait(report: &mut Report, table: &mut Table<'_>, name: &'static str, usual: Duration) -> Option<Duration> {
    let node = table.optional(name);
    let written = maybe(report, node, |report, node| duration(report, node, bounds::WAIT))?;
    Some(written.map_or(usual, |written| written.value))
}

fn host(text: &str) -> Result<String, Diagnostic> {
    match Host::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err(Diagnostic::error("this is no host name")
            .help("write it as clients do: \"tools.example.com\", or with a port")),
    }
}

fn origin(text: &str) -> Result<String, Diagnostic> {
    if is_origin(text) {
        return Ok(text.to_owned());
    }
    Err(Diagnostic::error("this is no origin")
        .help("write it as browsers do: \"https://app.example.com\", without a path"))
}
