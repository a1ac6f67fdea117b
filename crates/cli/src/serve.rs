//! `counterfoil serve`: a plan, an engine, and the way calls reach it.

use std::future::Future;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use counterfoil::{Clock, SystemClock};
use counterfoil_core::Principal;
use counterfoil_core::json::Bounds;
use counterfoil_server::audit::{Audit, Target};
use counterfoil_server::auth::{Authenticator, TokenEntry};
use counterfoil_server::http::Certificates;
use counterfoil_server::limit::Limiter;
use counterfoil_server::mcp::{Mcp, Watch};
use counterfoil_server::plan::Plan;
use counterfoil_server::run::Engine;
use counterfoil_server::tools::Tools;
use counterfoil_server::{front, http, mcp};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::check;

/// How long a shutdown waits for begun calls.
const DRAIN: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config
    config: PathBuf,
    /// Where to listen; port 0 takes a free one [default: the config's, else 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", conflicts_with = "stdio", value_parser = crate::address::address)]
    listen: Option<SocketAddr>,
    /// A proxy in front speaks TLS: listen on addresses that other machines can reach, in the clear
    #[arg(long, conflicts_with = "stdio")]
    behind_proxy: bool,
    /// Speak over standard input and output, as the principal of [auth.stdio]
    #[arg(long)]
    stdio: bool,
}

pub(crate) fn serve(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    logging();
    let Some(plan) = check::planned(&arguments.config)? else { return Ok(ExitCode::from(check::WRONG)) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(arguments, plan))?;
    // Standard input blocks a thread for ever; nothing of it is worth waiting for.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn run(arguments: &Arguments, plan: Plan) -> anyhow::Result<()> {
    // A server that will not serve leaves the database alone: the way in comes first.
    let door = if arguments.stdio { Door::stdio(&plan)? } else { Door::http(arguments, &plan).await? };
    let audit = door.audit(&plan)?;
    let shutdown = terminated(door.reloads(audit.clone()))?;
    let engine = Arc::new(Engine::start(plan.clone()).await.context("the server cannot start")?);
    let draining = Arc::clone(&engine);
    let shutdown = async move {
        shutdown.await;
        draining.drain();
    };
    door.serve(plan, Arc::clone(&engine) as Arc<dyn Tools>, audit.clone(), shutdown).await?;
    let closing = move || {
        engine.close();
        if let Some(audit) = audit {
            audit.close();
        }
    };
    tokio::task::spawn_blocking(closing).await?;
    Ok(())
}

/// The way calls come in, open but not yet served.
enum Door {
    Http(TcpListener, Option<Arc<Certificates>>),
    Stdio(Arc<Principal>),
}

impl Door {
    async fn http(arguments: &Arguments, plan: &Plan) -> anyhow::Result<Self> {
        let (address, edge) = (arguments.listen.unwrap_or(plan.listen), &plan.edge);
        let sheltered = edge.tls.is_some() || edge.behind_proxy || arguments.behind_proxy;
        if !address.ip().is_loopback() && !sheltered {
            bail!(
                "{address} can be reached from other machines: give the config `tls` in [server], or say --behind-proxy if a proxy in front speaks TLS, or listen on 127.0.0.1"
            );
        }
        if plan.tokens.is_empty() && edge.trusted.is_empty() {
            bail!(
                "nobody can call over HTTP: add a [[auth.token]] (`counterfoil token new` makes one) or a [[auth.jwt]], or use --stdio"
            );
        }
        let certificates = edge.tls.clone().map(Certificates::load).transpose()?.map(Arc::new);
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!("cannot listen on {address} (--listen 127.0.0.1:0 takes a free port)")
        })?;
        Ok(Self::Http(listener, certificates))
    }

    fn stdio(plan: &Plan) -> anyhow::Result<Self> {
        let principal = plan.stdio.clone();
        Ok(Self::Stdio(principal.context("nobody can call over stdio: add [auth.stdio] to the config")?))
    }

    fn audit(&self, plan: &Plan) -> anyhow::Result<Option<Arc<Audit>>> {
        let Some(target) = plan.edge.audit.clone() else { return Ok(None) };
        if target == Target::Stdout && matches!(self, Door::Stdio(_)) {
            bail!("over stdio, standard output is the protocol's: name a file as `audit` in [server]");
        }
        Ok(Some(Arc::new(Audit::open(target).context("the audit log cannot be opened")?)))
    }

    /// What SIGHUP reads and opens anew; without any of it, SIGHUP ends the server.
    fn reloads(&self, audit: Option<Arc<Audit>>) -> Reloads {
        let certificates = match self {
            Door::Http(_, certificates) => certificates.clone(),
            Door::Stdio(_) => None,
        };
        Reloads { certificates, audit }
    }

    async fn serve(
        self,
        plan: Plan,
        tools: Arc<dyn Tools>,
        audit: Option<Arc<Audit>>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (limits, clock) = (limits(&plan), Arc::new(SystemClock) as Arc<dyn Clock>);
        let watch = Watch { limiter: None, audit, clock: Arc::clone(&clock) };
        match self {
            Door::Http(listener, certificates) => {
                let address = listener.local_addr()?;
                let scheme = if certificates.is_some() { "https" } else { "http" };
                let (known, options) = edge(plan, watch, certificates, &clock)?;
                let edge = http::Edge::new(tools, known, http::Options { limits, ..options });
                eprintln!("listening on {scheme}://{address}{}", http::MCP_PATH);
                http::serve(listener, edge, shutdown).await?;
            }
            Door::Stdio(principal) => {
                let mcp = Mcp::new(tools).watched(watch);
                let streams = (tokio::io::stdin(), tokio::io::stdout());
                mcp::serve_stdio(mcp, principal, limits, streams, shutdown, DRAIN).await?;
            }
        }
        Ok(())
    }
}

fn edge(
    plan: Plan,
    watch: Watch,
    tls: Option<Arc<Certificates>>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(Authenticator, http::Options)> {
    let entries = plan.tokens.into_iter().map(|(sha256, principal)| TokenEntry { sha256, principal });
    let edge = plan.edge;
    let known = Authenticator::new(entries.collect()).trusting(edge.trusted, clock)?;
    let limiter = edge.rates.map(|rates| Arc::new(Limiter::new(rates, Arc::clone(clock))));
    let options = http::Options {
        hosts: edge.hosts,
        origins: edge.origins,
        metadata: edge.metadata,
        tls,
        connections: edge.connections,
        header_wait: edge.header_wait,
        body_wait: edge.body_wait,
        watch: Watch { limiter, ..watch },
        drain: DRAIN,
        ..http::Options::default()
    };
    Ok((known, options))
}

fn limits(plan: &Plan) -> front::Limits {
    let json = Bounds { nesting: plan.limits.nesting, values: plan.limits.values };
    front::Limits { body: plan.limits.body, json }
}

/// What is read and opened anew on SIGHUP.
struct Reloads {
    certificates: Option<Arc<Certificates>>,
    audit: Option<Arc<Audit>>,
}

impl Reloads {
    /// Resolves at a SIGHUP that has nothing to reload.
    async fn until_hang_up(self, mut hang_up: Signal) {
        while hang_up.recv().await.is_some() {
            if self.certificates.is_none() && self.audit.is_none() {
                return;
            }
            if let Some(audit) = &self.audit {
                audit.reopen();
            }
            let Some(certificates) = self.certificates.clone() else { continue };
            match tokio::task::spawn_blocking(move || certificates.reload()).await {
                Ok(Ok(())) => eprintln!("the certificate was read again"),
                Ok(Err(problem)) => {
                    tracing::error!(%problem, "the new certificate is not used: the old one stays");
                }
                Err(_panicked) => {}
            }
        }
    }
}

/// SIGXFSZ of Linux: a file has grown to its limit.
const FILE_SIZE: i32 = 25;

/// As [`terminated`], where there is nothing to reload.
pub(crate) fn told_to_end() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    terminated(Reloads { certificates: None, audit: None })
}

/// Resolves on SIGTERM, SIGINT, SIGQUIT, or a SIGHUP that has nothing to reload. Listening begins at once, so that no
/// early signal is lost.
fn terminated(reloads: Reloads) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (hang_up, mut quit) = (signal(SignalKind::hangup())?, signal(SignalKind::quit())?);
    // Heard and not acted on: the write fails as on a full disk, which is answered, instead of ending the process.
    let file_size = signal(SignalKind::from_raw(FILE_SIZE))?;
    Ok(async move {
        let _file_size = file_size;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = reloads.until_hang_up(hang_up) => {}
            _ = quit.recv() => {}
        }
    })
}

/// To standard error; warnings and errors unless `RUST_LOG` says otherwise.
pub(crate) fn logging() {
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing::level_filters::LevelFilter::WARN.into())
        .from_env_lossy()
        .add_directive(mcp::LOG_DIRECTIVE.parse().unwrap_or_default());
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
}
