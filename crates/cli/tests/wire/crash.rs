//! C2, C4, C8 to C10 and C12: hang-ups, locks, full disks, voids and storms.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;

use counterfoil_core::Code;
use counterfoil_testkit::site::{EXAMPLE, for_everybody};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Send, Server, Stdio, Who};

use super::{Case, On, PROGRAM, Stage, edit, edit_42, parted, together};

use Who::Alice;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "C2: hang-up at every byte of a request",
        codes: &[],
        on: On::Automations,
        steps: cut_requests,
    },
    Case {
        name: "C2: hang-up at every byte of a reply",
        codes: &[],
        on: On::Automations,
        steps: cut_replies,
    },
    Case { name: "C2: hang-up over stdio", codes: &[], on: On::Automations, steps: cut_lines },
    Case {
        name: "C8: locked by another program",
        codes: &[Code::Busy],
        on: On::Limited("lock_wait = \"50ms\""),
        steps: locked,
    },
    Case { name: "C8: the disk is full", codes: &[Code::OutcomeUnknown], on: On::Automations, steps: full },
    Case { name: "C8: the queue is full", codes: &[Code::Busy], on: On::Notes("queue = 2"), steps: queue },
    Case {
        name: "C9: one call in a group fails",
        codes: &[Code::VersionConflict, Code::ResourceUnavailable, Code::RequestIdReused],
        on: On::Automations,
        steps: group,
    },
    Case {
        name: "C10: asked for while on its way, then voided",
        codes: &[Code::RequestIdVoided],
        on: On::Automations,
        steps: voided,
    },
    Case { name: "C10: a void of what committed", codes: &[], on: On::Automations, steps: void_late },
    Case {
        name: "C10: a void and its original at once",
        codes: &[Code::RequestIdVoided],
        on: On::Automations,
        steps: void_race,
    },
    Case { name: "C12: a hundred identical calls", codes: &[], on: On::Automations, steps: identical },
    Case {
        name: "C12: a hundred payloads under one id",
        codes: &[Code::RequestIdReused],
        on: On::Automations,
        steps: rivals,
    },
];

/// The edit of row 1 as it is now, under an id of `length` characters in all.
fn next(stage: &Stage, name: &str, at: usize) -> Send {
    let row = stage.site.database.row(1).unwrap();
    edit(&format!("{name}-{at:04}"), 1, row.version, 5 + row.version % 1000)
}

/// Once, whatever became of the first try.
fn once(stage: &Stage, send: &Send, before: i64) {
    let done = stage.call(Alice, send).answer().done();
    assert!(done.result.contains(&format!("\"version\":{}", before + 1)), "{done:?}");
    assert_eq!(stage.site.database.row(1).unwrap().version, before + 1, "{send:?}");
}

fn cut_requests(stage: &mut Stage) {
    for at in 0.. {
        let (send, before) = (next(stage, "cut", at), stage.site.database.row(1).unwrap().version);
        let mut http = stage.server.connect(Alice);
        let request = http.request(&send);
        if at > request.len() {
            break;
        }
        http.write(&request[..at]).unwrap();
        drop(http);
        once(stage, &send, before);
    }
    stage.receipts(stage.site.database.row(1).unwrap().version - 1);
}

fn cut_replies(stage: &mut Stage) {
    let mut http = stage.server.connect(Alice);
    let told = http.call(&next(stage, "cut", 9999));
    let length = told.head.len() + told.body.len();
    for at in 0..=length {
        let (send, before) = (next(stage, "cut", at), stage.site.database.row(1).unwrap().version);
        let mut http = stage.server.connect(Alice);
        http.begin(&send);
        http.answered();
        http.read_exactly(at.min(told.head.len()));
        drop(http);
        assert_eq!(stage.site.database.row(1).unwrap().version, before + 1, "an answer before the commit");
        once(stage, &send, before);
    }
    stage.receipts(i64::try_from(length).unwrap() + 2);
}

/// A line without its end is read as a line, and the call in it runs if it is whole; the input's end is no
/// cancellation. Every seventh byte: each is a process.
fn cut_lines(stage: &mut Stage) {
    let config = stage.site.stdio(EXAMPLE, Alice);
    for at in (0..).step_by(7) {
        let (send, before) = (next(stage, "cut", at), stage.site.database.row(1).unwrap().version);
        let body = send.body();
        let cut = at.min(body.len());
        let mut stdio = Stdio::start(Path::new(PROGRAM), &config);
        stdio.write(&body.as_bytes()[..cut]);
        stdio.hang_up();
        let (status, log) = stdio.ended();
        assert!(status.success(), "{log}");
        let begun = stage.site.database.row(1).unwrap().version == before + 1;
        assert_eq!(begun, cut == body.len(), "byte {cut}");
        once(stage, &send, before);
        if begun {
            break;
        }
    }
}

fn locked(stage: &mut Stage) {
    let done = stage.fresh(Alice, &edit_42());
    let other = stage.site.database.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let _busy = stage.refused(Alice, &edit("edit-43", 1, 2, 45), Code::Busy);
    // What is known already is told without the lock.
    stage.replayed(Alice, &edit_42(), &done);
    assert_eq!(stage.state(Alice, "edit-43"), "not_committed_so_far");
    other.execute_batch("ROLLBACK").unwrap();
    let _now = stage.fresh(Alice, &edit("edit-43", 1, 2, 45));
    stage.row(1, 45, 3);
    stage.receipts(2);
}

/// The largest file the server may write, in blocks of 512 bytes: the log soon outgrows it. A write beyond is then an
/// error, and not a signal.
const SMALL_DISK: &str = "trap '' XFSZ\nulimit -f 200";

fn full(stage: &mut Stage) {
    // Alone on the database, so that closing it empties the log: that is what makes room again.
    stage.server = Server::start_after(SMALL_DISK, Path::new(PROGRAM), &stage.site.main());
    let mut http = stage.server.connect(Alice);
    let (mut version, mut unknown) = (1, 0);
    for at in 0..200 {
        let send = edit(&format!("edit-{at}"), 1, version, 5 + version);
        let mut told = http.call(&send);
        stage.judge(Alice, &send, &told);
        while !told.value()["error"].is_null() {
            assert_eq!(told.answer().refused().code, "outcome_unknown");
            unknown += 1;
            assert!(unknown < 500, "it does not recover");
            told = http.call(&send);
            stage.judge(Alice, &send, &told);
        }
        let done = told.answer().done();
        version += 1;
        assert!(done.result.contains(&format!("\"version\":{version}}}")), "{done:?}");
    }
    assert!(unknown > 0, "the disk was never full");
    assert_eq!(stage.site.database.row(1).unwrap().version, version);
    stage.receipts(version - 1);
}

/// At most two calls are in the writer's hands and two in the queue; of eight more nobody waits.
fn queue(stage: &mut Stage) {
    let other = stage.site.database.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let note = |at| Send::new("add_note", format!("{{\"request_id\":\"note-{at}\",\"body\":\"x\"}}"));
    let sends: Vec<Send> = (0..12).map(note).collect();
    let (answers, told) = std::sync::mpsc::sync_channel(sends.len());
    std::thread::scope(|scope| {
        for send in &sends {
            let (answers, server) = (answers.clone(), &stage.server);
            scope.spawn(move || answers.send(server.connect(Alice).call(send)).unwrap());
        }
        for told in told.iter().take(8) {
            stage.judge(Alice, &sends[0], &told);
            assert_eq!(told.answer().refused().code, "busy");
        }
        other.execute_batch("ROLLBACK").unwrap();
    });
    // The same ids again: done or not, once each.
    for send in &sends {
        let _done = stage.call(Alice, send).answer().done();
    }
    assert_eq!(stage.count("SELECT count(*) FROM notes"), 12);
    stage.receipts(12);
}

/// Calls that wait for the same lock share a commit once it is gone; each has an answer of its own.
fn group(stage: &mut Stage) {
    let _done = stage.fresh(Alice, &edit_42());
    let other = stage.site.database.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let sends = [
        edit("good-1", 2, 1, 20),
        edit("stale", 1, 1, 20),
        edit("foreign", 20, 1, 20),
        edit("edit-42", 2, 2, 20),
        edit("good-2", 1, 2, 60),
    ];
    let told = together(&stage.server, &sends, || other.execute_batch("ROLLBACK").unwrap());
    sends.iter().zip(&told).for_each(|(send, told)| stage.judge(Alice, send, told));
    let (done, codes) = parted(&told);
    assert_eq!(done.len(), 2, "{told:?}");
    assert_eq!(codes, ["version_conflict", "resource_unavailable", "request_id_reused"]);
    stage.row(1, 60, 3);
    stage.row(2, 20, 2);
    stage.receipts(3);
}

fn voided(stage: &mut Stage) {
    assert_eq!(stage.state(Alice, "edit-42"), "not_committed_so_far");
    let void = stage.ask("void_operation", Alice, "set_interval", "edit-42");
    assert_eq!(void["state"], "voided", "{void}");
    // The original arrives after all, and after it every other try.
    let _never = stage.refused(Alice, &edit_42(), Code::RequestIdVoided);
    let _nor_so = stage.refused(Alice, &edit("edit-42", 2, 1, 60), Code::RequestIdVoided);
    stage.restart();
    let _never = stage.refused(Alice, &edit_42(), Code::RequestIdVoided);
    let again = stage.ask("void_operation", Alice, "set_interval", "edit-42");
    assert_eq!(again["state"], "voided", "{again}");
    assert_eq!(stage.state(Alice, "edit-42"), "voided");
    assert_eq!(stage.state(Who::Bob, "edit-42"), "not_committed_so_far");
    stage.row(1, 15, 1);
    stage.receipts(1);
    let _new = stage.fresh(Alice, &edit("edit-43", 1, 1, 30));
}

fn void_late(stage: &mut Stage) {
    let done = stage.fresh(Alice, &edit_42());
    for built_in in ["void_operation", "operation_status"] {
        let told = stage.ask(built_in, Alice, "set_interval", "edit-42");
        assert_eq!(told["state"], "committed", "{told}");
        assert_eq!(told["committed_at"], done.committed_at.as_str(), "{told}");
        assert_eq!(told["result"].to_string(), done.result, "{told}");
        assert_eq!((&told["keep"], &told["remember"]), (&"30d".into(), &"1y".into()), "{told}");
    }
    stage.replayed(Alice, &edit_42(), &done);
    stage.receipts(1);
}

/// Exactly one of the two happens, and both callers are told which. Rounds go on until both have won.
fn void_race(stage: &mut Stage) {
    let (mut committed, mut voided) = (0, 0);
    for round in 0..500 {
        if committed > 0 && voided > 0 && round >= 50 {
            break;
        }
        let id = format!("edit-{round}");
        let original = edit(&id, 1, 1 + committed, 30);
        let start = Barrier::new(2);
        let (void, told) = std::thread::scope(|scope| {
            let void = scope.spawn(|| {
                start.wait();
                stage.server.connect(Alice).call(&void_of(&id)).value()
            });
            let mut http = stage.server.connect(Alice);
            start.wait();
            let told = http.call(&original);
            (void.join().unwrap(), told)
        });
        stage.judge(Alice, &original, &told);
        match told.answer() {
            Answer::Done(done) => {
                committed += 1;
                assert_eq!(void["committed_at"], done.committed_at.as_str(), "{void}");
                stage.replayed(Alice, &original, &done);
            }
            Answer::Refused(refused) => {
                voided += 1;
                assert_eq!((refused.code.as_str(), &void["state"]), ("request_id_voided", &"voided".into()));
            }
        }
    }
    println!("  {committed} committed, {voided} voided");
    stage.row(1, if committed > 0 { 30 } else { 15 }, 1 + committed);
    stage.receipts(committed + voided);
}

fn void_of(id: &str) -> Send {
    let arguments = format!("{{\"tool\":\"set_interval\",\"operation\":\"{id}\"}}");
    Send::new("void_operation", arguments)
}

/// Over two servers on the one database.
fn identical(stage: &mut Stage) {
    let second = stage.another("second.toml", &for_everybody(EXAMPLE));
    let told = stage.at_once(&[&stage.server, &second], &vec![edit_42(); 100]);
    let (done, codes) = parted(&told);
    assert!(codes.is_empty(), "{codes:?}");
    assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1);
    let bytes: BTreeSet<_> = done.into_iter().map(|done| (done.result, done.committed_at)).collect();
    assert_eq!(bytes.len(), 1, "{bytes:?}");
    stage.row(1, 30, 2);
    stage.receipts(1);
}

fn rivals(stage: &mut Stage) {
    let second = stage.another("second.toml", &for_everybody(EXAMPLE));
    let sends: Vec<Send> = (0..100).map(|minutes| edit("edit-42", 1, 1, 5 + minutes)).collect();
    let told = stage.at_once(&[&stage.server, &second], &sends);
    let (done, codes) = parted(&told);
    assert_eq!((done.len(), codes.len()), (1, 99), "{done:?}");
    assert!(codes.iter().all(|code| code == "request_id_reused"), "{codes:?}");
    assert_eq!(stage.site.database.row(1).unwrap().version, 2);
    stage.receipts(1);
}
