//! The server as a process: killed under load, asked to stop, started twice at once.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::sync::Barrier;
use std::sync::mpsc::{SyncSender, sync_channel};

use counterfoil_testkit::site::{EXAMPLE, EXAMPLE_SCHEMA, for_everybody};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Done, Http, Send, Server, Site, Stdio, Who, set_interval};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

/// Callers at once, each with a row of its own: 101 and up.
const CALLERS: i64 = 6;
const KILLS: usize = 12;

/// One caller's operations: operation `n` takes the row from version `n + 1` to `n + 2`.
#[derive(Default)]
struct Operations {
    /// What was answered before the server was killed; `None` where the answer never came.
    told: Vec<Option<Done>>,
}

fn operation(caller: i64, number: usize) -> Send {
    let version = i64::try_from(number).unwrap() + 1;
    let ask = set_interval(&format!("edit-{caller}-{number}"), 100 + caller, version, 5 + version % 1000);
    Send { modern: number.is_multiple_of(2), ..Send::from(&ask) }
}

/// New operations until the server is gone, one after the other; each answer is announced.
fn call_until_killed(mut http: Http, caller: i64, operations: &mut Operations, answered: &SyncSender<()>) {
    loop {
        let number = operations.told.len();
        operations.told.push(None);
        let request = http.request(&operation(caller, number));
        if http.write(&request).is_err() {
            return;
        }
        let Some(told) = http.try_finish() else { return };
        let done = told.answer().done();
        assert!(!done.replayed, "{done:?}");
        operations.told[number] = Some(done);
        let _main_has_seen_enough = answered.send(());
    }
}

/// Every operation so far again, under its own id: what was answered is answered the same, what was not happens now
/// or has happened.
fn call_again(server: &Server, caller: i64, operations: &mut Operations) {
    let mut http = server.connect(Who::Alice);
    for (number, before) in operations.told.iter_mut().enumerate() {
        let done = http.call(&operation(caller, number)).answer().done();
        let version = number + 2;
        assert!(done.result.ends_with(&format!("\"version\":{version}}}")), "{done:?}");
        match before {
            Some(before) => assert_eq!(done, Done { replayed: true, ..before.clone() }),
            None => *before = Some(done),
        }
    }
}

/// One life of a server, from start to kill.
fn life(server: Server, all: &mut [Operations], random: &mut StdRng) {
    let (acknowledged, spins) = (random.random_range(0..80), random.random_range(0..20_000));
    println!("killed after {acknowledged} answers and {spins} spins");
    let (answered, answers) = sync_channel(100_000);
    std::thread::scope(|scope| {
        for (caller, operations) in (1..).zip(all.iter_mut()) {
            let (http, answered) = (server.connect(Who::Alice), answered.clone());
            scope.spawn(move || call_until_killed(http, caller, operations, &answered));
        }
        answers.iter().take(acknowledged).for_each(drop);
        (0..spins).for_each(|_| std::hint::spin_loop());
        server.kill();
        drop(answers);
    });
}

/// C1: whatever a kill interrupts, every id has one effect at most, and every acknowledged answer is there.
#[test]
fn killed_under_load_every_operation_takes_effect_once() {
    let seed =
        std::env::var("COUNTERFOIL_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("COUNTERFOIL_SEED={seed}");
    let (mut random, site) = (StdRng::seed_from_u64(seed), Site::automations());
    for caller in 1..=CALLERS {
        let row = format!("INSERT INTO automations VALUES ({}, 'team-a', 15, 1)", 100 + caller);
        site.database.execute(&row);
    }
    let mut all: Vec<Operations> = (0..CALLERS).map(|_| Operations::default()).collect();
    for _ in 0..KILLS {
        life(Server::start(Path::new(PROGRAM), &site.main()), &mut all, &mut random);
        let server = Server::start(Path::new(PROGRAM), &site.main());
        for (caller, operations) in (1..).zip(all.iter_mut()) {
            call_again(&server, caller, operations);
            let edits = i64::try_from(operations.told.len()).unwrap();
            assert_eq!(site.database.row(100 + caller).unwrap().version - 1, edits, "caller {caller}");
        }
        let edits: usize = all.iter().map(|operations| operations.told.len()).sum();
        assert_eq!(site.database.receipts(), i64::try_from(edits).unwrap());
    }
}

/// Begun calls finish, new ones are refused as busy, and the process ends well.
#[test]
fn asked_to_stop_it_finishes_what_it_has_begun() {
    let site = Site::automations();
    let patient = EXAMPLE.replacen("[receipts]", "[limits]\nqueue = 1\nlock_wait = \"50s\"\n\n[receipts]", 1);
    let server =
        Server::start(Path::new(PROGRAM), &site.config("counterfoil.toml", &for_everybody(&patient)));
    let other = site.database.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The writer holds one and the queue another: once six of eight are refused, one at least is begun.
    let sends: Vec<Send> =
        (0..8).map(|at| Send::from(&set_interval(&format!("edit-{at}"), 1, 1, 30))).collect();
    let (answers, told) = sync_channel(sends.len());
    let rest = std::thread::scope(|scope| {
        for send in &sends {
            let (answers, server) = (answers.clone(), &server);
            scope.spawn(move || answers.send(server.connect(Who::Alice).call(send)).unwrap());
        }
        for told in told.iter().take(6) {
            assert_eq!(told.answer().refused().code, "busy");
        }
        server.terminate();
        let mut http = server.connect(Who::Alice);
        let get = Send::new("get_automation", r#"{"id":1}"#);
        while http.call(&get).value().get("error").is_none() {}
        let refused = http.call(&get).answer().refused();
        assert_eq!((refused.code.as_str(), refused.operation), ("busy", None));
        let refused = http.call(&Send::from(&set_interval("late", 2, 1, 30))).answer().refused();
        assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("busy", Some("unknown")));
        other.execute_batch("ROLLBACK").unwrap();
        told.iter().take(2).map(|told| told.answer()).collect::<Vec<_>>()
    });
    let done = rest.iter().filter(|answer| matches!(answer, Answer::Done(_))).count();
    assert_eq!(done, 1, "one edit of version 1: {rest:?}");
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(site.database.receipts(), 1);
    assert_eq!(site.database.row(1).unwrap().version, 2);
    assert_eq!(site.database.row(2).unwrap().version, 1);
}

/// Over stdio too: what was taken in is answered, the input being open or not, and the process ends well.
#[test]
fn asked_to_stop_over_stdio_it_answers_and_ends() {
    let site = Site::automations();
    let mut stdio = Stdio::start(Path::new(PROGRAM), &site.stdio(EXAMPLE, Who::Alice));
    let other = site.database.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    stdio.line(&Send::from(&set_interval("edit-42", 1, 1, 30)).id("\"held\"").body());
    // A read behind it is answered: the call in front of it is on its way.
    let read = stdio.call(&Send::new("get_automation", r#"{"id":1}"#).id("\"read\""));
    assert!(read.body.contains("\"id\":\"read\""), "{read:?}");
    stdio.terminate();
    other.execute_batch("ROLLBACK").unwrap();
    let held = stdio.told();
    assert!(held.body.contains("\"id\":\"held\""), "{held:?}");
    let version = match held.answer() {
        Answer::Done(_) => 2,
        Answer::Refused(refused) => {
            assert_eq!(refused.code, "busy", "{held:?}");
            1
        }
    };
    let (status, log) = stdio.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(site.database.row(1).unwrap().version, version);
}

/// Whoever comes first makes the database; all serve it.
#[test]
fn servers_started_at_once_on_a_fresh_file_share_it() {
    for _ in 0..5 {
        let site = Site::fresh(EXAMPLE_SCHEMA);
        let config = site.config("counterfoil.toml", &for_everybody(EXAMPLE));
        let start = Barrier::new(3);
        let servers: Vec<Server> = std::thread::scope(|scope| {
            let one = || {
                start.wait();
                Server::start(Path::new(PROGRAM), &config)
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let send = Send::from(&set_interval("edit-42", 1, 1, 30));
        let done: Vec<Done> =
            servers.iter().map(|server| server.connect(Who::Alice).call(&send).answer().done()).collect();
        assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1, "{done:?}");
        assert!(done.iter().all(|other| other.epoch == done[0].epoch), "{done:?}");
        assert_eq!(site.database.count("SELECT count(*) FROM automations"), 3);
        assert_eq!(site.database.receipts(), 1);
    }
}

#[test]
fn a_server_that_will_not_serve_leaves_the_database_alone() {
    let nobody = EXAMPLE.split("[auth.stdio]").next().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let cases = [
        (EXAMPLE, vec!["--listen", "0.0.0.0:0"]),
        (EXAMPLE, vec!["--listen", &taken]),
        (nobody, vec!["--stdio"]),
    ];
    for (config, options) in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("counterfoil.toml"), config).unwrap();
        std::fs::write(folder.path().join("schema.sql"), EXAMPLE_SCHEMA).unwrap();
        let mut command = std::process::Command::new(PROGRAM);
        let output = command.arg("serve").arg("counterfoil.toml").args(&options).current_dir(folder.path());
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{options:?}: {output:?}");
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{options:?}: {left:?}");
    }
}

/// The audit log has a line for each write, is opened anew on SIGHUP, and has nothing of the arguments.
#[test]
fn the_audit_log_is_opened_anew() {
    let site = Site::automations();
    let audited = EXAMPLE.replacen("[receipts]", "[server]\naudit = \"audit.log\"\n\n[receipts]", 1);
    let server = Server::start(Path::new(PROGRAM), &site.config("audited.toml", &for_everybody(&audited)));
    let (path, moved) =
        (site.database.directory().join("audit.log"), site.database.directory().join("moved.log"));
    let mut alice = server.connect(Who::Alice);
    let mut call = |id: &str| alice.call(&Send::from(&set_interval(id, 1, 1, 37))).answer().done();
    let replays = [call("edit-0123456789"), call("edit-0123456789")].map(|done| done.replayed);
    assert_eq!(replays, [false, true]);
    std::fs::rename(&path, &moved).unwrap();
    server.hang_up();
    wait_until("the file is there anew", || path.exists());
    assert!(call("edit-0123456789").replayed);
    server.terminate();
    assert!(server.ended().success());
    let (first, second) = (std::fs::read_to_string(moved).unwrap(), std::fs::read_to_string(path).unwrap());
    assert_eq!((first.lines().count(), second.lines().count()), (2, 1), "{first}{second}");
    let line: serde_json::Value = serde_json::from_str(first.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        (&line["tool"], &line["outcome"], &line["replayed"]),
        (&"set_interval".into(), &"committed".into(), &true.into())
    );
    assert_eq!((&line["request_id"], &line["subject"]), (&"edit-012…".into(), &"alice".into()));
    assert!(!first.contains("interval_minutes") && !first.contains("edit-0123456789"), "{first}");
}

/// Beyond loopback it listens only where something speaks TLS. The address is one that no machine has (RFC 5737), so
/// that whatever gets as far as listening fails there.
#[test]
fn beyond_loopback_there_is_tls_or_a_proxy() {
    let site = Site::automations();
    let refused = |more: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        command.arg("serve").arg(site.main()).args(["--listen", "192.0.2.1:0"]).args(more);
        let refused = command.output().unwrap();
        assert_eq!(refused.status.code(), Some(3));
        String::from_utf8(refused.stderr).unwrap()
    };
    for (more, said) in [(&[][..], "say --behind-proxy"), (&["--behind-proxy"], "cannot listen on 192.0.2.1")]
    {
        let why = refused(more);
        assert!(why.contains(said), "{why}");
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..3000 {
        if done() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    unreachable!("not in time: {what}");
}
