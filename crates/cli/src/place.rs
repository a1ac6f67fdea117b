//! What a command is pointed at: a database, and the config that knows its tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use counterfoil::removal::Terms;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Filter, Record, list, look};
use counterfoil::{OpenError, postgres, sqlite};
use counterfoil_core::{Revision, Windows};
use counterfoil_server::config::{self, Config, DatabaseUrl, Kind};
use counterfoil_server::plan::{self, Plan, Server};

use crate::check;

/// A config, or the SQLite file itself.
pub(crate) struct Place {
    named: PathBuf,
    database: Database,
    config: Option<Config>,
}

/// Where receipts are.
enum Database {
    File(PathBuf),
    Server(Box<Server>),
}

/// A ledger that can be written.
pub(crate) enum Opened {
    Sqlite(sqlite::Ledger),
    Postgres(postgres::Ledger),
}

impl Place {
    /// A config names its database, and knows the oldest name of each tool; anything else is the database. Receipts
    /// are wanted when something is wrong: a config with mistakes is read as far as it goes.
    pub(crate) fn of(place: &Path) -> anyhow::Result<Self> {
        let named = place.to_owned();
        if place.extension().is_none_or(|extension| extension != "toml") {
            return Ok(Self { database: Database::File(named.clone()), named, config: None });
        }
        let (config, report) = config::read(&place.to_string_lossy(), &check::text(place)?);
        let Some(config) = config else { bail!("{} names no database:\n\n{report}", place.display()) };
        let database = match &config.database.url.value {
            DatabaseUrl::Sqlite(path) => Database::File(config.resolve(path)),
            DatabaseUrl::Postgres(address) => {
                let server =
                    plan::server(&config, address).map_err(|fault| anyhow!("{}", fault.message()))?;
                Database::Server(Box::new(server))
            }
        };
        Ok(Self { named, database, config: Some(config) })
    }

    /// As [`Place::of`], where only a config without mistakes will do: what is removed by it does not come back.
    pub(crate) fn sound(place: &Path) -> anyhow::Result<Self> {
        let found = Self::of(place)?;
        if found.config.is_some() {
            config::parse(&place.to_string_lossy(), &check::text(place)?)
                .map_err(|report| anyhow::anyhow!("the config has mistakes:\n\n{report}"))?;
        }
        Ok(found)
    }

    /// How long receipts last: it takes the config to know.
    pub(crate) fn terms(&self) -> anyhow::Result<Arc<Terms>> {
        let Some(config) = &self.config else {
            bail!(
                "{} is a database: give the config instead, which knows how long receipts of each tool last",
                self.named.display()
            )
        };
        let writes = config.tools.iter().filter(|tool| matches!(tool.kind, Kind::Write(_)));
        Ok(Arc::new(Terms::new(writes.map(|tool| (tool.ledger_name().clone(), config.windows(tool))))))
    }

    /// The ledger name of the tool that is asked for by any of its names.
    pub(crate) fn ledger_name(&self, asked: &str) -> String {
        self.tool(|tool| tool.was.iter().chain([&tool.name]).any(|name| name.value.as_str() == asked))
            .map_or_else(|| asked.to_owned(), |tool| tool.ledger_name().to_string())
    }

    fn tool(&self, is: impl Fn(&config::Tool) -> bool) -> Option<&config::Tool> {
        self.config.as_ref()?.tools.iter().find(|tool| is(tool))
    }

    /// Windows of the tool with this ledger name, and whether it still serves `revision`; `None` if it is not declared.
    pub(crate) fn serves(&self, ledger_name: &str, revision: &Revision) -> Option<(Windows, bool)> {
        let tool = self.tool(|tool| tool.ledger_name().as_str() == ledger_name)?;
        let Kind::Write(write) = &tool.kind else { return None };
        let mut known = write.retired.iter().map(|retired| &retired.revision).chain([&write.revision]);
        let windows = self.config.as_ref()?.windows(tool);
        Some((windows, known.any(|known| known.value == *revision)))
    }

    /// The config held against its database, if there is a config and it has no mistakes.
    pub(crate) fn plan(&self) -> anyhow::Result<Option<Plan>> {
        if self.config.is_none() {
            return Ok(None);
        }
        let (plan, _) = plan::check(&self.named.to_string_lossy(), &check::text(&self.named)?);
        Ok(plan)
    }

    /// Has it a config?
    pub(crate) fn configured(&self) -> bool {
        self.config.is_some()
    }

    /// The SQLite file; for PostgreSQL, `instead` says what to do there.
    pub(crate) fn file(&self, instead: &str) -> anyhow::Result<&Path> {
        match &self.database {
            Database::File(path) => Ok(path),
            Database::Server(_) => bail!("{} names a PostgreSQL database: {instead}", self.named.display()),
        }
    }

    /// How to reach the PostgreSQL server, if it is one.
    pub(crate) fn server(&self) -> Option<&Server> {
        match &self.database {
            Database::File(_) => None,
            Database::Server(server) => Some(server),
        }
    }

    /// Opens the SQLite file to look at it, and leaves no trace.
    pub(crate) fn look(&self, instead: &str) -> anyhow::Result<Connection> {
        look_at(self.file(instead)?)
    }

    /// Receipts, newest first.
    pub(crate) fn list(&self, filter: &Filter) -> anyhow::Result<Vec<Record>> {
        match &self.database {
            Database::File(path) => Ok(list(&look_at(path)?, filter)?),
            Database::Server(server) => runtime()?.block_on(async {
                let ledger = on_server(server).await?;
                ledger.list(filter).await.map_err(failed)
            }),
        }
    }

    /// Opens the ledger to write, beside the servers that have it open.
    pub(crate) async fn open(&self) -> anyhow::Result<Opened> {
        match &self.database {
            Database::File(path) => {
                drop(look_at(path)?);
                let options = sqlite::Options { create: false, ..sqlite::Options::default() };
                let opened = sqlite::Ledger::open(path, options);
                Ok(Opened::Sqlite(opened.with_context(|| format!("{} cannot be used", path.display()))?))
            }
            Database::Server(server) => Ok(Opened::Postgres(on_server(server).await?)),
        }
    }
}

/// The answer of a ledger that could not do what it was asked.
pub(crate) fn failed(refusal: counterfoil_core::Refusal) -> anyhow::Error {
    anyhow!("the ledger could not go on ({}): {}", refusal.code().as_str(), refusal.message())
}

fn look_at(path: &Path) -> anyhow::Result<Connection> {
    if path.is_dir() {
        bail!("{} is a directory", path.display());
    }
    if !path.exists() {
        bail!("{} is not there: nothing has been served from it yet", path.display());
    }
    let unusable = || format!("{} cannot be used", path.display());
    let connection = look(path).with_context(unusable)?;
    if !connection.table_exists(None::<&str>, "counterfoil_receipts").with_context(unusable)? {
        bail!("{} holds no receipts: nothing has been served from it yet", path.display());
    }
    Ok(connection)
}

async fn on_server(server: &Server) -> anyhow::Result<postgres::Ledger> {
    let (tls, prepare) = (server.tls.clone(), server.prepare);
    let options = postgres::Options { create: false, pool: 1, tls, prepare, ..postgres::Options::default() };
    match postgres::Ledger::open(server.connect.clone(), options).await {
        Err(OpenError::NotMigrated { found: 0, .. }) => {
            bail!("the database holds no receipts: nothing has been served from it yet")
        }
        opened => opened.context("the database cannot be used"),
    }
}

/// A runtime for one command.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?)
}
