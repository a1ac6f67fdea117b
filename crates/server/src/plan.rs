//! The plan: a config held against the database, every statement prepared and every name resolved. What runs is
//! the plan, so that nothing in a call can be misspelt any more.

mod contracts;
mod edge;
mod probe;
mod rules;
mod sql;
mod statement;
mod tool;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use counterfoil::rusqlite::{self, ErrorCode};
use counterfoil_core::{Contract, Principal, Revision, Schema, Scope, ToolName};

use crate::auth::TokenHash;
use crate::config::{self, Config, DatabaseUrl, Limits, OutputType, ReadReturns, WriteReturns};
use crate::diagnostics::{Diagnostic, Report};
use probe::Probe;

pub use contracts::Pinned;
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
    /// What SQLite prepares.
    pub sql: Box<str>,
    /// What is bound, in SQLite's order.
    pub binds: Vec<Bind>,
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
}

/// Reads the config `text`, called `source_name`, and holds it against its database: one report has the mistakes of
/// the file and, of whatever in it can be understood, those that only the database shows.
#[must_use]
pub fn check(source_name: &str, text: &str) -> (Option<Plan>, Report) {
    let (config, mut report) = config::read(source_name, text);
    let whole = report.is_empty();
    let planned = config.map(|config| planned(&config, whole));
    let (plan, more) = planned.unwrap_or_else(|| (None, Report::new(report.source().clone())));
    report.append(more);
    (plan.filter(|_| report.errors() == 0), report)
}

/// Holds `config` against its database. The report has what is wrong and what is doubtful; a plan comes only
/// without errors.
#[must_use]
pub fn plan(config: &Config) -> (Option<Plan>, Report) {
    let (plan, report) = planned(config, true);
    (plan.filter(|_| report.errors() == 0), report)
}

/// A config that is not `whole` lacks what could not be read, which is no mistake of its own.
fn planned(config: &Config, whole: bool) -> (Option<Plan>, Report) {
    let mut report = Report::new(config.source.clone());
    let (schema, probe) = match read_schema(config, &mut report) {
        Ok(schema) => {
            let probe = probe(config, schema.as_deref(), &mut report);
            (schema, probe)
        }
        Err(Reported) => (None, None),
    };
    let mut planner = Planner { config, probe: probe.as_ref(), report: &mut report };
    let plan = planner.plan(schema);
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
    fn plan(&mut self, schema: Option<String>) -> Option<Plan> {
        let membership = self.membership();
        let tools: Vec<_> = self.config.tools.iter().map(|tool| self.tool(tool)).collect();
        let contracts = self.contracts();
        let tools: Option<Vec<Arc<Tool>>> = tools.into_iter().map(|tool| tool.map(Arc::new)).collect();
        let auth = &self.config.auth;
        let token =
            |token: &config::Token| Some((token.sha256.value, Arc::new(token.credentials.principal()?)));
        Some(Plan {
            database: self.database(schema),
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

    fn database(&self, schema: Option<String>) -> Database {
        let DatabaseUrl::Sqlite(path) = &self.config.database.url.value;
        Database::Sqlite(SqliteFile { path: self.config.resolve(path), schema })
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

/// The report says why.
struct Reported;

fn read_schema(config: &Config, report: &mut Report) -> Result<Option<String>, Reported> {
    let Some(path) = &config.database.schema else { return Ok(None) };
    std::fs::read_to_string(config.resolve(path)).map(Some).map_err(|error| {
        let fault = Diagnostic::error(format!("the schema cannot be read: {error}"));
        report.push(fault.at(path.span.clone(), "").help("a relative path is relative to this file"));
        Reported
    })
}

/// The real database; or, where there is none yet, what its schema will make.
fn probe(config: &Config, schema: Option<&str>, report: &mut Report) -> Option<Probe> {
    let url = &config.database.url;
    let DatabaseUrl::Sqlite(path) = &url.value;
    let path = config.resolve(path);
    let fault = match (path.exists(), schema, &config.database.schema) {
        (true, _, _) if path.is_dir() => {
            Diagnostic::error("the database is a directory").at(url.span.clone(), "")
        }
        (true, _, _) => match Probe::sqlite(&path) {
            Ok(probe) => return Some(probe),
            Err(error) => {
                Diagnostic::error(format!("the database cannot be used: {error}")).at(url.span.clone(), "")
            }
        },
        (false, Some(schema), Some(written)) => match Probe::imagine(schema) {
            Ok(probe) => return Some(probe),
            Err(error) => schema_fault(schema, &error).at(written.span.clone(), ""),
        },
        (false, _, _) => Diagnostic::error("there is no such database file")
            .at(url.span.clone(), "")
            .help("make the database first, or name a file of CREATE statements: `schema = \"schema.sql\"`"),
    };
    report.push(fault);
    None
}

/// What is wrong with the schema, and on which of its lines.
#[expect(clippy::wildcard_enum_match_arm, reason = "any other error speaks for itself")]
fn schema_fault(schema: &str, error: &rusqlite::Error) -> Diagnostic {
    let said = |text: &str| Diagnostic::error(format!("the schema cannot be applied: {text}"));
    match error {
        // SQLite was given what was left of the schema.
        rusqlite::Error::SqlInputError { msg, offset, sql, .. } => {
            let left = schema.len().saturating_sub(sql.len());
            let at = left.saturating_add(usize::try_from(*offset).unwrap_or(0));
            let before = schema.get(..at).unwrap_or_default();
            said(msg).note(format!("it is on line {} of the schema", before.matches('\n').count() + 1))
        }
        rusqlite::Error::SqliteFailure(code, _)
            if code.code == ErrorCode::AuthorizationForStatementDenied =>
        {
            said("it would write to another file")
                .help("a schema makes one database: remove ATTACH and VACUUM INTO")
        }
        _ => said(&error.to_string()),
    }
}
