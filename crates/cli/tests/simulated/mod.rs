//! The parts of the simulation: the real engine, a network that a seed makes unreliable, and time that passes only
//! where somebody waits.

pub(crate) mod life;
pub(crate) mod network;
pub(crate) mod truth;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_core::json::{self, Bounds, Value};
use counterfoil_core::{Principal, Sources, wire};
use counterfoil_server::run::Engine;
use counterfoil_server::tools::{Answer, ToolCall, Tools as _};
use counterfoil_server::{config, plan};
use counterfoil_testkit::OwnedClock;
use tokio_util::sync::CancellationToken;

const CONFIG: &str = include_str!("../../../../examples/automations/counterfoil.toml");
const SCHEMA: &str = include_str!("../../../../examples/automations/schema.sql");

/// A write that no version guards: done twice, it shows.
const BUMP: &str = r#"
[tools.bump]
revision    = "v1"
description = "Raise an automation's version."
scope       = "automation:write"
access      = "SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace"
write       = """
  UPDATE automations SET version = version + 1 WHERE id = :id AND workspace_id = :workspace
  RETURNING id, interval_minutes, version"""
input.id    = { type = "integer", minimum = 1 }
"#;

/// When every life begins, on both sides.
pub(crate) const START: &str = "2026-11-30T00:00:00.000000Z";
/// The row of the first life; the next one's is the next.
pub(crate) const FIRST_ROW: i64 = 1000;

/// The engine, asked as its edge asks it.
pub(crate) struct Server {
    engine: Arc<Engine>,
    alice: Arc<Principal>,
    pub(crate) database: PathBuf,
}

impl Server {
    /// Over a fresh database with `rows` rows.
    pub(crate) async fn start(folder: &Path, rows: u64) -> Self {
        let schema = format!(
            "{SCHEMA}\nWITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {rows})\n\
             INSERT INTO automations (id, workspace_id, interval_minutes) SELECT {FIRST_ROW} + i, 'team-a', 15 FROM n;\n"
        );
        std::fs::write(folder.join("schema.sql"), schema).unwrap();
        let file = folder.join("counterfoil.toml");
        let text = CONFIG.replace(
            "[[auth.token]]                          # alice",
            &format!("{BUMP}\n[[auth.token]] # alice"),
        );
        let (plan, report) = plan::plan(&config::parse(&file.to_string_lossy(), &text).unwrap());
        let plan = plan.unwrap_or_else(|| panic!("{report}"));
        let alice = plan.stdio.clone().unwrap();
        let engine = Arc::new(Engine::start_at(plan, OwnedClock::at(START)).await.unwrap());
        Self { engine, alice, database: folder.join("automations.db") }
    }

    pub(crate) async fn stop(&self) {
        let engine = Arc::clone(&self.engine);
        tokio::task::spawn_blocking(move || engine.close()).await.unwrap();
    }

    /// The answer to a JSON-RPC request.
    pub(crate) async fn serve(&self, body: &str) -> String {
        let asked = json::parse(body.as_bytes(), Bounds::default()).unwrap();
        let id = json::text(asked.get("id").unwrap());
        let result = match asked.get("method").and_then(Value::as_str) {
            Some("server/discover") => format!("{{\"_meta\":{{\"{}\":\"alice\"}}}}", wire::META_CALLER),
            Some("tools/call") => self.call(asked.get("params").unwrap()).await,
            _ => panic!("{body}"),
        };
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
    }

    async fn call(&self, params: &Value) -> String {
        let meta = params.get("_meta").and_then(|meta| meta.get(wire::META_REQUEST_ID)).cloned();
        let call = ToolCall {
            name: params.get("name").and_then(Value::as_str).unwrap().to_owned(),
            arguments: params.get("arguments").cloned(),
            sources: Sources { meta, ..Sources::default() },
            noted: Arc::default(),
            cancelled: CancellationToken::new(),
        };
        let (structured, is_error) = match self.engine.call(Arc::clone(&self.alice), call).await.unwrap() {
            Answer::Done { structured, .. } => (structured, false),
            Answer::Refused(refusal) => (refusal.body(), true),
        };
        format!("{{\"content\":[],\"structuredContent\":{structured},\"isError\":{is_error}}}")
    }

    /// Somebody else of the same name raises the version of `row`, under the id `id`.
    pub(crate) async fn rival(&self, row: i64, id: &str) {
        let answer = self.serve(&request("bump", &format!("{{\"id\":{row},\"request_id\":\"{id}\"}}"))).await;
        assert!(answer.contains("\"replayed\":false"), "{answer}");
    }

    /// The version of `row` now.
    pub(crate) async fn version(&self, row: i64) -> i64 {
        let answer = self.serve(&request("get_automation", &format!("{{\"id\":{row}}}"))).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["result"]["structuredContent"]["result"]["version"].as_i64().unwrap()
    }
}

fn request(tool: &str, arguments: &str) -> String {
    let mut out = String::from("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":");
    let _infallible = write!(out, "{{\"name\":\"{tool}\",\"arguments\":{arguments}}}}}");
    out
}
