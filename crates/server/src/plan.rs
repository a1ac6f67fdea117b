//! The plan: a config held against the database, every statement prepared and every name resolved. What runs is
//! the plan, so that nothing in a call can be misspelt any more.

mod contracts;
mod database;
mod edge;
mod probe;
mod rules;
mod sql;
mod statement;
mod tool;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil::OpenError;
use counterfoil::postgres::Tls;
use counterfoil::tokio_postgres;
use counterfoil::tokio_postgres::types::Type;
use counterfoil_core::{Contract, Principal, Revision, Schema, Scope, ToolName};

use crate::auth::TokenHash;
use crate::config::{self, Config, DatabaseUrl, Limits, OutputType, ReadReturns, WriteReturns};
use crate::diagnostics::Report;
use probe::Probe;
use sql::Language;

pub use contracts::Pinned;
pub use database::{server, server_without_password};
pub use edge::Edge;

/// A server, ready to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it serves from.
    pub database: Database,
    /// Where to listen unless told otherwise.
    pub listen: SocketAddr,
    /// Bounds of every call.
    pub limits: Limits,
    /// Asked on every call.
    pub membership: Option<Statement>,
    /// The tools, in the order of the file.
    pub tools: Vec<Arc<Tool>>,
    /// Places in `tools` by name, former names included.
    pub names: HashMap<String, usize>,
    /// Bearer tokens, by the hash of each.
    pub tokens: Vec<(TokenHash, Arc<Principal>)>,
    /// Who calls over stdio.
    pub stdio: Option<Arc<Principal>>,
    /// How it is reached over HTTP.
    pub edge: Edge,
    /// What each revision's schema must stay.
    pub contracts: Vec<Pinned>,
}

/// What a server serves from.
#[derive(Debug, Clone)]
pub enum Database {
    /// One file.
    Sqlite(SqliteFile),
    /// A server.
    Postgres(Box<Server>),
}

/// A database of PostgreSQL.
#[derive(Debug, Clone)]
pub struct Server {
    /// Hosts, user, password, database.
    pub connect: tokio_postgres::Config,
    /// Whether it must prove who it is.
    pub tls: Tls,
    /// Connections at most.
    pub pool: usize,
    /// Whether prepared statements are kept on a connection.
    pub prepare: bool,
    /// How long to wait for it at the start.
    pub start_wait: Duration,
    /// Settings that each call's transaction gets, and what they are set to.
    pub session: Vec<(String, Bind)>,
    /// Where the witness of recent history is kept, if there is a place for it.
    pub state: Option<PathBuf>,
}

/// A SQLite database.
#[derive(Debug, Clone)]
pub struct SqliteFile {
    /// Where it is.
    pub path: PathBuf,
    /// What makes it when there is none.
    pub schema: Option<String>,
}

/// A tool, ready to run.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The name it is listed under.
    pub name: ToolName,
    /// For people.
    pub title: Option<String>,
    /// For models, as written.
    pub description: Option<String>,
    /// What the principal must hold.
    pub scope: Scope,
    /// Asked before it runs.
    pub access: Option<Statement>,
    /// The input as JSON Schema, the request id not among it.
    pub input: serde_json::Value,
    /// What it does.
    pub kind: Kind,
}

/// What a tool does.
#[derive(Debug, Clone)]
pub enum Kind {
    /// It looks.
    Read(Arc<Read>),
    /// It changes something.
    Write(Arc<Write>),
}

/// A tool that looks.
#[derive(Debug, Clone)]
pub struct Read {
    /// The revision, if it has one.
    pub revision: Option<Revision>,
    /// Its input.
    pub schema: Schema,
    /// The query.
    pub query: Statement,
    /// What it answers with.
    pub returns: ReadReturns,
}

/// A tool that changes something.
#[derive(Debug, Clone)]
pub struct Write {
    /// What it promises and demands.
    pub contract: Contract,
    /// The statements, in order.
    pub steps: Vec<Step>,
    /// The step whose rows are the result.
    pub result: Option<usize>,
    /// What it answers with.
    pub returns: WriteReturns,
    /// The version condition, if the tool has one.
    pub version: Option<Version>,
    /// The row as it is now.
    pub current: Option<Statement>,
    /// Asked instead of access when the same operation has committed.
    pub replay_access: Option<Statement>,
    /// Access rules of retired revisions.
    pub retired: Vec<Retired>,
    /// Has its transactions to itself.
    pub alone: bool,
    /// A repeat after the window still cannot act.
    pub idempotent: bool,
    /// It may overwrite or delete.
    pub destructive: bool,
}

/// One statement of a write.
#[derive(Debug, Clone)]
pub struct Step {
    /// What runs.
    pub statement: Statement,
    /// Changing no row undoes the call, unless this.
    pub may_change_nothing: bool,
    /// It holds the version condition.
    pub versioned: bool,
}

/// `version = { argument, column }`
#[derive(Debug, Clone)]
pub struct Version {
    /// The argument that says which version the caller saw.
    pub argument: String,
    /// The column it is compared with.
    pub column: String,
}

/// The rules under which a retired revision's receipts are replayed.
#[derive(Debug, Clone)]
pub struct Retired {
    /// Which revision.
    pub revision: Revision,
    /// Its rule.
    pub access: Option<Statement>,
}

/// A checked statement.
#[derive(Debug, Clone)]
pub struct Statement {
    /// What the database prepares.
    pub sql: Box<str>,
    /// The same without the row locks at its end, if it has some: for transactions that only read.
    pub unlocked: Option<Box<str>>,
    /// What is bound, in the database's order.
    pub binds: Vec<Bind>,
    /// Their types, as PostgreSQL tells them.
    pub kinds: Vec<Type>,
    /// Where each stands in `sql`, and which of them it is; of PostgreSQL's.
    pub slots: Vec<(Range<usize>, usize)>,
    /// It begins with WITH.
    pub with: bool,
    /// It returns `*`, whatever that is by then.
    pub star: bool,
    /// What it returns.
    pub columns: Vec<Column>,
}

/// Where a bound value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bind {
    /// `:workspace`
    Workspace,
    /// `:principal`
    Principal,
    /// `:issuer`
    Issuer,
    /// `:request_id`
    RequestId,
    /// `:now`
    Now,
    /// An argument.
    Argument(Box<str>),
    /// A column of an earlier step's first row.
    Earlier {
        /// Which step.
        step: usize,
        /// Which column of it.
        column: usize,
    },
}

/// A result column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: Box<str>,
    /// How its values are written, where the database cannot tell.
    pub output: Option<OutputType>,
    /// Its JSON type where that is certain.
    pub certain: Option<&'static str>,
    /// SQL of PostgreSQL's that writes its value `{}` as we do, where there is some.
    pub json: Option<Box<str>>,
}

/// Reads the config `text`, called `source_name`, and holds it against its database: one report has the mistakes of
/// the file and, of whatever in it can be understood, those that only the database shows.
#[must_use]
pub fn check(source_name: &str, text: &str) -> (Option<Plan>, Report) {
    checked(source_name, text, &mut |_, _| false)
}

/// As [`check`], waiting for a database that is not there yet, as long as the config says; `tell` hears what is waited
/// for, each time. Blocks.
#[must_use]
pub fn check_when_there(
    source_name: &str,
    text: &str,
    mut tell: impl FnMut(&OpenError),
) -> (Option<Plan>, Report) {
    let begun = Instant::now();
    checked(source_name, text, &mut |server, error| {
        let waits = begun.elapsed() < server.start_wait;
        if waits {
            tell(error);
        }
        waits
    })
}

type Again<'a> = dyn FnMut(&Server, &OpenError) -> bool + 'a;

fn checked(source_name: &str, text: &str, again: &mut Again<'_>) -> (Option<Plan>, Report) {
    let (config, mut report) = config::read(source_name, text);
    let whole = report.is_empty();
    let planned = config.map(|config| planned(&config, whole, again));
    let (plan, more) = planned.unwrap_or_else(|| (None, Report::new(report.source().clone())));
    report.append(more);
    (plan.filter(|_| report.errors() == 0), report)
}

/// Holds `config` against its database. The report has what is wrong and what is doubtful; a plan comes only
/// without errors.
#[must_use]
pub fn plan(config: &Config) -> (Option<Plan>, Report) {
    let (plan, report) = planned(config, true, &mut |_, _| false);
    (plan.filter(|_| report.errors() == 0), report)
}

/// A config that is not `whole` lacks what could not be read, which is no mistake of its own.
fn planned(config: &Config, whole: bool, again: &mut Again<'_>) -> (Option<Plan>, Report) {
    let mut report = Report::new(config.source.clone());
    let (database, probe) = match database::database(config, &mut report) {
        Some(database) => {
            let probe = database::probe(config, &database, &mut report, again);
            (Some(database), probe)
        }
        None => (None, None),
    };
    let mut planner = Planner { config, probe: probe.as_ref(), report: &mut report };
    let plan = planner.plan(database);
    if whole {
        planner.callers();
        planner.doubt_resource();
        planner.listens();
        planner.doubt_scopes();
    }
    (plan, report)
}

/// What a planner works with.
struct Planner<'a> {
    config: &'a Config,
    /// The database; without it, what the file alone tells is still told.
    probe: Option<&'a Probe>,
    report: &'a mut Report,
}

impl Planner<'_> {
    fn plan(&mut self, database: Option<Database>) -> Option<Plan> {
        let membership = self.membership();
        let tools: Vec<_> = self.config.tools.iter().map(|tool| self.tool(tool)).collect();
        let contracts = self.contracts();
        let tools: Option<Vec<Arc<Tool>>> = tools.into_iter().map(|tool| tool.map(Arc::new)).collect();
        let auth = &self.config.auth;
        let token =
            |token: &config::Token| Some((token.sha256.value, Arc::new(token.credentials.principal()?)));
        Some(Plan {
            database: database?,
            listen: self.config.server.listen(),
            limits: self.config.limits.clone(),
            membership,
            names: self.names(),
            tools: tools?,
            tokens: auth.tokens.iter().map(token).collect::<Option<_>>()?,
            edge: self.edge()?,
            stdio: auth.stdio.as_ref().and_then(|stdio| stdio.principal()).map(Arc::new),
            contracts,
        })
    }

    fn language(&self) -> Language {
        match self.config.database.url.value {
            DatabaseUrl::Sqlite(_) => Language::Sqlite,
            DatabaseUrl::Postgres(_) => Language::Postgres,
        }
    }

    fn names(&self) -> HashMap<String, usize> {
        let tools = self.config.tools.iter().enumerate();
        let names = tools.flat_map(|(at, tool)| {
            let all = std::iter::once(&tool.name).chain(&tool.was);
            all.map(move |name| (name.value.as_str().to_owned(), at))
        });
        names.collect()
    }
}
