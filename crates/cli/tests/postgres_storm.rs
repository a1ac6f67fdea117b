//! Three server processes over one database of PostgreSQL: a hundred identical calls, a hundred that contradict one
//! another, and a mixed storm in which three calls of ten are retries, many of them while the original is on its way.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Barrier, Mutex};

use counterfoil_testkit::postgres::Database;
use counterfoil_testkit::site::{Data, Kind};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Done, Http, Send, Server, Site, Told, Who, set_interval};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
const CALLS: usize = 20_000;
const CALLERS: u64 = 12;
/// Rows that everybody edits: 100 and up.
const ROWS: i64 = 8;

fn servers(site: &Site) -> Vec<Server> {
    (0..3).map(|_| Server::start(Path::new(PROGRAM), &site.main())).collect()
}

/// All at once, each on a connection of its own, over the servers in turn.
fn at_once(servers: &[Server], sends: &[Send]) -> Vec<Told> {
    let start = Barrier::new(sends.len());
    let one = |server: &Server, send: &Send| {
        let mut http = server.connect(Who::Alice);
        start.wait();
        http.call(send)
    };
    std::thread::scope(|scope| {
        let pairs = sends.iter().zip(servers.iter().cycle());
        let one = &one;
        let threads: Vec<_> = pairs.map(|(send, server)| scope.spawn(move || one(server, send))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_hundred_calls_over_three_servers_are_one() {
    let site = Site::automations_on(Kind::Postgres);
    let servers = servers(&site);
    let identical = vec![Send::from(&set_interval("edit-42", 1, 1, 30)); 100];
    let done: Vec<Done> = at_once(&servers, &identical).iter().map(|told| told.answer().done()).collect();
    assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1);
    assert!(done.iter().all(|one| one.result == done[0].result && one.committed_at == done[0].committed_at));
    assert_eq!(site.database.row(1).unwrap().version, 2);
    let rivals: Vec<Send> = (0..100).map(|at| Send::from(&set_interval("edit-43", 2, 1, 5 + at))).collect();
    let told = at_once(&servers, &rivals);
    let won = told.iter().filter(|told| matches!(told.answer(), Answer::Done(_))).count();
    assert_eq!(won, 1);
    for told in &told {
        if let Answer::Refused(refused) = told.answer() {
            assert_eq!(refused.code, "request_id_reused");
        }
    }
    assert_eq!(site.database.row(2).unwrap().version, 2);
    assert_eq!(site.database.receipts(), 2);
}

/// What is known of all operations, by their ids.
#[derive(Default)]
struct Known {
    sent: Vec<(String, Send, i64)>,
    done: HashMap<String, (String, String, i64)>,
    versions: BTreeMap<i64, i64>,
}

/// One caller's share of the storm.
fn storm(mut connections: Vec<Http>, seed: u64, caller: u64, known: &Mutex<Known>) {
    let mut random = StdRng::seed_from_u64(seed ^ caller);
    for number in 0..CALLS / usize::try_from(CALLERS).unwrap() {
        let (id, send, row) = {
            let mut known = known.lock().unwrap();
            let retry = random.random_range(0..10) < 3 && !known.sent.is_empty();
            if retry {
                // Often one of the last, which may still be on its way.
                let back = if random.random_bool(0.5) { known.sent.len().min(16) } else { known.sent.len() };
                known.sent[known.sent.len() - 1 - random.random_range(0..back)].clone()
            } else {
                let row = 100 + random.random_range(0..ROWS);
                let (id, seen) = (format!("op-{caller}-{number}"), known.versions[&row]);
                let ask = set_interval(&id, row, seen, random.random_range(5..1440));
                known.sent.push((id.clone(), Send::from(&ask), row));
                (id, Send::from(&ask), row)
            }
        };
        let at = random.random_range(0..connections.len());
        match connections[at].call(&send).answer() {
            Answer::Done(done) => learn(&mut known.lock().unwrap(), id, row, done),
            Answer::Refused(refused) => {
                let known_codes = ["version_conflict", "busy"];
                assert!(known_codes.contains(&refused.code.as_str()), "{send:?}: {}", refused.error);
                if let Some(version) = refused.error["current"]["version"].as_i64() {
                    let mut known = known.lock().unwrap();
                    let last = known.versions.get_mut(&row).unwrap();
                    *last = version.max(*last);
                    assert!(!known.done.contains_key(&id), "{id} had committed");
                }
            }
        }
    }
}

/// Every reply of an operation is the same.
fn learn(known: &mut Known, id: String, row: i64, done: Done) {
    let version =
        serde_json::from_str::<serde_json::Value>(&done.result).unwrap()["version"].as_i64().unwrap();
    let last = known.versions.get_mut(&row).unwrap();
    *last = version.max(*last);
    let told = (done.result, done.committed_at, row);
    let before = known.done.entry(id.clone()).or_insert_with(|| told.clone());
    assert_eq!(*before, told, "{id}");
}

fn hold(database: &Database, known: &Known) {
    let lines = database.query("SELECT request_id, result FROM counterfoil_receipts");
    let receipts: HashMap<String, String> = lines.iter().map(|line| (line.get(0), line.get(1))).collect();
    assert_eq!(receipts.len(), lines.len());
    for (id, (result, ..)) in &known.done {
        assert_eq!(receipts.get(id), Some(result), "{id}");
    }
    // Every receipt was told to somebody: all answers arrived.
    assert_eq!(receipts.len(), known.done.len());
    for row in 100..100 + ROWS {
        let edits = known.done.values().filter(|(.., of)| *of == row).count();
        assert_eq!(database.row(row).unwrap().version - 1, i64::try_from(edits).unwrap(), "row {row}");
    }
}

#[test]
fn a_storm_of_calls_and_retries_over_three_servers() {
    let seed =
        std::env::var("COUNTERFOIL_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("COUNTERFOIL_SEED={seed}");
    let site = Site::automations_on(Kind::Postgres);
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    let mut known = Known::default();
    for row in 100..100 + ROWS {
        database.execute(&format!("INSERT INTO automations VALUES ({row}, 'team-a', 15, 1)"));
        known.versions.insert(row, 1);
    }
    let (servers, known) = (servers(&site), Mutex::new(known));
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let connections = servers.iter().map(|server| server.connect(Who::Alice)).collect();
            let known = &known;
            scope.spawn(move || storm(connections, seed, caller, known));
        }
    });
    let known = known.into_inner().unwrap();
    println!("{} operations sent, {} committed", known.sent.len(), known.done.len());
    hold(database, &known);
}
