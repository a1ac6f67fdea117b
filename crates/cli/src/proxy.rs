//! `counterfoil proxy`: an MCP server that an agent is pointed at instead of the real one.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use counterfoil_client::proxy::{Proxy, Told, Upstream};
use counterfoil_client::time::SystemTimer;
use counterfoil_client::words::{ServerUrl, Tool};

use crate::address::address;
use crate::call::{Identity, Place, Tries};
use crate::serve::{logging, told_to_end};

/// What stands under the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  counterfoil proxy --upstream https://tools.example.com/mcp --token-env TOKEN
  counterfoil proxy -- npx -y @modelcontextprotocol/server-filesystem /home/alice/notes
  counterfoil proxy --listen 127.0.0.1:9000 --upstream http://127.0.0.1:8080/mcp --token-file token
  counterfoil proxy --request-ids create_payment=idempotency_key -- payments-server

It speaks MCP on standard input and output, or where --listen says, and passes everything through. A call of a tool
that takes request ids is on disk before it is sent, and sent again under its id until its outcome is known. Other
calls that may change something are sent once; if the answer is lost the agent is told so. Tools that only read are
asked again. The upstream gets the token given here, and never anything of its caller's.

The log goes to standard error. RUST_LOG says how much of it [default: warn].

Exit codes: 0 the caller left or the proxy was told to end, 2 wrong arguments, 3 it could not run.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the upstream speaks MCP, as https://tools.example.com/mcp
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse, conflicts_with = "command", required_unless_present = "command")]
    upstream: Option<ServerUrl>,
    /// Also a way in: listen here for MCP over HTTP, instead of standard input and output; loopback only
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// A tool that takes request ids without saying so, and the argument that takes them [default: _meta]; may be
    /// given more than once
    #[arg(long = "request-ids", value_name = "TOOL[=ARGUMENT]", value_parser = told)]
    request_ids: Vec<(Box<str>, Option<Box<str>>)>,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    tries: Tries,
    #[command(flatten)]
    place: Place,
    /// The upstream as a command that speaks MCP on its standard input and output
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn told(text: &str) -> Result<(Box<str>, Option<Box<str>>), String> {
    let (tool, argument) = match text.split_once('=') {
        Some((_, "")) => return Err("the argument is missing: write TOOL=ARGUMENT, or TOOL alone".into()),
        Some((tool, argument)) => (tool, Some(argument.into())),
        None => (text, None),
    };
    Tool::parse(tool).map_err(|error| error.to_string())?;
    Ok((tool.into(), argument))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    logging();
    // Calls of many callers wait for disk and network at once.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(arguments))?;
    // A read of standard input cannot be called back.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let upstream = upstream(arguments)?;
    let journal = arguments.place.open()?;
    let told: Told = arguments.request_ids.iter().cloned().collect::<HashMap<_, _>>();
    let identity = arguments.identity.caller()?;
    let with = (journal, Arc::new(SystemTimer::default()) as Arc<_>, arguments.tries.policy());
    let proxy = Proxy::new(upstream, identity, told, with)?;
    let shutdown = told_to_end()?;
    match arguments.listen {
        Some(address) => listen(&proxy, address, shutdown).await,
        None => {
            let served = proxy.serve_stdio(tokio::io::stdin(), tokio::io::stdout(), shutdown).await;
            served.context("standard input cannot be read")
        }
    }
}

async fn listen(
    proxy: &Arc<Proxy>,
    address: SocketAddr,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    if !address.ip().is_loopback() {
        bail!(
            "{address} can be reached from other machines, which would call with your token: listen on 127.0.0.1"
        );
    }
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener
        .with_context(|| format!("cannot listen on {address} (--listen 127.0.0.1:0 takes a free port)"))?;
    eprintln!("listening on http://{}/mcp", listener.local_addr()?);
    Ok(proxy.serve_http(listener, shutdown).await?)
}

fn upstream(arguments: &Arguments) -> anyhow::Result<Upstream> {
    let token = arguments.identity.token()?;
    if let Some(server) = &arguments.upstream {
        return Ok(Upstream::Web(server.clone(), token));
    }
    if token.is_some() {
        bail!("a command takes no token: give it what it needs in its environment or its arguments");
    }
    let folder = std::env::current_dir()?;
    let name = ServerUrl::of_command(&arguments.command, &folder)?;
    Ok(Upstream::Command(arguments.command.clone(), name))
}
