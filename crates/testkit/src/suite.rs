//! One suite for every store and every entry point: the reference behaviours R1 to R12 as a table of cases.
//!
//! A case is a name, a sentence, and steps over a [`Scene`]. It knows neither SQL nor a wire: what it calls is a
//! [`Subject`], what it looks at and tampers with is that subject's [`Stage`].

mod reference;
mod scene;

use crate::{Answer, Ask, Row, Who};

pub use reference::REFERENCE;
pub use scene::{Scene, refused_with};

/// An entry point over one fresh database: the library, a server over HTTP, servers over stdio.
pub trait Subject: Sync {
    /// A connection of its own for one caller: an MCP client, a server process; the library has none to make.
    fn connect(&self, who: Who) -> Box<dyn Caller + '_>;

    /// The database behind it.
    fn stage(&self) -> &dyn Stage;
}

/// One caller on one connection.
pub trait Caller: Send {
    /// Calls, and waits for the answer.
    fn call(&mut self, ask: &Ask) -> Answer;

    /// Calls; the call commits, and the connection is gone before the reply. Returns when both have happened.
    fn lose(self: Box<Self>, ask: &Ask);
}

/// What a test does behind the server's back, and sees.
pub trait Stage: Sync {
    /// The automation as it is now.
    fn row(&self, id: i64) -> Option<Row>;
    /// How many receipts there are.
    fn receipts(&self) -> i64;
    /// The version-guarded UPDATE without any receipt; how many rows it changed.
    fn bare_update(&self, id: i64, version: i64, interval: i64) -> usize;
    /// Tampers.
    fn change(&self, change: Change);
}

/// What can be tampered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The row goes to another workspace.
    Move {
        /// Which.
        id: i64,
        /// Where to.
        workspace: &'static str,
    },
    /// The row goes.
    Delete {
        /// Which.
        id: i64,
    },
    /// No receipt can be inserted.
    BreakReceipts,
    /// Receipts can be inserted again.
    MendReceipts,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Case {
    /// As in the list of cases.
    pub name: &'static str,
    /// The sequence and its answer.
    pub what: &'static str,
    /// The steps.
    pub steps: fn(&Scene<'_>),
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.what)
    }
}

/// Holds a kind of subject to `cases`, each on a subject that `fresh` makes; races are run `races` times.
pub fn hold(cases: &[Case], races: usize, fresh: impl Fn() -> Box<dyn Subject>) {
    for case in cases {
        println!("{case:?}");
        check(case, races, &*fresh());
    }
}

/// Holds one subject to one case.
pub fn check(case: &Case, races: usize, subject: &dyn Subject) {
    (case.steps)(&Scene::new(subject, races));
}
