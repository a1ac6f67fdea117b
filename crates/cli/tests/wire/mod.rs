//! What the cases of the wire are made of: a server process over a fresh database, calls on connections of their
//! own, and the one function that judges every answer.

pub(crate) mod change;
pub(crate) mod crash;
pub(crate) mod postgres;
pub(crate) mod same;
pub(crate) mod sql;
pub(crate) mod who;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use counterfoil_core::{Code, Retry};
use counterfoil_testkit::site::{Kind, for_everybody};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Done, Http, Refused, Row, Send, Server, Site, Told, Who, set_interval};
use serde_json::Value;

/// The binary under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

/// One row of a table of cases.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// As in the list of cases.
    pub(crate) name: &'static str,
    /// Every code that its steps meet, no more and no less.
    pub(crate) codes: &'static [Code],
    /// What the server is started on.
    pub(crate) on: On,
    /// The steps.
    pub(crate) steps: fn(&mut Stage),
}

/// What a server is started on.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// The shipped example's tools.
    Automations,
    /// The shipped example's tools under these `[limits]`.
    Limited(&'static str),
    /// The tool that takes values of every type, under these `[limits]`.
    Notes(&'static str),
    /// Tools and schema of the case's own.
    Own(&'static str, &'static str),
}

impl On {
    fn site(self, kind: Kind) -> Site {
        match self {
            On::Automations => Site::automations_on(kind),
            On::Limited(limits) => {
                let site = Site::automations_on(kind);
                let tools = counterfoil_testkit::site::EXAMPLE;
                let _main = site.config("counterfoil.toml", &for_everybody(&limited(tools, limits)));
                site
            }
            On::Notes(limits) => made(kind, &limited(same::NOTES, limits), same::NOTES_SCHEMA),
            On::Own(tools, schema) => made(kind, tools, schema),
        }
    }
}

fn made(kind: Kind, tools: &str, schema: &str) -> Site {
    let site = Site::fresh_on(kind, schema);
    let _main = site.config("counterfoil.toml", &for_everybody(&own(tools)));
    site
}

/// `tools` under these `[limits]`.
pub(crate) fn limited(tools: &str, limits: &str) -> String {
    tools.replacen("[receipts]", &format!("[limits]\n{limits}\n\n[receipts]"), 1)
}

/// `tools` with a database.
pub(crate) fn own(tools: &str) -> String {
    format!("[database]\nurl = \"sqlite:automations.db\"\nschema = \"schema.sql\"\n\n{tools}")
}

/// Holds every case of a table.
pub(crate) fn check_all(cases: &[Case]) {
    cases.iter().for_each(|case| check(case, Kind::Sqlite));
}

/// Holds every case of a table that is not SQLite's own to PostgreSQL.
pub(crate) fn check_on_postgres(cases: &[Case]) {
    let cases = cases.iter().filter(|case| !SQLITES_OWN.contains(&case.name));
    cases.for_each(|case| check(case, Kind::Postgres));
}

/// Cases of the file, of its one writer, and of SQLite's own SQL.
const SQLITES_OWN: [&str; 9] = [
    "C5: a failure while rows are read",
    "C6: a failure after the receipt",
    "C8: locked by another program",
    "C8: the disk is full",
    "C8: the queue is full",
    "C9: one call in a group fails",
    "Q1: only true parameters are bound",
    "Q2, C4: one ends the transaction of all",
    "Q3: results are exact",
];

fn check(case: &Case, kind: Kind) {
    println!("{}", case.name);
    let mut stage = Stage::on(case.on.site(kind));
    (case.steps)(&mut stage);
    let expected: BTreeSet<String> = case.codes.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(*stage.met.borrow(), expected, "{}: the codes that were met", case.name);
}

/// A server over a fresh database.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) site: Site,
    met: RefCell<BTreeSet<String>>,
}

impl Stage {
    fn on(site: Site) -> Self {
        let server = Server::start(Path::new(PROGRAM), &site.main());
        Self { server, site, met: RefCell::default() }
    }

    /// Starts another server on the same database, with a config of its own.
    pub(crate) fn another(&self, name: &str, config: &str) -> Server {
        Server::start(Path::new(PROGRAM), &self.config(name, config))
    }

    pub(crate) fn config(&self, name: &str, config: &str) -> PathBuf {
        self.site.config(name, config)
    }

    /// Kills the server and starts it again.
    pub(crate) fn restart(&mut self) {
        let again = Server::start(Path::new(PROGRAM), &self.site.main());
        std::mem::replace(&mut self.server, again).kill();
    }

    /// Calls on a connection of its own, and judges the answer.
    pub(crate) fn call(&self, who: Who, send: &Send) -> Told {
        self.call_at(&self.server, who, send)
    }

    pub(crate) fn call_at(&self, server: &Server, who: Who, send: &Send) -> Told {
        let told = server.connect(who).call(send);
        self.judge(who, send, &told);
        told
    }

    /// It commits now.
    pub(crate) fn fresh(&self, who: Who, send: &Send) -> Done {
        self.fresh_at(&self.server, who, send)
    }

    pub(crate) fn fresh_at(&self, server: &Server, who: Who, send: &Send) -> Done {
        let done = self.call_at(server, who, send).answer().done();
        assert!(!done.replayed, "{send:?} should be fresh: {done:?}");
        done
    }

    /// It committed, as `then`.
    pub(crate) fn replayed(&self, who: Who, send: &Send, then: &Done) {
        self.replayed_at(&self.server, who, send, then);
    }

    pub(crate) fn replayed_at(&self, server: &Server, who: Who, send: &Send, then: &Done) {
        let done = self.call_at(server, who, send).answer().done();
        assert_eq!(done, Done { replayed: true, ..then.clone() }, "{send:?}");
    }

    /// It is refused with `code`.
    pub(crate) fn refused(&self, who: Who, send: &Send, code: Code) -> Refused {
        self.refused_at(&self.server, who, send, code)
    }

    pub(crate) fn refused_at(&self, server: &Server, who: Who, send: &Send, code: Code) -> Refused {
        let refused = self.call_at(server, who, send).answer().refused();
        assert_eq!(refused.code, code.as_str(), "{send:?}: {}", refused.error);
        self.holds(who, send, &refused);
        refused
    }

    /// A JSON-RPC error: nothing of the call was looked at.
    pub(crate) fn unreadable(&self, who: Who, send: &Send) {
        let told = self.server.connect(who).call(send);
        assert!(matches!(told.protocol_error(), Some(-32700 | -32602)), "{told:?}");
    }

    /// All at once, each on a connection of its own, over the servers in turn.
    pub(crate) fn at_once(&self, servers: &[&Server], sends: &[Send]) -> Vec<Told> {
        let start = Barrier::new(sends.len());
        let told: Vec<Told> = std::thread::scope(|scope| {
            let one = |server: &Server, send: &Send| {
                let mut http = server.connect(Who::Alice);
                start.wait();
                http.call(send)
            };
            let pairs = sends.iter().zip(servers.iter().cycle());
            let threads: Vec<_> =
                pairs.map(|(send, server)| scope.spawn(move || one(server, send))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        sends.iter().zip(&told).for_each(|(send, told)| self.judge(Who::Alice, send, told));
        told
    }

    /// The number that `sql` tells.
    pub(crate) fn count(&self, sql: &str) -> i64 {
        self.site.database.count(sql)
    }

    pub(crate) fn receipts(&self, expected: i64) {
        assert_eq!(self.site.database.receipts(), expected, "receipts");
    }

    /// An automation is so.
    pub(crate) fn row(&self, id: i64, interval: i64, version: i64) {
        let row = self.site.database.row(id).map(|Row { interval, version, .. }| (interval, version));
        assert_eq!(row, Some((interval, version)), "row {id}");
    }

    /// What the built-in tool `name` says of an operation of `tool`.
    pub(crate) fn ask(&self, name: &str, who: Who, tool: &str, operation: &str) -> Value {
        let arguments = serde_json::json!({ "tool": tool, "operation": operation });
        let told = self.server.connect(who).call(&Send::new(name, arguments.to_string()));
        let value = told.value();
        assert_eq!(value["request_id"], operation, "{told:?}");
        assert_eq!(value["tool"], tool, "{told:?}");
        value
    }

    pub(crate) fn state(&self, who: Who, operation: &str) -> String {
        let value = self.ask("operation_status", who, "set_interval", operation);
        value["state"].as_str().unwrap().to_owned()
    }

    /// The one place where every answer is judged: its shape, its status, its advice, and what it says of the
    /// operation.
    pub(crate) fn judge(&self, who: Who, send: &Send, told: &Told) {
        let read = READS.contains(&send.tool.as_str());
        let value = told.value();
        let Some(error) = value.get("error") else {
            assert!(!told.is_error() && told.status == 200, "{told:?}");
            return self.judge_done(read, told, &value);
        };
        assert!(told.is_error(), "{told:?}");
        let code = error["code"].as_str().unwrap();
        let code = *Code::ALL.iter().find(|known| known.as_str() == code).unwrap();
        self.met.borrow_mut().insert(code.to_string());
        let edge = code == Code::Forbidden;
        assert_eq!(told.status, if edge { 403 } else { 200 }, "{who:?} {send:?}: {told:?}");
        assert_eq!(error["retry"], code.retry().as_str(), "{told:?}");
        let operation = error.get("operation").map(|operation| operation.as_str().unwrap());
        if read {
            assert_eq!(operation, None, "a read is no operation: {told:?}");
        } else {
            assert!(knows(code).contains(&operation), "{send:?}: {told:?}");
        }
        assert_eq!(error.get("committed_at").is_some(), operation == Some("committed"), "{told:?}");
        let waits = matches!(code, Code::Busy | Code::OutcomeUnknown);
        assert_eq!(error.get("retry_after_ms").is_some(), waits, "{told:?}");
        assert_eq!(error.get("correlation_id").is_some(), code == Code::Internal, "{told:?}");
        let says_void = error["message"].as_str().unwrap().contains("void it first");
        let already = matches!(code, Code::RequestIdVoided);
        assert_eq!(
            says_void,
            code.retry() == Retry::NewId && !already || pinned(code, operation),
            "{told:?}"
        );
    }

    fn judge_done(&self, read: bool, told: &Told, value: &Value) {
        if read || value.get("state").is_some() {
            return;
        }
        assert_eq!(value["request_id"].as_str().map(str::is_empty), Some(false), "{told:?}");
        let committed_at = value["committed_at"].as_str().unwrap();
        assert!(committed_at.len() == 27 && committed_at.ends_with('Z'), "{told:?}");
        let history = format!("This change committed earlier, at {committed_at}.");
        assert_eq!(told.text().starts_with(&history), value["replayed"] == true, "{told:?}");
        assert!(told.text().ends_with(told.structured()), "{told:?}");
    }

    /// What a refusal says of the operation is so in the database, while nobody else is at it.
    fn holds(&self, who: Who, send: &Send, refused: &Refused) {
        let Some(id) = id_of(send) else { return };
        let sql = format!(
            "SELECT coalesce(max(state), 'none') FROM counterfoil_receipts \
              WHERE request_id = '{id}' AND subject = '{}' AND workspace = '{}'",
            who.subject(),
            who.workspace()
        );
        let state = self.site.database.text(&sql);
        match refused.operation.as_deref() {
            Some("committed") => assert_eq!(state, "committed", "{send:?} {refused:?}"),
            Some("voided") => assert_eq!(state, "voided", "{send:?} {refused:?}"),
            Some("not_committed_so_far") => assert_eq!(state, "none", "{send:?} {refused:?}"),
            Some("unknown") => {}
            None if READS.contains(&send.tool.as_str()) => {}
            None => assert_eq!(state, "committed", "{send:?} {refused:?}"),
            Some(other) => panic!("{other}"),
        }
    }
}

/// Tools that read, in any case.
const READS: [&str; 4] = ["get_automation", "list_notes", "get_note", "operation_status"];

fn id_of(send: &Send) -> Option<String> {
    let arguments: Value = serde_json::from_str(&send.arguments).ok()?;
    arguments["request_id"].as_str().map(str::to_owned)
}

fn pinned(code: Code, operation: Option<&str>) -> bool {
    code == Code::RevisionChanged && operation == Some("not_committed_so_far")
}

/// What may be known of the operation as a whole where a write is refused with `code`.
fn knows(code: Code) -> &'static [Option<&'static str>] {
    match code {
        Code::Forbidden
        | Code::RequestIdRequired
        | Code::InvalidRequestId
        | Code::InvalidArguments
        | Code::ResourceUnavailable
        | Code::Busy
        | Code::RateLimited
        | Code::OutcomeUnknown
        | Code::Internal => &[Some("unknown")],
        Code::RequestIdReused => &[None],
        Code::RevisionChanged => &[Some("committed"), Some("not_committed_so_far")],
        Code::RequestIdVoided => &[Some("voided")],
        Code::RequestIdExpired => &[Some("committed"), Some("unknown")],
        Code::VersionConflict
        | Code::PreconditionFailed
        | Code::ConstraintViolated
        | Code::ResultTooLarge => &[Some("not_committed_so_far")],
    }
}

/// `set_interval` under `request_id`: automation `id`, as it was at `version`, is to run every `interval` minutes.
pub(crate) fn edit(request_id: &str, id: i64, version: i64, interval: i64) -> Send {
    Send::from(&set_interval(request_id, id, version, interval))
}

/// Row 1 from version 1 to 2.
pub(crate) fn edit_42() -> Send {
    edit("edit-42", 1, 1, 30)
}

/// Sends everything on connections of their own, before the first answer is read; `then` is done in between.
pub(crate) fn together(server: &Server, sends: &[Send], then: impl FnOnce()) -> Vec<Told> {
    let mut connections: Vec<Http> = sends.iter().map(|_| server.connect(Who::Alice)).collect();
    connections.iter_mut().zip(sends).for_each(|(http, send)| http.begin(send));
    then();
    connections.iter_mut().map(Http::finish).collect()
}

/// Splits answers into replies and codes of refusals.
pub(crate) fn parted(told: &[Told]) -> (Vec<Done>, Vec<String>) {
    let (mut done, mut codes) = (Vec::new(), Vec::new());
    for told in told {
        match told.answer() {
            Answer::Done(reply) => done.push(reply),
            Answer::Refused(refused) => codes.push(refused.code),
        }
    }
    (done, codes)
}
