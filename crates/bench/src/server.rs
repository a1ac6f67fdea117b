//! The server that the MCP figures call: the real edge, plan and engine, and beside the engine one tool that does
//! nothing.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use counterfoil_core::Principal;
use counterfoil_server::auth::{Authenticator, TokenEntry};
use counterfoil_server::plan::{Plan, plan};
use counterfoil_server::run::Engine;
use counterfoil_server::tools::{Answer, Effect, Listed, Pending, ToolCall, Tools, UnknownTool};
use counterfoil_server::{config, http};

/// The tool that does nothing.
pub(crate) const NOOP: &str = "noop";
/// What stands before the address on the line that says that the server listens.
pub(crate) const LISTENING: &str = "listening on ";

/// Everything passes to the engine but a call of [`NOOP`], which is answered at once.
struct WithNoop(Engine);

impl Tools for WithNoop {
    fn list(&self, principal: &Principal) -> Vec<Listed> {
        self.0.list(principal)
    }

    fn effect(&self, name: &str) -> Option<Effect> {
        if name == NOOP { Some(Effect::Read) } else { self.0.effect(name) }
    }

    fn ready(&self) -> Pending<'_, bool> {
        self.0.ready()
    }

    fn call(&self, principal: Arc<Principal>, call: ToolCall) -> Pending<'_, Result<Answer, UnknownTool>> {
        if call.name != NOOP {
            return self.0.call(principal, call);
        }
        let nothing = || "{\"result\":null}".to_owned();
        Box::pin(async move { Ok(Answer::Done { structured: nothing(), text: nothing() }) })
    }
}

/// Serves `config` on a free port until it is killed, and prints which.
pub(crate) fn serve(config: &Path) -> anyhow::Result<()> {
    let plan = read(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(plan))
}

fn read(path: &Path) -> anyhow::Result<Plan> {
    let text = std::fs::read_to_string(path)?;
    let config = config::parse(&path.to_string_lossy(), &text).map_err(|report| anyhow!(report.plain()))?;
    let (planned, report) = plan(&config);
    planned.ok_or_else(|| anyhow!(report.plain()))
}

async fn run(plan: Plan) -> anyhow::Result<()> {
    let tokens = plan.tokens.clone().into_iter();
    let entries = tokens.map(|(sha256, principal)| TokenEntry { sha256, principal }).collect();
    let engine = Engine::start(plan).await.context("the server cannot start")?;
    let edge =
        http::Edge::new(Arc::new(WithNoop(engine)), Authenticator::new(entries), http::Options::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{LISTENING}{}", listener.local_addr()?);
    Ok(http::serve(listener, edge, std::future::pending()).await?)
}
