//! What a command is pointed at: a database, and the config that knows its tools.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use counterfoil::OpenError;
use counterfoil::removal::Terms;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Ledger, Options, look};
use counterfoil_core::{Revision, Windows};
use counterfoil_server::config::{self, Config, DatabaseUrl, Kind};

use crate::check;

/// A config, or the SQLite file itself.
pub(crate) struct Place {
    named: PathBuf,
    /// The database.
    pub(crate) database: PathBuf,
    config: Option<Config>,
}

impl Place {
    /// A config names its database, and knows the oldest name of each tool; anything else is the database. Receipts
    /// are wanted when something is wrong: a config with mistakes is read as far as it goes.
    pub(crate) fn of(place: &Path) -> anyhow::Result<Self> {
        let named = place.to_owned();
        if place.extension().is_none_or(|extension| extension != "toml") {
            return Ok(Self { database: named.clone(), named, config: None });
        }
        let (config, report) = config::read(&place.to_string_lossy(), &check::text(place)?);
        let Some(config) = config else { bail!("{} names no database:\n\n{report}", place.display()) };
        let DatabaseUrl::Sqlite(path) = &config.database.url.value;
        Ok(Self { named, database: config.resolve(path), config: Some(config) })
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

    /// Has it a config?
    pub(crate) fn configured(&self) -> bool {
        self.config.is_some()
    }

    fn there(&self) -> anyhow::Result<()> {
        let path = self.database.display();
        if self.database.is_dir() {
            bail!("{path} is a directory");
        }
        if !self.database.exists() {
            bail!("{path} is not there: nothing has been served from it yet");
        }
        Ok(())
    }

    /// Opens the database to look at it, and leaves no trace.
    pub(crate) fn look(&self) -> anyhow::Result<Connection> {
        self.there()?;
        let unusable = || format!("{} cannot be used", self.database.display());
        let connection = look(&self.database).with_context(unusable)?;
        if !connection.table_exists(None::<&str>, "counterfoil_receipts").with_context(unusable)? {
            bail!("{} holds no receipts: nothing has been served from it yet", self.database.display());
        }
        Ok(connection)
    }

    /// As [`Place::look`], where the tables must be as this program makes them.
    pub(crate) fn look_now(&self) -> anyhow::Result<Connection> {
        let connection = self.look()?;
        if !connection.table_exists(None::<&str>, "counterfoil_epochs")? {
            bail!(
                "{} was written by an older version: serve it once, or run the command without --dry-run",
                self.database.display()
            );
        }
        Ok(connection)
    }

    /// Opens the ledger to write, beside the servers that have it open.
    pub(crate) fn open(&self) -> anyhow::Result<Ledger> {
        drop(self.look()?);
        let opened = Ledger::open(&self.database, Options { create: false, ..Options::default() });
        opened.map_err(|error| self.unusable(error))
    }

    fn unusable(&self, error: OpenError) -> anyhow::Error {
        anyhow::Error::new(error).context(format!("{} cannot be used", self.database.display()))
    }
}

/// A runtime for one command.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}
