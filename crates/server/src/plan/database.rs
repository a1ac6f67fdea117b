//! From `[database]` to a database that can be asked.

use std::fs;

use counterfoil::postgres::Tls;
use counterfoil::rusqlite::{self, ErrorCode};

use super::probe::Probe;
use super::{Again, Bind, Database, Server, SqliteFile};
use crate::config::{Address, Config, DatabaseUrl, Password, Setting, Spanned};
use crate::diagnostics::{Diagnostic, Report};

/// What is served from; the report says why not.
pub(super) fn database(config: &Config, report: &mut Report) -> Option<Database> {
    match &config.database.url.value {
        DatabaseUrl::Sqlite(path) => {
            let schema = read_schema(config, report)?;
            Some(Database::Sqlite(SqliteFile { path: config.resolve(path), schema }))
        }
        DatabaseUrl::Postgres(address) => match server(config, address) {
            Ok(server) => Some(Database::Postgres(Box::new(server))),
            Err(fault) => {
                report.push(fault);
                None
            }
        },
    }
}

/// A database to hold statements against.
pub(super) fn probe(
    config: &Config,
    database: &Database,
    report: &mut Report,
    again: &mut Again<'_>,
) -> Option<Probe> {
    match database {
        Database::Sqlite(file) => sqlite(config, file, report),
        Database::Postgres(server) => {
            let session = example(config, server);
            let reached = Probe::postgres(server, &session, &mut |error| again(server, error));
            let url = &config.database.url;
            let told = |error| Diagnostic::error(format!("the database cannot be used: {error}"));
            reached.map_err(|error| report.push(told(error).at(url.span.clone(), ""))).ok()
        }
    }
}

/// Stands for a caller that the config does not name: whatever a policy casts a workspace to, it is most often text or
/// a UUID.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// The settings of a call as the first caller that the config names would make it.
fn example(config: &Config, server: &Server) -> Vec<(String, String)> {
    let auth = &config.auth;
    let named = auth.tokens.iter().map(|token| &token.credentials).chain(&auth.stdio).next();
    let caller = named.and_then(|caller| caller.principal());
    let value = |bind: &Bind| match (bind, &caller) {
        (Bind::Workspace, Some(caller)) => caller.workspace.as_str().to_owned(),
        (Bind::Principal, Some(caller)) => caller.subject.as_str().to_owned(),
        (Bind::Issuer, Some(caller)) => caller.issuer.as_str().to_owned(),
        (Bind::Workspace | Bind::Principal | Bind::Issuer, None)
        | (Bind::RequestId | Bind::Now | Bind::Argument(_) | Bind::Earlier { .. }, _) => NOBODY.to_owned(),
    };
    server.session.iter().map(|(name, bind)| (name.clone(), value(bind))).collect()
}

/// How to reach a server, its password among it.
///
/// # Errors
/// A file that is not there, or a variable that is not set.
pub fn server(config: &Config, address: &Address) -> Result<Server, Diagnostic> {
    let mut server = server_without_password(config, address)?;
    if let Some(place) = &config.database.postgres.password {
        server.connect.password(password(config, place)?);
    }
    Ok(server)
}

/// As [`server`], for another role than the config's.
///
/// # Errors
/// As [`server`].
pub fn server_without_password(config: &Config, address: &Address) -> Result<Server, Diagnostic> {
    let (connect, written) = (address.connect.clone(), &config.database.postgres);
    let tls = match &address.authorities {
        None => Tls::default(),
        Some(path) => Tls::proven_by(&config.resolve(path))
            .map_err(|error| Diagnostic::error(error.to_string()).at(config.database.url.span.clone(), ""))?,
    };
    Ok(Server {
        connect,
        tls,
        pool: written.pool,
        prepare: written.prepare,
        start_wait: written.start_wait,
        session: written.session.iter().map(session).collect(),
        state: config.server.state_dir.as_ref().map(|folder| config.resolve(folder)),
    })
}

fn session(setting: &Setting) -> (String, Bind) {
    let value = match setting.value.as_str() {
        "principal" => Bind::Principal,
        "issuer" => Bind::Issuer,
        _ => Bind::Workspace,
    };
    (setting.name.value.clone(), value)
}

fn password(config: &Config, place: &Spanned<Password>) -> Result<String, Diagnostic> {
    let fault = |message: String| Diagnostic::error(message).at(place.span.clone(), "");
    match &place.value {
        Password::Environment(name) => {
            std::env::var(name).map_err(|_| fault("this variable is not set, or is not text".to_owned()))
        }
        Password::File(path) => {
            let text = fs::read_to_string(config.resolve(path));
            let text = text.map_err(|error| fault(format!("the password cannot be read: {error}")))?;
            let first = text.lines().next().filter(|line| !line.is_empty());
            first.map(str::to_owned).ok_or_else(|| fault("the password's file is empty".to_owned()))
        }
    }
}

/// What makes the SQLite file; `None` if it cannot be read, which the report says.
fn read_schema(config: &Config, report: &mut Report) -> Option<Option<String>> {
    let Some(path) = &config.database.schema else { return Some(None) };
    match std::fs::read_to_string(config.resolve(path)) {
        Ok(schema) => Some(Some(schema)),
        Err(error) => {
            let fault = Diagnostic::error(format!("the schema cannot be read: {error}"));
            report.push(fault.at(path.span.clone(), "").help("a relative path is relative to this file"));
            None
        }
    }
}

/// The real database; or, where there is none yet, what its schema will make.
fn sqlite(config: &Config, file: &SqliteFile, report: &mut Report) -> Option<Probe> {
    let (url, path) = (&config.database.url, &file.path);
    let fault = match (path.exists(), &file.schema, &config.database.schema) {
        (true, _, _) if path.is_dir() => {
            Diagnostic::error("the database is a directory").at(url.span.clone(), "")
        }
        (true, _, _) => match Probe::sqlite(path) {
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
