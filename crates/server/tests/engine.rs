//! The engine by itself: what no edge can show without a race.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use counterfoil::rusqlite::Connection;
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::{Principal, Sources};
use counterfoil_server::run::{Engine, Pace};
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

/// A clock that the test moves.
struct Owned(std::sync::atomic::AtomicI64);

impl counterfoil::Clock for Owned {
    fn now(&self) -> counterfoil_core::Timestamp {
        counterfoil_core::Timestamp::from_micros(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

impl Owned {
    fn minutes(&self, minutes: i64) {
        let _before = self.0.fetch_add(minutes * 60_000_000, std::sync::atomic::Ordering::SeqCst);
    }
}

/// While the server runs, what is over goes, and the gauge says so; a clock that jumps is distrusted.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_removes_what_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let config = CONFIG.replace("keep     = \"30d\"", "keep = \"1h\"");
    std::fs::write(folder.path().join("schema.sql"), SCHEMA).unwrap();
    let config = config::parse(&folder.path().join("counterfoil.toml").to_string_lossy(), &config).unwrap();
    let plan = plan::plan(&config).0.unwrap();
    let alice = plan.stdio.clone().unwrap();
    let clock = Arc::new(Owned(1_796_000_000_000_000.into()));
    let pace = Pace { first: Duration::ZERO, every: Duration::from_millis(1) };
    let engine = Engine::start_paced(plan, Arc::clone(&clock) as Arc<_>, pace).await.unwrap();
    let none = CancellationToken::new();
    assert_eq!(code(&engine.call(alice, edit("edit-1", 1, &none)).await), None);
    // Minute by minute: so the clock is believed.
    while engine.removal().results == 0 {
        assert_eq!(engine.removal().facts, 0);
        clock.minutes(1);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gone = clock.0.load(std::sync::atomic::Ordering::SeqCst) - 1_796_000_000_000_000;
    assert!(gone > 65 * 60_000_000, "not before `keep` and the skew bound: {gone}");
    clock.minutes(400 * 24 * 60);
    while !engine.removal().distrusted {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(engine.removal().facts, 0, "the fact of a year that was none stays");
    tokio::task::spawn_blocking(move || engine.close()).await.unwrap();
}
