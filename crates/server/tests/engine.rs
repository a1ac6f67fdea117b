//! The engine by itself: what no edge can show without a race.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;

use counterfoil::rusqlite::Connection;
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::{Principal, Sources};
use counterfoil_server::run::Engine;
use counterfoil_server::tools::{Answer, ToolCall, Tools as _, UnknownTool};
use counterfoil_server::{config, plan};
use tokio_util::sync::CancellationToken;

const CONFIG: &str = include_str!("../../../examples/automations/counterfoil.toml");
const SCHEMA: &str = include_str!("../../../examples/automations/schema.sql");

async fn engine(folder: &std::path::Path) -> (Arc<Engine>, Arc<Principal>) {
    std::fs::write(folder.join("schema.sql"), SCHEMA).unwrap();
    let config = config::parse(&folder.join("counterfoil.toml").to_string_lossy(), CONFIG).unwrap();
    let (plan, report) = plan::plan(&config);
    assert!(report.is_empty(), "{report}");
    let plan = plan.unwrap();
    let alice = plan.stdio.clone().unwrap();
    (Arc::new(Engine::start(plan).await.unwrap()), alice)
}

fn edit(request_id: &str, id: i64, cancelled: &CancellationToken) -> ToolCall {
    let text = format!(
        "{{\"request_id\":\"{request_id}\",\"id\":{id},\"expected_version\":1,\"interval_minutes\":30}}"
    );
    ToolCall {
        name: "set_interval".into(),
        arguments: Some(json::parse(text.as_bytes(), Bounds::default()).unwrap()),
        sources: Sources::default(),
        noted: Arc::default(),
        cancelled: cancelled.clone(),
    }
}

fn code(answer: &Result<Answer, UnknownTool>) -> Option<&'static str> {
    match answer {
        Ok(Answer::Refused(refusal)) => Some(refusal.code().as_str()),
        Ok(Answer::Done { .. }) | Err(UnknownTool) => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_that_has_not_begun_never_does() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, alice) = engine(folder.path()).await;
    // Another program's lock: nothing begins before it goes.
    let other = Connection::open(folder.path().join("automations.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (stays, goes) = (CancellationToken::new(), CancellationToken::new());
    let call = |edit| {
        let (engine, alice) = (Arc::clone(&engine), Arc::clone(&alice));
        tokio::spawn(async move { engine.call(alice, edit).await })
    };
    let (stayed, gone) = (call(edit("stays", 1, &stays)), call(edit("goes", 2, &goes)));
    goes.cancel();
    assert_eq!(code(&gone.await.unwrap()), Some("busy"));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(code(&stayed.await.unwrap()), None);
    let count = "SELECT group_concat(request_id), (SELECT version FROM automations WHERE id = 2) FROM counterfoil_receipts";
    let left: (String, i64) = other.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(left, ("stays".to_owned(), 1));
}
