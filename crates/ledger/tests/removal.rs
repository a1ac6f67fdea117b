//! Windows and removal on both stores: what is replayed how long, what goes when, and by whose clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock as _;
use counterfoil::core::{Timestamp, ToolName, Windows};
use counterfoil::removal::{Bounds, Drift, Onward, Removal, Removed, SKEW, Terms, Watch, pass};
use counterfoil::sqlite::Whose;
use counterfoil::{postgres, sqlite};
use counterfoil_testkit::library::{SetInterval, call};
use counterfoil_testkit::postgres::World;
use counterfoil_testkit::postgres::library::SetInterval as SetIntervalOnPostgres;
use counterfoil_testkit::{Answer, Ask, Database, OwnedClock, Who, block_on, set_interval};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const WINDOWS: Windows = Windows { keep: DAY, remember: Duration::from_secs(3 * 86_400) };
const ROWS: Bounds = Bounds { rows: 1000, time: Duration::from_secs(60), rest: Duration::ZERO };

/// A ledger whose time the test owns.
trait Home {
    type Ledger: Removal;
    /// As close to the end of a window as can be looked without owning the clock wholly.
    const CLOSE: Duration;

    fn ledger(&self) -> &Self::Ledger;
    fn call(&self, who: Who, ask: &Ask) -> Answer;
    /// Time passes, for calls and for removal.
    fn later(&self, by: Duration);
    /// The clock goes wrong, and the mark of the steps before stays where it is.
    fn jump(&self, by: i64);
    fn sql(&self, sql: &str);
    fn count(&self, sql: &str) -> i64;
    fn wait<T>(&self, future: impl Future<Output = T>) -> T;
}

struct Sqlite {
    ledger: sqlite::Ledger,
    clock: Arc<OwnedClock>,
    database: Database,
}

impl Sqlite {
    fn fresh() -> Self {
        let (database, clock) = (Database::fresh(), OwnedClock::at("2026-11-30T12:00:00Z"));
        let options = sqlite::Options { clock: Arc::clone(&clock) as Arc<_>, ..sqlite::Options::default() };
        Self { ledger: sqlite::Ledger::open(database.path(), options).unwrap(), clock, database }
    }
}

impl Home for Sqlite {
    type Ledger = sqlite::Ledger;
    const CLOSE: Duration = Duration::from_secs(1);

    fn ledger(&self) -> &sqlite::Ledger {
        &self.ledger
    }

    fn call(&self, who: Who, ask: &Ask) -> Answer {
        let mut call = call(who, ask);
        call.windows = WINDOWS;
        let handler = SetInterval::new(call);
        Answer::from(block_on(self.ledger.perform(Arc::clone(&handler.call), handler)))
    }

    fn later(&self, by: Duration) {
        self.clock.advance(by);
        let micros = by.as_micros();
        self.sql(&format!(
            "UPDATE counterfoil_meta SET value = CAST(value + {micros} AS TEXT) WHERE name = 'removal' AND value <> '0'"
        ));
    }

    fn jump(&self, by: i64) {
        self.clock.set(Timestamp::from_micros(self.clock.now().micros() + by));
    }

    fn sql(&self, sql: &str) {
        self.database.execute(sql);
    }

    fn count(&self, sql: &str) -> i64 {
        self.database.count(sql)
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(future)
    }
}

struct Postgres(World);

impl Postgres {
    fn fresh() -> Self {
        Self(World::fresh("", postgres::Options::default()))
    }
}

/// The clock is the database's own: everything else is moved instead.
impl Home for Postgres {
    type Ledger = postgres::Ledger;
    const CLOSE: Duration = Duration::from_secs(20);

    fn ledger(&self) -> &postgres::Ledger {
        &self.0.ledger
    }

    fn call(&self, who: Who, ask: &Ask) -> Answer {
        let mut call = call(who, ask);
        call.windows = WINDOWS;
        let handler = SetIntervalOnPostgres::new(call.clone());
        self.0.call(call, handler)
    }

    fn later(&self, by: Duration) {
        let micros = by.as_micros();
        self.sql(&format!(
            "UPDATE counterfoil_receipts SET committed_at = committed_at - interval '{micros} microseconds'"
        ));
    }

    fn jump(&self, by: i64) {
        self.sql(&format!(
            "UPDATE counterfoil_receipts SET committed_at = committed_at - interval '{by} microseconds';
             UPDATE counterfoil_meta SET value = (value::bigint - {by})::text WHERE name = 'removal' AND value <> '0'"
        ));
    }

    fn sql(&self, sql: &str) {
        self.0.database.execute(sql);
    }

    fn count(&self, sql: &str) -> i64 {
        self.0.database.count(sql)
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.wait(future)
    }
}

fn terms() -> Arc<Terms> {
    Arc::new(Terms::new([(ToolName::parse("set_interval").unwrap(), WINDOWS)]))
}

/// Looks at the clock as a server that has run for a while, and removes what may go.
fn clean(home: &impl Home) -> Removed {
    home.wait(async {
        let mut total = Removed::default();
        let look = home.ledger().look_once(false).await.unwrap();
        let Some(as_of) = look.as_of else { return total };
        let see = |removed: Removed| {
            (total.results, total.facts) = (total.results + removed.results, total.facts + removed.facts);
            Onward::Go
        };
        pass(home.ledger(), &terms(), as_of, ROWS, see).await.unwrap();
        total
    })
}

fn code(answer: &Answer) -> &str {
    match answer {
        Answer::Done(done) if done.replayed => "replayed",
        Answer::Done(_) => "fresh",
        Answer::Refused(refused) => refused.code.as_str(),
    }
}

// ---- T1 -----------------------------------------------------------------------------------------------------------

/// The sequence of T1, with a removal before every look: what is answered does not depend on it.
fn a_window_closes_to_the_second<H: Home>(home: &H, removing: bool) {
    let edit = set_interval("edit-42", 1, 1, 30);
    let retry = |what: &str, wanted: &str| {
        if removing {
            clean(home);
        }
        assert_eq!(code(&home.call(Who::Alice, &edit)), wanted, "{what}, removing: {removing}");
    };
    retry("the call", "fresh");
    home.later(WINDOWS.keep - H::CLOSE);
    retry("just before `keep` ends", "replayed");
    home.later(H::CLOSE * 2);
    retry("just after", "request_id_expired");
    home.later(SKEW);
    retry("when the result is gone", "request_id_expired");
    home.later(WINDOWS.remember - WINDOWS.keep);
    retry("after `remember`, the fact being there", "request_id_expired");
    assert_eq!(
        home.count("SELECT count(*) FROM counterfoil_receipts WHERE result IS NULL"),
        i64::from(removing)
    );
    home.later(DAY + SKEW);
    retry(
        "as an opaque id whose fact is gone: the version condition stops it",
        match removing {
            true => "version_conflict",
            false => "request_id_expired",
        },
    );
}

#[test]
fn t1_a_window_closes_to_the_second() {
    for removing in [false, true] {
        a_window_closes_to_the_second(&Sqlite::fresh(), removing);
        a_window_closes_to_the_second(&Postgres::fresh(), removing);
    }
}

// ---- What goes, and in which steps --------------------------------------------------------------------------------

/// Receipts of every kind, committed one after the other; made by hand, because there are many.
fn stock(home: &impl Home) {
    let later = |hours: u64| home.later(HOUR * u32::try_from(hours).unwrap());
    for number in 0..40 {
        let id = format!("edit-{number}");
        assert_eq!(code(&home.call(Who::Alice, &set_interval(&id, 1, number + 1, 30))), "fresh");
        later(1);
    }
    home.sql(
        "INSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at)
         SELECT workspace, issuer, 'bob', tool, request_id, 'voided', committed_at FROM counterfoil_receipts",
    );
    home.sql(
        "INSERT INTO counterfoil_receipts
         SELECT workspace, issuer, subject, 'undeclared', request_id, state, committed_at, revision, fingerprint,
                intent, result FROM counterfoil_receipts",
    );
}

const HELD: &str = "SELECT count(*) FROM counterfoil_receipts WHERE result IS NOT NULL OR intent IS NOT NULL";
const ALL: &str = "SELECT count(*) FROM counterfoil_receipts";

/// The n-th of 40 is 40 - n hours old; what nobody declares stays for the default windows.
fn what_is_over_goes<H: Home>(home: &H) {
    stock(home);
    assert_eq!((home.count(ALL), home.count(HELD)), (160, 80));
    // 17 are older than a day and the skew bound.
    assert_eq!(clean(home), Removed { results: 16, ..Removed::default() });
    assert_eq!(clean(home), Removed::default(), "and nothing more");
    home.later(DAY * 3);
    // 4 days and the skew bound: of commits and voids alike, those of the first 16 hours.
    assert_eq!(clean(home), Removed { results: 24, facts: 32, ..Removed::default() });
    home.later(DAY * 400);
    assert_eq!(clean(home), Removed { facts: 128, ..Removed::default() }, "the undeclared last");
    assert_eq!(home.count(ALL), 0);
}

#[test]
fn what_is_over_goes_and_nothing_else() {
    what_is_over_goes(&Sqlite::fresh());
    what_is_over_goes(&Postgres::fresh());
}

/// A step does no more than it may, and what is cut short goes on.
fn a_step_is_bounded<H: Home>(home: &H) {
    stock(home);
    home.later(DAY * 5);
    let as_of = home.wait(home.ledger().look_once(false)).unwrap().as_of.unwrap();
    let overdue = home.wait(home.ledger().overdue(&terms(), as_of)).unwrap();
    let seen: Vec<_> = overdue.iter().map(|one| (&*one.tool, one.declared, one.results, one.facts)).collect();
    assert_eq!(seen, [("set_interval", true, 0, 80), ("undeclared", false, 0, 0)]);
    assert!(overdue[0].since.is_some() && overdue[1].since.is_none());
    let mut steps = 0;
    loop {
        let bounds = Bounds { rows: 7, ..ROWS };
        let removed = home.wait(home.ledger().step(&terms(), as_of, bounds)).unwrap();
        assert!(removed.results + removed.facts <= 7, "{removed:?}");
        steps += 1;
        if !removed.more {
            break;
        }
    }
    assert!(steps >= 80 / 7, "{steps} steps");
    assert_eq!(home.count(ALL), 80);
    let none = home.wait(home.ledger().overdue(&terms(), as_of)).unwrap();
    assert!(none.iter().all(|one| one.results + one.facts == 0 && one.since.is_none()), "{none:?}");
}

#[test]
fn a_step_is_bounded_and_the_next_goes_on() {
    a_step_is_bounded(&Sqlite::fresh());
    a_step_is_bounded(&Postgres::fresh());
}

// ---- T2 -----------------------------------------------------------------------------------------------------------

/// What a look says, a step of the server that looks following it.
fn look(home: &impl Home, watch: &mut Watch) -> Drift {
    home.wait(async {
        let look = home.ledger().look(*watch).await.unwrap();
        *watch = look.watch;
        if let Some(as_of) = look.as_of {
            pass(home.ledger(), &terms(), as_of, ROWS, |_| Onward::Go).await.unwrap();
        }
        look.drift
    })
}

const MICROS_A_DAY: i64 = 86_400_000_000;

/// A clock that goes wrong is noticed and removes nothing; when it is right again, removal goes on.
fn a_jump_is_noticed<H: Home>(home: &H) {
    let mut watch = Watch::default();
    assert_eq!(code(&home.call(Who::Alice, &set_interval("edit-42", 1, 1, 30))), "fresh");
    assert!(matches!(look(home, &mut watch), Drift::First));
    assert!(matches!(look(home, &mut watch), Drift::Steady));
    home.jump(365 * MICROS_A_DAY);
    for _ in 0..100 {
        assert!(matches!(look(home, &mut watch), Drift::Ahead(by) if by > DAY * 364));
    }
    assert_eq!(home.count(HELD), 1, "nothing went in a year that was none");
    home.jump(-366 * MICROS_A_DAY);
    assert!(matches!(look(home, &mut watch), Drift::Behind(by) if by > HOUR * 23));
    home.jump(MICROS_A_DAY);
    // Forward again by a day: believed after a while, in which no other server says otherwise.
    while !matches!(look(home, &mut watch), Drift::Steady) {}
    assert_eq!(home.count(HELD), 1);
    home.later(DAY + SKEW * 2);
    look(home, &mut watch);
    assert_eq!(home.count(HELD), 0);
}

#[test]
fn t2_a_jump_of_the_clock_is_noticed_and_stops_removal() {
    a_jump_is_noticed(&Sqlite::fresh());
    a_jump_is_noticed(&Postgres::fresh());
}

/// Two servers over one file, one of which is two days ahead and looks ten times as often.
#[test]
fn t2_of_two_clocks_the_one_that_is_behind_counts() {
    let right = Sqlite::fresh();
    let ahead = OwnedClock::at("2026-12-02T12:00:00Z");
    let options = sqlite::Options { clock: Arc::clone(&ahead) as Arc<_>, ..sqlite::Options::default() };
    let wrong = sqlite::Ledger::open(right.database.path(), options).unwrap();
    let (mut mine, mut its) = (Watch::default(), Watch::default());
    assert_eq!(code(&right.call(Who::Alice, &set_interval("edit-42", 1, 1, 30))), "fresh");
    look(&right, &mut mine);
    let minute = Duration::from_secs(60);
    let mut kept = Duration::ZERO;
    while right.count(HELD) == 1 {
        for _ in 0..9 {
            let theirs = right.wait(wrong.look(its)).unwrap();
            its = theirs.watch;
            assert!(!matches!(theirs.drift, Drift::Steady), "{theirs:?}");
            if let Some(as_of) = theirs.as_of {
                let (terms, see) = (terms(), |_| Onward::Go);
                let removing = pass(&wrong, &terms, as_of, ROWS, see);
                right.wait(removing).unwrap();
            }
        }
        right.clock.advance(minute);
        ahead.advance(minute);
        kept += minute;
        look(&right, &mut mine);
    }
    assert!(kept > WINDOWS.keep + SKEW && kept < WINDOWS.keep + SKEW * 3, "{kept:?}");
}

// ---- Who removes, and who is forgotten ----------------------------------------------------------------------------

/// On PostgreSQL whoever holds the lock removes; nobody waits for it, calls least of all.
#[test]
fn one_server_removes_at_a_time() {
    let home = Postgres::fresh();
    stock(&home);
    home.later(DAY * 5);
    let as_of = home.wait(home.ledger().look_once(false)).unwrap().as_of.unwrap();
    let lock = "SELECT value FROM counterfoil_meta WHERE name = 'removal' FOR UPDATE";
    home.wait(async {
        let mut holder = home.0.database.connect().await;
        let held = holder.transaction().await.unwrap();
        held.execute(lock, &[]).await.unwrap();
        let removed = home.ledger().step(&terms(), as_of, ROWS).await.unwrap();
        assert_eq!(removed, Removed { elsewhere: true, ..Removed::default() });
        let look = home.ledger().look(Watch::default()).await.unwrap();
        assert_eq!((look.drift, look.as_of), (Drift::Elsewhere, None));
        held.rollback().await.unwrap();
    });
    assert_eq!(code(&home.call(Who::Alice, &set_interval("edit-41", 1, 41, 30))), "fresh");
    assert_eq!(clean(&home), Removed { facts: 80, ..Removed::default() });
}

/// A person's results and intents go, the facts stay, and a retry is told that it committed.
fn a_person_is_forgotten<H: Home>(home: &H) {
    let edits = [
        (Who::Alice, set_interval("edit-1", 1, 1, 30)),
        (Who::Bob, set_interval("edit-1", 1, 2, 30)),
        (Who::AliceInB, set_interval("edit-1", 20, 1, 30)),
    ];
    for (who, edit) in &edits {
        assert_eq!(code(&home.call(*who, edit)), "fresh", "{who:?}");
    }
    let forget = |workspace: Option<&str>, issuer: Option<&str>| {
        let [workspace, issuer] = [workspace, issuer].map(|name| name.map(str::to_owned));
        let whose = Whose { subject: "alice".into(), workspace, issuer };
        home.wait(home.ledger().forget(&whose, ROWS)).unwrap()
    };
    assert_eq!(forget(None, Some("https://elsewhere.example")), 0);
    assert_eq!((forget(Some("team-b"), None), forget(Some("team-b"), None)), (1, 0));
    assert_eq!((forget(None, None), forget(None, None)), (1, 0));
    let wanted = ["request_id_expired", "replayed", "request_id_expired"];
    for ((who, edit), wanted) in edits.iter().zip(wanted) {
        let answer = home.call(*who, edit);
        assert_eq!(code(&answer), wanted, "{who:?}");
    }
    assert_eq!((home.count(ALL), home.count(HELD)), (3, 1));
}

#[test]
fn a_person_is_forgotten_and_the_facts_are_kept() {
    a_person_is_forgotten(&Sqlite::fresh());
    a_person_is_forgotten(&Postgres::fresh());
}
