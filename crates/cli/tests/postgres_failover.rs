//! C11 through servers: a primary with a synchronous standby dies under load, the standby is promoted, and servers that
//! know both hosts find it by themselves. Nothing that was acknowledged is missing, and everything that was under way is
//! done once by the same call again.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use counterfoil::tokio_postgres::NoTls;
use counterfoil_testkit::postgres::{AUTOMATIONS, Cluster, runtime};
use counterfoil_testkit::{Answer, Done, Send, Server, Site, Who, set_interval};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

/// Callers at once, each with a row of its own and with every server in turn.
const CALLERS: i64 = 8;
/// Replies before the primary dies, and after it.
const REPLIES: usize = 150;

const ROWS: &str = "DELETE FROM automations; INSERT INTO automations (id, workspace_id, interval_minutes, version) \
                    SELECT number, 'team-a', 15, 1 FROM generate_series(1, 8) AS number";

#[derive(Default)]
struct Load {
    stop: AtomicBool,
    done: AtomicUsize,
    /// Calls that were answered with an open end, and so were made again.
    open: AtomicUsize,
}

impl Load {
    fn until(&self, done: usize) {
        while self.done.load(Ordering::SeqCst) < done {
            std::thread::yield_now();
        }
    }
}

/// What one caller was told, by request id.
type Told = BTreeMap<String, Done>;

/// Edits its row, one version after the other. An answer that leaves the operation open is followed by the same call,
/// by way of the next server.
fn edit(servers: &[Server], row: i64, load: &Load) -> Told {
    let mut told = Told::new();
    let mut connections: Vec<_> = servers.iter().map(|server| server.connect(Who::Alice)).collect();
    let mut next = 0;
    for version in 1.. {
        if load.stop.load(Ordering::SeqCst) {
            break;
        }
        let id = format!("edit-{row}-{version}");
        let send = Send::from(&set_interval(&id, row, version, 30));
        let done = loop {
            next += 1;
            let at = next % connections.len();
            match connections[at].call(&send).answer() {
                Answer::Done(done) => break done,
                Answer::Refused(refused) => {
                    let open = ["busy", "outcome_unknown"].contains(&refused.code.as_str());
                    assert!(open && refused.operation.as_deref() == Some("unknown"), "{id}: {refused:?}");
                    load.open.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        assert!(told.insert(id, done).is_none());
        load.done.fetch_add(1, Ordering::SeqCst);
    }
    told
}

#[test]
fn servers_follow_the_primary_and_lose_nothing() {
    let (primary, standby) = Cluster::pair(&format!("{AUTOMATIONS}; {ROWS}"));
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let site = Site::automations();
    let config = site.elsewhere("both.toml", &url, "pool = 4");
    let servers: Vec<_> = (0..2).map(|_| Server::start(Path::new(PROGRAM), &config)).collect();
    let load = Load::default();
    let mut told = Told::new();
    std::thread::scope(|scope| {
        let (servers, load) = (&servers, &load);
        let callers: Vec<_> =
            (1..=CALLERS).map(|row| scope.spawn(move || edit(servers, row, load))).collect();
        load.until(REPLIES);
        primary.kill();
        standby.execute("postgres", "SELECT pg_promote()");
        load.until(load.done.load(Ordering::SeqCst) + REPLIES);
        load.stop.store(true, Ordering::SeqCst);
        callers.into_iter().for_each(|caller| told.extend(caller.join().unwrap()));
    });
    println!("{} replies, {} calls made again", told.len(), load.open.load(Ordering::SeqCst));
    holds(&standby, &told);
    // Once more, all of it: history and no effect.
    let mut alice = servers[0].connect(Who::Alice);
    for (id, done) in &told {
        let (row, version) = id.trim_start_matches("edit-").split_once('-').unwrap();
        let send = Send::from(&set_interval(id, row.parse().unwrap(), version.parse().unwrap(), 30));
        assert_eq!(alice.call(&send).answer().done(), Done { replayed: true, ..done.clone() });
    }
    holds(&standby, &told);
}

/// Every reply has its receipt, byte for byte, there is none of what nobody was told, and every row has been changed as
/// often as it has receipts.
fn holds(cluster: &Cluster, told: &Told) {
    let rows = runtime().block_on(async {
        let (client, connection) = cluster.config("postgres").connect(NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        let receipts =
            client.query("SELECT request_id, result FROM counterfoil_receipts", &[]).await.unwrap();
        let receipts: BTreeMap<String, String> =
            receipts.iter().map(|row| (row.get(0), row.get(1))).collect();
        let lost: Vec<_> = told.keys().filter(|id| !receipts.contains_key(*id)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let results: BTreeMap<_, _> =
            told.iter().map(|(id, done)| (id.clone(), done.result.clone())).collect();
        assert_eq!(receipts, results);
        client.query("SELECT id, version FROM automations", &[]).await.unwrap()
    });
    assert_eq!(rows.len(), usize::try_from(CALLERS).unwrap());
    for row in rows {
        let (id, version): (i64, i64) = (row.get(0), row.get(1));
        let edits = told.keys().filter(|told| told.starts_with(&format!("edit-{id}-"))).count();
        assert_eq!(version, 1 + i64::try_from(edits).unwrap(), "row {id}");
    }
}
