//! `[database]`: where the data is, and what only one kind of database has.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil::tokio_postgres::{Config as Connect, Error};

use super::reader::{Node, Table, boolean, choice, count, duration, parsed, text};
use super::{Spanned, bounds, maybe};
use crate::diagnostics::{Diagnostic, Report};

/// `[database]`
#[derive(Clone, Debug)]
pub struct Database {
    /// Where the data is.
    pub url: Spanned<DatabaseUrl>,
    /// SQL to run once when the database file does not exist yet; relative to the config file. SQLite only.
    pub schema: Option<Spanned<PathBuf>>,
    /// What only PostgreSQL has.
    pub postgres: Postgres,
}

/// Which database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// `sqlite:PATH`; a relative path is relative to the config file.
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres(Box<Address>),
}

/// Where a server of PostgreSQL is reached. Its `Debug` shows no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Hosts, user, database.
    pub connect: Connect,
    /// With `sslmode=verify-full`: the file of certificate authorities, relative to the config file.
    pub authorities: Option<PathBuf>,
}

/// What only PostgreSQL has, with defaults filled in.
#[derive(Clone, Debug)]
pub struct Postgres {
    /// Where the password is, if not in the URL.
    pub password: Option<Spanned<Password>>,
    /// Connections at most.
    pub pool: usize,
    /// How long `serve` waits for the database when it starts.
    pub start_wait: Duration,
    /// Settings that each call's transaction gets.
    pub session: Vec<Setting>,
    /// How `numeric` is written where `output` does not say.
    pub numeric: Numeric,
    /// Whether prepared statements are kept on a connection; not behind a pooler that lends sessions.
    pub prepare: bool,
}

impl Default for Postgres {
    fn default() -> Self {
        Self {
            password: None,
            pool: bounds::DEFAULT_POOL,
            start_wait: bounds::DEFAULT_START_WAIT,
            session: Vec::new(),
            numeric: Numeric::default(),
            prepare: true,
        }
    }
}

/// Where a password is read from when the database is first reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    /// This variable of the environment.
    Environment(String),
    /// The first line of this file; relative to the config file.
    File(PathBuf),
}

/// `"app.workspace" = ":workspace"`
#[derive(Clone, Debug)]
pub struct Setting {
    /// The setting's name, with its prefix.
    pub name: Spanned<String>,
    /// The name of the trusted value that it gets.
    pub value: Spanned<String>,
}

/// How `numeric` is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numeric {
    /// As a string: readers that know only doubles lose nothing.
    #[default]
    String,
    /// As a JSON number, with every digit.
    Number,
}

pub(super) fn database(report: &mut Report, node: &Node<'_>) -> Option<Database> {
    let mut table = Table::open(report, node, "`[database]`")?;
    let url = table.required("url", "add `url = \"sqlite:data.db\"`, or `url = \"postgres://…\"`");
    let url = url.and_then(|node| parsed(report, &node, database_url));
    let schema = match url.as_ref().map(|url| &url.value) {
        Some(DatabaseUrl::Postgres(_)) => {
            table.refuse(report, "schema", no_schema);
            Some(None)
        }
        Some(DatabaseUrl::Sqlite(_)) => {
            POSTGRES_KEYS.iter().for_each(|key| {
                table.refuse(report, key, |node| only_postgres(node, key));
            });
            schema(report, &mut table)
        }
        None => schema(report, &mut table),
    };
    let postgres = postgres(report, &mut table);
    table.finish(report);
    Some(Database { url: url?, schema: schema?, postgres: postgres? })
}

const POSTGRES_KEYS: [&str; 7] =
    ["password_env", "password_file", "pool", "start_wait", "session", "numeric", "prepare"];

fn only_postgres(node: &Node<'_>, key: &str) -> Diagnostic {
    Diagnostic::error(format!("`{key}` is for PostgreSQL, and this database is SQLite"))
        .at(node.key.clone(), "")
        .help("remove it")
}

fn no_schema(node: &Node<'_>) -> Diagnostic {
    Diagnostic::error("`schema` makes a new SQLite file, and this database is PostgreSQL")
        .at(node.key.clone(), "")
        .help("make the application's tables by its own migrations, as the role that owns them")
}

fn schema(report: &mut Report, table: &mut Table<'_>) -> Option<Option<Spanned<PathBuf>>> {
    let schema = table.optional("schema");
    maybe(report, schema, |report, node| {
        text(report, node).map(|text| Spanned::new(PathBuf::from(&text.value), text.span))
    })
}

fn postgres(report: &mut Report, table: &mut Table<'_>) -> Option<Postgres> {
    let password = password(report, table);
    let default = Postgres::default();
    let pool = table.optional("pool");
    let pool = maybe(report, pool, |report, node| count(report, node, bounds::POOL));
    let start_wait = table.optional("start_wait");
    let start_wait = maybe(report, start_wait, |report, node| duration(report, node, bounds::START_WAIT));
    let session = table.optional("session");
    let session = maybe(report, session, session_settings);
    let numeric = table.optional("numeric");
    let forms = [("string", Numeric::String), ("number", Numeric::Number)];
    let numeric = maybe(report, numeric, |report, node| choice(report, node, &forms));
    let prepare = table.optional("prepare");
    let prepare = maybe(report, prepare, boolean);
    let pool = pool?.and_then(|pool| usize::try_from(pool.value).ok());
    Some(Postgres {
        password: password?,
        pool: pool.unwrap_or(default.pool),
        start_wait: start_wait?.map_or(default.start_wait, |wait| wait.value),
        session: session?.unwrap_or_default(),
        numeric: numeric?.map_or(default.numeric, |numeric| numeric.value),
        prepare: prepare?.map_or(default.prepare, |prepare| prepare.value),
    })
}

fn password(report: &mut Report, table: &mut Table<'_>) -> Option<Option<Spanned<Password>>> {
    let environment = table.optional("password_env");
    let environment = maybe(report, environment, |report, node| {
        text(report, node).map(|name| Spanned::new(Password::Environment(name.value), name.span))
    });
    let file = table.optional("password_file");
    let file = maybe(report, file, |report, node| {
        text(report, node).map(|path| Spanned::new(Password::File(PathBuf::from(path.value)), path.span))
    });
    match (environment?, file?) {
        (Some(environment), Some(file)) => {
            let fault = Diagnostic::error("the password has two places").at(environment.span, "");
            report.push(fault.at(file.span, "").help("keep one of them"));
            None
        }
        (environment, file) => Some(environment.or(file)),
    }
}

/// Names that `session` may bind: what is known of the caller, and nothing that the caller says.
const TRUSTED: [&str; 3] = [":workspace", ":principal", ":issuer"];

fn session_settings(report: &mut Report, node: &Node<'_>) -> Option<Vec<Setting>> {
    let table = Table::open(report, node, "`session`")?;
    let settings: Vec<Option<Setting>> =
        table.into_entries().iter().map(|entry| setting(report, entry)).collect();
    settings.into_iter().collect()
}

fn setting(report: &mut Report, entry: &Node<'_>) -> Option<Setting> {
    let value = text(report, entry)?;
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let name = &entry.name;
    if name.len() > 63 || !matches!(name.split_once('.'), Some((prefix, rest)) if part(prefix) && part(rest))
    {
        let fault = Diagnostic::error("a session setting has a name with a prefix of the application's own");
        report.push(fault.at(entry.key.clone(), "").help("write `\"app.workspace\" = \":workspace\"`"));
        return None;
    }
    if !TRUSTED.contains(&value.as_str()) {
        let fault = Diagnostic::error("a session setting gets a value from trusted context");
        report.push(fault.at(value.span, "").help("write \":workspace\", \":principal\" or \":issuer\""));
        return None;
    }
    let value = Spanned::new(value.value.trim_start_matches(':').to_owned(), value.span);
    Some(Setting { name: Spanned::new(name.clone(), entry.key.clone()), value })
}

const URL_HELP: &str = "write `url = \"sqlite:data.db\"`; a relative path is relative to this file";

fn database_url(url: &str) -> Result<DatabaseUrl, Diagnostic> {
    let wrong = |message: &str| Err(Diagnostic::error(message).help(URL_HELP));
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => postgres_url(url),
        Some(("sqlite", path)) => match path {
            "" => wrong("the database has no path"),
            ":memory:" | "memory:" => wrong("a database in memory would forget its receipts"),
            path if path.starts_with("//") => wrong("the path follows `sqlite:` without slashes of its own"),
            path if path.contains(['?', '#']) || path.starts_with("file:") => {
                wrong("a database takes a plain path, without parameters")
            }
            path => Ok(DatabaseUrl::Sqlite(PathBuf::from(path))),
        },
        Some(_) | None => wrong("this names no database that can be used"),
    }
}

const POSTGRES_HELP: &str = "write `url = \"postgres://USER@HOST:5432/DATABASE\"`";

/// `sslmode=verify-full` and `sslrootcert` are libpq's and not the driver's: they are taken out for ourselves.
fn postgres_url(url: &str) -> Result<DatabaseUrl, Diagnostic> {
    let wrong = |message: String| Diagnostic::error(message).help(POSTGRES_HELP);
    let (place, parameters) = url.split_once('?').unwrap_or((url, ""));
    let (mut mode, mut authorities, mut rest) = (None, None, Vec::new());
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => authorities = Some(PathBuf::from(value)),
            Some(_) | None => rest.push(parameter),
        }
    }
    let driver = match mode {
        None | Some("prefer") => "sslmode=prefer",
        Some("disable") => "sslmode=disable",
        Some("require" | "verify-full") => "sslmode=require",
        Some(other) => {
            let fault = Diagnostic::error(format!("`sslmode={other}` is not known"));
            return Err(fault.help("write disable, prefer, require or verify-full"));
        }
    };
    if (mode == Some("verify-full")) != authorities.is_some() {
        let fault = Diagnostic::error("`sslmode=verify-full` and `sslrootcert` belong together");
        return Err(
            fault.help("write `?sslmode=verify-full&sslrootcert=ca.pem`, a file of certificate authorities")
        );
    }
    rest.push(driver);
    let connect: Connect = format!("{place}?{}", rest.join("&")).parse().map_err(|error: Error| {
        let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        wrong(format!("this is no URL of PostgreSQL: {cause}"))
    })?;
    if connect.get_hosts().is_empty() {
        return Err(wrong("the URL names no host".to_owned()));
    }
    if connect.get_user().is_none() || connect.get_dbname().is_none() {
        return Err(wrong("the URL names no user, or no database".to_owned()));
    }
    Ok(DatabaseUrl::Postgres(Box::new(Address { connect, authorities })))
}
