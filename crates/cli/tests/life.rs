//! The life of a receipt as real processes see it: killed while they remove, restored behind their back, and told to keep
//! no arguments.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Stdio};

use counterfoil_testkit::site::{Data, Kind};
use counterfoil_testkit::{Send, Server, Site, Who, set_interval};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

fn prune(site: &Site) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["receipts", "prune"]).arg(site.main()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Many receipts that are over, with results of some size, and one that is not.
fn stock(database: &Data, count: i64) {
    counterfoil::sqlite::Ledger::open(database.path(), counterfoil::sqlite::Options::default())
        .unwrap()
        .close();
    database.execute(&format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
         INSERT INTO counterfoil_receipts
         SELECT 'team-a', 'local', 'alice', 'set_interval', 'old-' || n, 'committed', 1000000 + n, 'v1',
                zeroblob(32), '{{}}', '\"' || hex(zeroblob(200)) || '\"' FROM n;
         INSERT INTO counterfoil_receipts VALUES ('team-a', 'local', 'alice', 'set_interval', 'young', 'committed',
                strftime('%s', 'now') * 1000000, 'v1', zeroblob(32), '{{}}', '\"kept\"')"
    ));
}

/// SIGKILL in the middle of a removal: whatever it had done is done, nothing else is, and the next one finishes.
#[test]
fn a_removal_that_is_killed_goes_on() {
    let site = Site::automations();
    let database = &site.database;
    const COUNT: i64 = 20_000;
    stock(database, COUNT);
    let left = || database.count("SELECT count(*) FROM counterfoil_receipts WHERE request_id LIKE 'old-%'");
    for killed_at in [COUNT, COUNT * 9 / 10, COUNT / 2] {
        let mut running = prune(&site).spawn().unwrap();
        while left() >= killed_at && running.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        running.kill().unwrap();
        let _status = running.wait().unwrap();
        assert_eq!(
            database
                .connect()
                .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
                .unwrap(),
            "ok"
        );
        let half = "SELECT count(*) FROM counterfoil_receipts WHERE (result IS NULL) <> (intent IS NULL)";
        assert_eq!(database.count(half), 0, "no receipt is half removed");
        assert!(left() > 0, "it was killed in the middle");
    }
    assert!(prune(&site).status().unwrap().success());
    assert_eq!((left(), database.receipts()), (0, 1));
    let young = "SELECT count(*) FROM counterfoil_receipts WHERE result = '\"kept\"'";
    assert_eq!(database.count(young), 1);
}

fn epoch(told: &counterfoil_testkit::Answer) -> String {
    told.clone().done().epoch
}

/// T8 with real processes: the server is killed, an older copy is put in the file's place, and the next server says so.
#[test]
fn t8_a_server_on_an_older_copy_says_so_and_names_a_new_epoch() {
    let site = Site::automations();
    let (program, path) = (Path::new(PROGRAM), site.database.path());
    let call = |server: &Server, number: i64| {
        let ask = set_interval(&format!("edit-{number}"), 1, number, 30);
        server.connect(Who::Alice).call(&Send::from(&ask)).answer()
    };
    let server = Server::start(program, &site.main());
    let first = epoch(&call(&server, 1));
    server.terminate();
    assert!(server.ended().success());
    let older = site.database.directory().join("older.db");
    std::fs::copy(&path, &older).unwrap();
    let server = Server::start(program, &site.main());
    assert_eq!(epoch(&call(&server, 2)), first, "a restart without a loss keeps the epoch");
    let witness = counterfoil::witness::Keep::beside(&path).file;
    while !std::fs::read_to_string(&witness).is_ok_and(|text| text.contains("\"edit-2\"")) {
        std::thread::yield_now();
    }
    server.kill();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
    }
    std::fs::copy(&older, &path).unwrap();
    let server = Server::start(program, &site.main());
    assert!(server.log().contains("older copy"), "{}", server.log());
    let second = epoch(&call(&server, 1));
    assert_ne!(second, first);
    server.kill();
    let server = Server::start(program, &site.main());
    assert!(!server.log().contains("older copy"), "{}", server.log());
    assert_eq!(epoch(&call(&server, 1)), second, "begun once");
}

/// With `store_intent = false` a retry is still told apart by its fingerprint, and nobody is shown a result by
/// `operation_status`, which could not ask who may see it.
#[test]
fn without_stored_arguments_the_fingerprint_remains() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        without_stored_arguments(&Site::automations_on(kind));
    }
}

fn without_stored_arguments(site: &Site) {
    let text = std::fs::read_to_string(site.main()).unwrap();
    let all = site.config("all.toml", &text.replacen("[receipts]", "[receipts]\nstore_intent = false", 1));
    let one = site.config(
        "one.toml",
        &text.replacen("revision    = \"v1\"", "revision = \"v1\"\nstore_intent = false", 1),
    );
    for (config, id) in [(all, 1), (one, 2)] {
        let server = Server::start(Path::new(PROGRAM), &config);
        let mut alice = server.connect(Who::Alice);
        let name = format!("edit-{id}");
        let ask = set_interval(&name, id, 1, 30);
        let fresh = alice.call(&Send::from(&ask)).answer().done();
        let again = alice.call(&Send::from(&ask)).answer().done();
        assert_eq!((fresh.result, again.replayed), (again.result, true));
        let other = alice.call(&Send::from(&set_interval(&name, id, 1, 60))).answer();
        assert_eq!(other.refused().code, "request_id_reused");
        let question = format!("{{\"tool\":\"set_interval\",\"operation\":\"{name}\"}}");
        let status = alice.call(&Send::new("operation_status", question)).value();
        assert_eq!((status["state"].as_str(), status.get("result")), (Some("committed"), None), "{status}");
        let stored = "SELECT count(*) FROM counterfoil_receipts WHERE intent IS NOT NULL";
        assert_eq!(site.database.count(stored), 0);
    }
}

/// T8 on PostgreSQL: the witness is in the state folder, and a failover or restore ends every connection.
#[test]
fn t8_a_server_with_a_state_folder_notices_a_loss_on_postgresql() {
    let site = Site::automations_on(Kind::Postgres);
    let text = std::fs::read_to_string(site.main()).unwrap();
    let config = site.config("state.toml", &format!("{text}\n[server]\nstate_dir = \"state\"\n"));
    let call = |server: &Server, number: i64| {
        let ask = set_interval(&format!("edit-{number}"), 1, number, 30);
        server.connect(Who::Alice).call(&Send::from(&ask)).answer()
    };
    let without = Server::start(Path::new(PROGRAM), &site.main());
    assert!(without.log().contains("there is no `[server] state_dir`"), "{}", without.log());
    without.kill();
    let server = Server::start(Path::new(PROGRAM), &config);
    let first = epoch(&call(&server, 1));
    assert_eq!(epoch(&call(&server, 2)), first);
    let loss = "DELETE FROM counterfoil_receipts WHERE request_id = 'edit-2';
                UPDATE automations SET version = 2 WHERE id = 1;
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()";
    site.database.execute(loss);
    let second = epoch(&call(&server, 2));
    assert_ne!(second, first);
    assert!(server.log().contains("an older state took its place"), "{}", server.log());
    server.terminate();
    assert!(server.ended().success());
    site.database.execute(loss);
    let server = Server::start(Path::new(PROGRAM), &config);
    assert!(![first, second].contains(&epoch(&call(&server, 1))), "found at start");
    let begin = Command::new(PROGRAM).arg("restore").arg(&config).output().unwrap();
    assert!(begin.status.success(), "{begin:?}");
    let told = String::from_utf8(begin.stdout).unwrap();
    site.database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                            WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
    assert!(told.contains(&epoch(&call(&server, 1))), "{told}");
}
