//! The config as its author wrote it: one TOML file is a server.
//!
//! [`parse`] turns text into [`Config`] or into a [`Report`] of *all* that is wrong with it. What it checks is what
//! can be known from the file alone: spelling, types, bounds, names, schemas. What needs the database is checked
//! when the config is planned; every value keeps its place in the file, so that those mistakes are pictured too.

mod auth;
pub mod bounds;
mod database;
mod fragment;
mod jwt;
mod names;
mod reader;
mod server;
mod spanned;
mod tool;
mod units;
mod windows;

use std::path::{Path, PathBuf};
use std::time::Duration;

use counterfoil_core::{IdForm, Windows, limits};
use toml::de::DeTable;

pub use auth::{Auth, Credentials, Token};
pub use database::{Address, Database, DatabaseUrl, Numeric, Password, Postgres, Setting};
pub use fragment::{Bounds, Fragment, Input, Literal, Member, Shape};
pub use jwt::{Jwks, Jwt};
pub use server::{Rates, Server, Tls};
pub use spanned::Spanned;
pub use tool::{
    Kind, OutputType, Read, ReadReturns, Retired, Sql, Statement, Tool, Version, Write, WriteReturns,
};
pub(crate) use units::show_duration;
pub use windows::WrittenWindows;

use crate::diagnostics::{Diagnostic, Report, Source};
pub(crate) use reader::nearest;
use reader::{Node, Table, boolean, choice, count, duration, size};

/// A server, as written.
#[derive(Clone, Debug)]
pub struct Config {
    /// The text all spans point into.
    pub source: Source,
    /// `[database]`
    pub database: Database,
    /// `[receipts]`
    pub receipts: Receipts,
    /// `[limits]`
    pub limits: Limits,
    /// `[server]`
    pub server: Server,
    /// `[auth]`
    pub auth: Auth,
    /// `[tools.…]`, in the order of the file.
    pub tools: Vec<Tool>,
}

/// `[receipts]`
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    /// How long receipts last, of tools that do not say so themselves.
    pub windows: WrittenWindows,
    /// Which request ids are taken.
    pub request_ids: Option<Spanned<IdForm>>,
    /// Whether receipts keep the arguments, of tools that do not say so themselves.
    pub store_intent: Option<Spanned<bool>>,
}

impl Receipts {
    /// Which request ids are taken.
    pub fn ids(&self) -> IdForm {
        self.request_ids.as_ref().map_or(IdForm::default(), |ids| ids.value)
    }
}

/// `[limits]`, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, in bytes.
    pub body: usize,
    /// Deepest nesting of arrays and objects.
    pub nesting: usize,
    /// Most values in one request.
    pub values: usize,
    /// Largest result, in bytes.
    pub result: usize,
    /// Calls that may wait for the writer.
    pub queue: usize,
    /// How long one statement may run.
    pub statement_time: Duration,
    /// How long a call waits for a database that another program has locked.
    pub lock_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: limits::BODY,
            nesting: limits::NESTING,
            values: limits::VALUES,
            result: limits::RESULT,
            queue: limits::QUEUE,
            statement_time: bounds::DEFAULT_PATIENCE,
            lock_wait: bounds::DEFAULT_PATIENCE,
        }
    }
}

impl Config {
    /// How long receipts of `tool` last.
    pub fn windows(&self, tool: &Tool) -> Windows {
        let shared = self.receipts.windows.over(Windows::default());
        match &tool.kind {
            Kind::Read(_) => shared,
            Kind::Write(write) => write.windows.over(shared),
        }
    }

    /// Whether receipts of `tool` keep the arguments, and not only their fingerprint.
    pub fn stores_intent(&self, tool: &Tool) -> bool {
        let own = match &tool.kind {
            Kind::Read(_) => None,
            Kind::Write(write) => write.store_intent.as_ref(),
        };
        own.or(self.receipts.store_intent.as_ref()).is_none_or(|store| store.value)
    }

    /// Where a path of this file leads: relative paths are relative to the file itself.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        Path::new(self.source.name()).parent().unwrap_or(Path::new("")).join(path)
    }
}

/// Reads a config. `source_name` is its path as the user wrote it; pictures show it, and relative paths start there.
///
/// # Errors
/// A [`Report`] of everything that is wrong, in the order of the file.
pub fn parse(source_name: &str, text: &str) -> Result<Config, Report> {
    match read(source_name, text) {
        (Some(config), report) if report.is_empty() => Ok(config),
        (_, report) => Err(report),
    }
}

/// Reads as much of a config as can be understood, so that what is right of it can be checked further. It is whole
/// only if the report is empty.
pub fn read(source_name: &str, text: &str) -> (Option<Config>, Report) {
    let source = Source::new(source_name, text);
    let mut report = Report::new(source.clone());
    let (root, faults) = DeTable::parse_recoverable(text);
    for fault in &faults {
        report.push(syntax(fault, text.len()));
    }
    // What a broken file means is a guess: its other mistakes are shown once it is TOML.
    if !report.is_empty() {
        return (None, report);
    }
    let config = config(&mut report, source, root.get_ref());
    (config, report)
}

fn syntax(fault: &toml::de::Error, end: usize) -> Diagnostic {
    let span = fault.span().unwrap_or(end..end);
    let diagnostic = Diagnostic::error(format!("this is not TOML: {}", fault.message())).at(span, "");
    if fault.message() == "duplicate key" {
        return diagnostic.help("a key, or a table, stands once; remove one of the two");
    }
    diagnostic
}

fn config(report: &mut Report, source: Source, root: &DeTable<'_>) -> Option<Config> {
    let mut file = Table::root(root);
    let database = file.required("database", "add a table `[database]` with `url = \"sqlite:data.db\"`");
    let database = database.and_then(|node| database::database(report, &node));
    let receipts = section(report, &mut file, "receipts", self::receipts);
    let limits = section(report, &mut file, "limits", self::limits);
    let server = section(report, &mut file, "server", server::server);
    let auth = section(report, &mut file, "auth", auth::auth);
    let tools = file.required("tools", "a server needs at least one tool: add a table `[tools.NAME]`");
    let tools = tools.and_then(|node| tool::tools(report, &node, receipts.as_ref()));
    file.finish(report);
    Some(Config {
        source,
        database: database?,
        receipts: receipts.unwrap_or_default(),
        limits: limits.unwrap_or_default(),
        server: server.unwrap_or_default(),
        auth: auth.unwrap_or_default(),
        tools: tools.unwrap_or_default(),
    })
}

/// A table that may be left out as a whole.
fn section<'t, T: Default>(
    report: &mut Report,
    file: &mut Table<'t>,
    name: &'static str,
    read: fn(&mut Report, Table<'t>) -> Option<T>,
) -> Option<T> {
    let Some(node) = file.optional(name) else { return Some(T::default()) };
    let table = Table::open(report, &node, format!("`[{name}]`"))?;
    read(report, table)
}

/// Reads an optional value: `Some(None)` if it is not written, `None` if it is wrong.
fn maybe<'t, T>(
    report: &mut Report,
    node: Option<Node<'t>>,
    read: impl FnOnce(&mut Report, &Node<'t>) -> Option<T>,
) -> Option<Option<T>> {
    match node {
        None => Some(None),
        Some(node) => read(report, &node).map(Some),
    }
}

fn receipts(report: &mut Report, mut table: Table<'_>) -> Option<Receipts> {
    let windows = WrittenWindows::read(report, &mut table, Some(&WrittenWindows::default()));
    let request_ids = table.optional("request_ids");
    let forms = [("any", IdForm::Any), ("uuid", IdForm::Uuid)];
    let request_ids = maybe(report, request_ids, |report, node| choice(report, node, &forms));
    let store_intent = table.optional("store_intent");
    let store_intent = maybe(report, store_intent, boolean);
    table.finish(report);
    Some(Receipts { windows: windows?, request_ids: request_ids?, store_intent: store_intent? })
}

fn limits(report: &mut Report, mut table: Table<'_>) -> Option<Limits> {
    let default = Limits::default();
    let body = byte_limit(report, &mut table, "body", bounds::BODY, default.body);
    let nesting = count_limit(report, &mut table, "nesting", bounds::NESTING, default.nesting);
    let values = count_limit(report, &mut table, "values", bounds::VALUES, default.values);
    let result = byte_limit(report, &mut table, "result", bounds::RESULT, default.result);
    let queue = count_limit(report, &mut table, "queue", bounds::QUEUE, default.queue);
    let statement_time = time_limit(report, &mut table, "statement_time", default.statement_time);
    let lock_wait = time_limit(report, &mut table, "lock_wait", default.lock_wait);
    table.finish(report);
    Some(Limits {
        body: body?,
        nesting: nesting?,
        values: values?,
        result: result?,
        queue: queue?,
        statement_time: statement_time?,
        lock_wait: lock_wait?,
    })
}

fn byte_limit(
    report: &mut Report,
    table: &mut Table<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: usize,
) -> Option<usize> {
    let node = table.optional(name);
    let bytes = maybe(report, node, |report, node| size(report, node, range))?;
    bytes.map_or(Some(default), |bytes| usize::try_from(bytes.value).ok())
}

fn count_limit(
    report: &mut Report,
    table: &mut Table<'_>,
    name: &'static str,
    range: std::ops::RangeInclusive<i64>,
    default: usize,
) -> Option<usize> {
    let node = table.optional(name);
    let number = maybe(report, node, |report, node| count(report, node, range))?;
    number.map_or(Some(default), |number| usize::try_from(number.value).ok())
}

fn time_limit(
    report: &mut Report,
    table: &mut Table<'_>,
    name: &'static str,
    default: Duration,
) -> Option<Duration> {
    let node = table.optional(name);
    let time = maybe(report, node, |report, node| duration(report, node, bounds::PATIENCE))?;
    Some(time.map_or(default, |time| time.value))
}
