//! C11: a primary with a synchronous standby is killed under load, the standby is promoted, and ledgers that know both
//! hosts go on by themselves: nothing that was acknowledged is lost, and what was under way is done once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::OpenError;
use counterfoil::core::{Code, Refusal, Reply};
use counterfoil::postgres::{Declared, Ledger, Options};
use counterfoil::tokio_postgres::config::TargetSessionAttrs;
use counterfoil::tokio_postgres::{Client, Config, NoTls};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::{Single, declaration};
use counterfoil_testkit::postgres::{AUTOMATIONS, Cluster, runtime};
use counterfoil_testkit::{Who, set_interval};

/// Callers at once, each with a row of its own.
const CALLERS: i64 = 8;

async fn connect(cluster: &Cluster) -> Client {
    let (client, connection) = cluster.config("postgres").connect(NoTls).await.unwrap();
    drop(tokio::spawn(connection));
    client
}

/// Asks again and again, until the answer is yes.
async fn until(client: &Client, sql: &str) {
    while !client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0) {}
}

/// Both hosts, and only the one that takes writes.
fn both(primary: &Cluster, standby: &Cluster) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(primary.port()).host("127.0.0.1").port(standby.port());
    config.user("postgres").dbname("postgres").target_session_attrs(TargetSessionAttrs::ReadWrite);
    config
}

/// What one caller was told, by request id.
type Told = HashMap<String, Reply>;

/// Edits its row, one version after the other, each until it is told a reply: an answer that leaves the operation open
/// is followed by the same call.
async fn edit(ledger: Ledger, declared: Arc<Declared>, row: i64, load: Arc<Load>) -> Told {
    let mut told = Told::new();
    let mut version = 1;
    while !load.stop.load(Ordering::SeqCst) {
        let id = format!("edit-{row}-{version}");
        let reply = loop {
            let handler = Single::new(call(Who::Alice, &set_interval(&id, row, version, 30)), &declared);
            match ledger.perform(Arc::clone(&handler.steps.call), handler).await {
                Ok(reply) => break reply,
                Err(refusal) => assert!(open(&refusal), "{id}: {refusal:?}"),
            }
        };
        load.done.fetch_add(1, Ordering::SeqCst);
        told.insert(id, reply);
        version += 1;
    }
    told
}

fn open(refusal: &Refusal) -> bool {
    matches!(refusal.code(), Code::Busy | Code::OutcomeUnknown)
}

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    done: AtomicUsize,
}

impl Load {
    async fn until(&self, done: usize) {
        while self.done.load(Ordering::SeqCst) < done {
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_primary_dies() {
    let runtime = runtime();
    let primary = Cluster::start(&["fsync=off", "wal_level=replica"]);
    runtime.block_on(async {
        let client = connect(&primary).await;
        client.batch_execute(AUTOMATIONS).await.unwrap();
        let rows = "DELETE FROM automations; INSERT INTO automations (id, workspace_id, interval_minutes, version) \
                    SELECT number, 'team-a', 15, 1 FROM generate_series(1, 8) AS number";
        client.batch_execute(rows).await.unwrap();
    });
    let standby = primary.standby(&["fsync=off", "hot_standby=on"]);
    runtime.block_on(async {
        let client = connect(&primary).await;
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'").await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until(&client, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'").await;
    });
    let refused = runtime.block_on(Ledger::open(standby.config("postgres"), Options::default())).unwrap_err();
    assert!(matches!(refused, OpenError::Standby) && refused.passing(), "{refused}");
    assert!(refused.to_string().contains("target_session_attrs=read-write"), "{refused}");
    let mut asked = standby.config("postgres");
    asked.target_session_attrs(TargetSessionAttrs::ReadWrite);
    let refused = runtime.block_on(Ledger::open(asked, Options::default())).unwrap_err();
    assert!(refused.to_string().contains("none of the hosts takes writes") && refused.passing(), "{refused}");

    let short = Options {
        pool: 8,
        connect_wait: Duration::from_secs(2),
        call_wait: Duration::from_secs(10),
        ..Options::default()
    };
    let told = runtime.block_on(async {
        let ledger = Ledger::open(both(&primary, &standby), short).await.unwrap();
        let declared = Arc::new(ledger.declare(&declaration()).await.unwrap());
        let load = Arc::new(Load::default());
        let callers: Vec<_> = (1..=CALLERS)
            .map(|row| tokio::spawn(edit(ledger.clone(), Arc::clone(&declared), row, Arc::clone(&load))))
            .collect();
        load.until(200).await;
        primary.kill();
        let client = connect(&standby).await;
        client.query_one("SELECT pg_promote()", &[]).await.unwrap();
        let before = load.done.load(Ordering::SeqCst);
        load.until(before + 200).await;
        load.stop.store(true, Ordering::SeqCst);
        let mut told = Told::new();
        for caller in callers {
            told.extend(caller.await.unwrap());
        }
        told
    });
    runtime.block_on(compare(&standby, told));
}

/// Every reply that was told has its receipt, and every row has been changed as often as it has receipts.
async fn compare(standby: &Cluster, told: Told) {
    let client = connect(standby).await;
    let sql = "SELECT request_id, result FROM counterfoil_receipts";
    let receipts: HashMap<String, String> =
        client.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    for (id, reply) in &told {
        let result = receipts.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
        assert_eq!(&*reply.result, result, "{id}");
    }
    assert_eq!(receipts.len(), told.len(), "no receipt of what nobody was told");
    for row in 1..=CALLERS {
        let prefix = format!("edit-{row}-");
        let edits = receipts.keys().filter(|id| id.starts_with(&prefix)).count();
        let version: i64 =
            client.query_one("SELECT version FROM automations WHERE id = $1", &[&row]).await.unwrap().get(0);
        assert_eq!(version, 1 + i64::try_from(edits).unwrap(), "row {row}");
    }
}
