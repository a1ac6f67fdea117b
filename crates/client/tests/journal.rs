//! The file itself: private, shared, refused when it cannot be trusted, compacted in steps.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use counterfoil_client::Journal;
use counterfoil_client::journal::{Begun, Compacted, Problem};
use counterfoil_client::state::{Event, Impossible, State};
use rusqlite::Connection;
use support::{START, only, operation};

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Brings everything that is in the log into the file itself.
fn settle(path: &Path) {
    Connection::open(path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

fn sent(journal: &Journal, id: &str) -> counterfoil_client::journal::Try {
    match journal.begin(START, &operation(id)).unwrap() {
        Begun::Send(attempt) => attempt,
        Begun::Stays(entry) => panic!("{entry:?}"),
    }
}

fn stop() -> Event {
    Event::Refused { known: None, again: false }
}

#[test]
fn arguments_are_for_the_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/counterfoil/journal.db");
    let journal = Journal::open(&path).unwrap();
    sent(&journal, "edit-42");
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(mode(&path.with_extension("db-wal")), 0o600);
    drop(journal);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Journal::open(&path).unwrap();
    assert_eq!(mode(&path), 0o600, "closed to others when it is next opened");
}

#[test]
fn a_file_that_cannot_be_trusted_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, prepare: fn(&Path), expected: Problem| {
        let path = folder.path().join(name);
        prepare(&path);
        let before = (fs::read(&path).unwrap(), mode(&path));
        let refused = Journal::open(&path).unwrap_err();
        assert_eq!(*refused.problem(), expected, "{name}");
        let left_alone = (fs::read(&path).unwrap(), mode(&path)) == before;
        assert!(left_alone, "{name}");
    };
    check("text", |path| fs::write(path, "not a database ".repeat(100)).unwrap(), Problem::NotAJournal);
    check(
        "other.db",
        |path| Connection::open(path).unwrap().execute_batch("CREATE TABLE t (x)").unwrap(),
        Problem::NotAJournal,
    );
    check(
        "newer.db",
        |path| {
            drop(Journal::open(path).unwrap());
            Connection::open(path).unwrap().pragma_update(None, "user_version", 7).unwrap();
            settle(path);
        },
        Problem::TooNew { found: 7, known: 2 },
    );
    let nowhere = folder.path().join("text/journal.db");
    assert_eq!(*Journal::open(&nowhere).unwrap_err().problem(), Problem::Place(nowhere));
}

/// A full disk, a read-only file: there is no try, and so nothing to send.
#[test]
fn without_room_there_is_no_try() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let journal = Journal::open(&path).unwrap();
    sent(&journal, "edit-1");
    let viewed = Journal::view(&path).unwrap();
    let refused = viewed.begin(START, &operation("edit-2")).unwrap_err();
    assert_eq!(*refused.problem(), Problem::ReadOnly);
    journal.limit_pages(1).unwrap();
    let mut last = journal.begin(START, &operation("edit-3"));
    for number in 4..2000 {
        if last.is_err() {
            break;
        }
        last = journal.begin(START, &operation(&format!("edit-{number}")));
    }
    assert_eq!(*last.unwrap_err().problem(), Problem::Full);
}

#[test]
fn a_damaged_page_is_reported_with_what_can_still_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let journal = Journal::open(&path).unwrap();
    for number in 0..200 {
        sent(&journal, &format!("edit-{number}"));
    }
    drop(journal);
    settle(&path);
    let mut bytes = fs::read(&path).unwrap();
    // As it stands in a row; in the index the tool comes before the caller.
    let row = format!("edit-100{}{}", support::SERVER, support::caller());
    let at = bytes.windows(row.len()).position(|window| window == row.as_bytes()).unwrap() / 4096 * 4096;
    bytes[at..at + 4096].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let journal = Journal::open(&path).unwrap();
    let damaged = journal.list(&Default::default(), None, 1000).map(drop).unwrap_err();
    assert_eq!(*damaged.problem(), Problem::Damaged);
    let salvage = Journal::salvage(&path).unwrap();
    assert!(salvage.entries.len() > 100, "{}", salvage.entries.len());
    assert!(salvage.lost > 0);
    assert_eq!(salvage.entries.len() as u64 + salvage.lost, 200);
}

#[test]
fn compaction_goes_in_steps_and_spares_what_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&folder.path().join("journal.db")).unwrap();
    for number in 0..10 {
        let attempt = sent(&journal, &format!("edit-{number}"));
        if number > 0 {
            journal.answered(START, attempt, &stop().into()).unwrap();
        }
    }
    let later = START.plus(Duration::from_secs(1));
    assert_eq!(journal.compact(START, 4).unwrap(), Compacted { removed: 0, more: false });
    assert_eq!(journal.compact(later, 4).unwrap(), Compacted { removed: 4, more: true });
    assert_eq!(journal.compact(later, 4).unwrap(), Compacted { removed: 4, more: true });
    assert_eq!(journal.compact(later, 4).unwrap(), Compacted { removed: 1, more: false });
    let left = only(&journal);
    assert_eq!((left.operation.id.as_str(), left.state.open()), ("edit-0", 1));
    assert_eq!(*journal.forget(&left).unwrap_err().problem(), Problem::NoSuch, "it has not ended");
    journal.note(later, &(&left).into(), &Event::Abandoned.into()).unwrap();
    assert_eq!(only(&journal).state, State::Abandoned { open: 1 });
    journal.forget(&left).unwrap();
}

/// Two processes at one operation: each answer is counted for the try it answers.
#[test]
fn two_processes_share_an_operation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    let (one, other) = (Journal::open(&path).unwrap(), Journal::open(&path).unwrap());
    let (first, second) = (sent(&one, "edit-42"), sent(&other, "edit-42"));
    assert_eq!((first.number(), second.number()), (1, 2));
    let state = other.answered(START, second, &stop().into()).unwrap();
    assert_eq!(state, State::Unknown { open: 1 }, "the other try is still out");
    let recorded = first.recorded();
    assert_eq!(one.answered(START, first, &stop().into()).unwrap(), State::Refused);
    let Begun::Stays(entry) = other.again(START, &recorded).unwrap() else { panic!("sent after its end") };
    assert_eq!((entry.state, entry.tries), (State::Refused, 2));
    let events: Vec<String> = one.history(&entry).unwrap().into_iter().map(|event| event.event).collect();
    assert_eq!(events, ["recorded", "sent", "sent", "refused", "refused"]);
    let never = one.note(START, &recorded, &Event::Abandoned.into()).unwrap_err();
    assert_eq!(*never.problem(), Problem::Impossible(Impossible::Ended));
}

/// Whoever is first makes the file; nobody takes it for another's while it is being made.
#[test]
fn many_openers_of_a_fresh_file_agree() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let path = folder.path().join(format!("{round}/journal.db"));
        std::thread::scope(|scope| {
            let open = |number: usize| {
                let path = &path;
                move || Journal::open(path).map(|journal| drop(sent(&journal, &format!("edit-{number}"))))
            };
            let openers: Vec<_> = (0..8).map(|number| scope.spawn(open(number))).collect();
            for opener in openers {
                opener.join().unwrap().unwrap();
            }
        });
        let found = Journal::open(&path).unwrap().list(&Default::default(), None, 100).unwrap();
        assert_eq!(found.entries.len(), 8);
    }
}
