//! A server on PostgreSQL that has no room, is asked to stop, or whose callers go away: what has begun is finished, what
//! has not is refused, and the same call goes through later.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Scope;

use counterfoil::tokio_postgres::Client;
use counterfoil_testkit::postgres::{Database, runtime};
use counterfoil_testkit::site::{Data, EXAMPLE, Kind, for_everybody};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Done, Send, Server, Site, Told, Who, set_interval};
use tokio::runtime::Runtime;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
/// Calls at once: one has the connection, one waits for it, and the others are refused.
const CALLS: usize = 6;

fn edit(id: &str, row: i64, version: i64) -> Send {
    Send::from(&set_interval(id, row, version, 30))
}

/// A server with one connection and room for one call that waits for it, in front of a row that another session holds.
struct Narrow {
    site: Site,
    server: Server,
    runtime: Runtime,
    other: Client,
}

impl Narrow {
    fn start() -> Self {
        let site = Site::automations_on(Kind::Postgres);
        let limits = "[limits]\nqueue = 1\nlock_wait = \"50s\"\nstatement_time = \"50s\"\n\n[receipts]";
        let _main =
            site.config("counterfoil.toml", &for_everybody(&EXAMPLE.replacen("[receipts]", limits, 1)));
        let config = site.elsewhere("narrow.toml", &database(&site).url(), "pool = 1");
        let server = Server::start(Path::new(PROGRAM), &config);
        let runtime = runtime();
        let other = runtime.block_on(database(&site).connect());
        let lock = "BEGIN; SELECT 1 FROM automations WHERE id = 1 FOR UPDATE";
        runtime.block_on(other.batch_execute(lock)).unwrap();
        Self { site, server, runtime, other }
    }

    fn release(&self) {
        self.runtime.block_on(self.other.batch_execute("ROLLBACK")).unwrap();
    }

    /// Edits of row 1, all at once, each under an id and on a connection of its own.
    fn edits<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Receiver<Told> {
        let (answers, told) = sync_channel(CALLS);
        for at in 0..CALLS {
            let answers = answers.clone();
            scope.spawn(move || {
                answers
                    .send(self.server.connect(Who::Alice).call(&edit(&format!("edit-{at}"), 1, 1)))
                    .unwrap();
            });
        }
        told
    }
}

fn database(site: &Site) -> &Database {
    match &site.database {
        Data::Postgres(_, database) => database,
        Data::Sqlite(_) => unreachable!(),
    }
}

fn busy(told: &Told) {
    let refused = told.answer().refused();
    assert_eq!(
        (refused.code.as_str(), refused.operation.as_deref()),
        ("busy", Some("unknown")),
        "{refused:?}"
    );
}

fn one_done(rest: &[Answer]) {
    let done = rest.iter().filter(|answer| matches!(answer, Answer::Done(_))).count();
    assert_eq!(done, 1, "one edit of version 1: {rest:?}");
}

#[test]
fn a_pool_that_is_used_up() {
    let narrow = Narrow::start();
    std::thread::scope(|scope| {
        let told = narrow.edits(scope);
        told.iter().take(CALLS - 2).for_each(|told| busy(&told));
        narrow.release();
        one_done(&told.iter().take(2).map(|told| told.answer()).collect::<Vec<_>>());
    });
    assert!(!narrow.server.connect(Who::Alice).call(&edit("later", 1, 2)).answer().done().replayed);
    let (site, row) = (&narrow.site, narrow.site.database.row(1).unwrap());
    assert_eq!((site.database.receipts(), row.version), (2, 3));
}

#[test]
fn asked_to_stop_it_finishes_what_it_has_begun() {
    let narrow = Narrow::start();
    std::thread::scope(|scope| {
        let told = narrow.edits(scope);
        told.iter().take(CALLS - 2).for_each(|told| busy(&told));
        narrow.server.terminate();
        let mut http = narrow.server.connect(Who::Alice);
        let get = Send::new("get_automation", r#"{"id":2}"#);
        // While it does not know yet, there is no room for a read either.
        while http.call(&get).value().get("error").is_none() {}
        busy(&http.call(&edit("late", 2, 1)));
        narrow.release();
        one_done(&told.iter().take(2).map(|told| told.answer()).collect::<Vec<_>>());
    });
    let Narrow { site, server, runtime, other } = narrow;
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!((site.database.receipts(), site.database.row(1).unwrap().version), (1, 2));
    assert_eq!(site.database.row(2).unwrap().version, 1);
    drop((runtime, other));
}

/// In the revision in which a closed stream is a cancellation too.
#[test]
fn what_has_begun_is_finished_though_nobody_waits() {
    for modern in [false, true] {
        let narrow = Narrow::start();
        let send = Send { modern, ..edit("edit-42", 1, 1) };
        let mut gone = narrow.server.connect(Who::Alice);
        gone.begin(&send);
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while narrow.site.database.count(waits) == 0 {}
        drop(gone);
        narrow.release();
        while narrow.site.database.receipts() == 0 {}
        let done = narrow.server.connect(Who::Alice).call(&send).answer().done();
        assert!(done.replayed, "{done:?}");
        let again = narrow.server.connect(Who::Alice).call(&send).answer().done();
        assert_eq!(again, Done { replayed: true, ..done });
        assert_eq!(narrow.site.database.row(1).unwrap().version, 2);
    }
}
