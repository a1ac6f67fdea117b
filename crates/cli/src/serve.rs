//! `counterfoil serve`: a plan, an engine, and the way calls reach it.

use std::future::Future;
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use counterfoil_core::Principal;
use counterfoil_core::json::Bounds;
use counterfoil_server::auth::{Authenticator, TokenEntry};
use counterfoil_server::plan::Plan;
use counterfoil_server::run::Engine;
use counterfoil_server::tools::Tools;
use counterfoil_server::{front, http, mcp};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

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
    let shutdown = terminated()?;
    // A server that will not serve leaves the database alone: the way in comes first.
    let door = if arguments.stdio { Door::stdio(&plan)? } else { Door::http(arguments, &plan).await? };
    let engine = Arc::new(Engine::start(plan.clone()).await.context("the server cannot start")?);
    let draining = Arc::clone(&engine);
    let shutdown = async move {
        shutdown.await;
        draining.drain();
    };
    door.serve(plan, Arc::clone(&engine) as Arc<dyn Tools>, shutdown).await?;
    tokio::task::spawn_blocking(move || engine.close()).await?;
    Ok(())
}

/// The way calls come in, open but not yet served.
enum Door {
    Http(TcpListener),
    Stdio(Arc<Principal>),
}

impl Door {
    async fn http(arguments: &Arguments, plan: &Plan) -> anyhow::Result<Self> {
        let address = arguments.listen.unwrap_or(plan.listen);
        if !address.ip().is_loopback() {
            bail!(
                "{address} can be reached from other machines, and this version speaks no TLS: listen on 127.0.0.1, behind a proxy that does"
            );
        }
        if plan.tokens.is_empty() {
            bail!(
                "nobody can call over HTTP: add a [[auth.token]] (`counterfoil token new` makes one), or use --stdio"
            );
        }
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| {
            format!("cannot listen on {address} (--listen 127.0.0.1:0 takes a free port)")
        })?;
        Ok(Self::Http(listener))
    }

    fn stdio(plan: &Plan) -> anyhow::Result<Self> {
        let principal = plan.stdio.clone();
        Ok(Self::Stdio(principal.context("nobody can call over stdio: add [auth.stdio] to the config")?))
    }

    async fn serve(
        self,
        plan: Plan,
        tools: Arc<dyn Tools>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let limits = limits(&plan);
        match self {
            Door::Http(listener) => {
                let address = listener.local_addr()?;
                let entries =
                    plan.tokens.into_iter().map(|(sha256, principal)| TokenEntry { sha256, principal });
                let options = http::Options { limits, drain: DRAIN, ..http::Options::default() };
                let edge = http::Edge::new(tools, Authenticator::new(entries.collect()), options);
                eprintln!("listening on http://{address}{}", http::MCP_PATH);
                http::serve(listener, edge, shutdown).await?;
            }
            Door::Stdio(principal) => {
                let streams = (tokio::io::stdin(), tokio::io::stdout());
                mcp::serve_stdio(tools, principal, limits, streams, shutdown, DRAIN).await?;
            }
        }
        Ok(())
    }
}

fn limits(plan: &Plan) -> front::Limits {
    let json = Bounds { nesting: plan.limits.nesting, values: plan.limits.values };
    front::Limits { body: plan.limits.body, json }
}

/// SIGXFSZ of Linux: a file has grown to its limit.
const FILE_SIZE: i32 = 25;

/// Resolves on SIGTERM, SIGINT, SIGHUP or SIGQUIT. Listening begins at once, so that no early signal is lost.
pub(crate) fn terminated() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (mut hang_up, mut quit) = (signal(SignalKind::hangup())?, signal(SignalKind::quit())?);
    // Heard and not acted on: the write fails as on a full disk, which is answered, instead of ending the process.
    let file_size = signal(SignalKind::from_raw(FILE_SIZE))?;
    Ok(async move {
        let _file_size = file_size;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            _ = hang_up.recv() => {}
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
