//! Fresh databases, and what tests do to them behind the server's back.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, Config, NoTls, Row as Line};

use super::cluster::Cluster;
use super::wait;
use crate::Row;
use crate::suite::{Change, Stage};

/// The reference application's schema and rows.
pub const AUTOMATIONS: &str = include_str!("automations.sql");

/// A database on the shared cluster, gone when this is dropped.
#[derive(Debug)]
pub struct Database {
    name: String,
}

impl Database {
    /// With the reference application's schema and rows, and nothing of the ledger's.
    #[must_use]
    pub fn fresh() -> Self {
        static TEMPLATE: OnceLock<()> = OnceLock::new();
        TEMPLATE.get_or_init(|| {
            let template = std::mem::ManuallyDrop::new(Self::named("automations", ""));
            template.execute(AUTOMATIONS);
        });
        Self::with("TEMPLATE automations")
    }

    /// Empty, made with `options` of CREATE DATABASE.
    #[must_use]
    pub fn with(options: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::named(&format!("fresh_{}", COUNT.fetch_add(1, Ordering::Relaxed)), options)
    }

    fn named(name: &str, options: &str) -> Self {
        execute(&Cluster::shared().config("postgres"), &format!("CREATE DATABASE {name} {options}"));
        Self { name: name.to_owned() }
    }

    /// How to reach it, as the superuser.
    #[must_use]
    pub fn config(&self) -> Config {
        Cluster::shared().config(&self.name)
    }

    /// The same as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", Cluster::shared().port(), self.name)
    }

    /// A connection that knows nothing of the ledger, on the current runtime.
    pub async fn connect(&self) -> Client {
        connect(&self.config()).await
    }

    /// Runs `sql` as another program would.
    pub fn execute(&self, sql: &str) {
        execute(&self.config(), sql);
    }

    /// Sets something for sessions of this database that begin after it: from outside, so that it holds for no
    /// session of the setting itself.
    pub fn set(&self, setting: &str) {
        let sql = format!("ALTER DATABASE {} SET {setting}", self.name);
        execute(&Cluster::shared().config("postgres"), &sql);
    }

    /// Whether any session of this database but our own is at something, or in a transaction.
    pub(super) fn busy(&self) -> bool {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND state <> 'idle'",
            self.name
        );
        let asked = async { connect(&Cluster::shared().config("postgres")).await.query_one(&sql, &[]).await };
        wait(asked).unwrap().get::<_, i64>(0) > 0
    }

    /// The rows that `sql` tells.
    #[must_use]
    pub fn query(&self, sql: &str) -> Vec<Line> {
        wait(async { self.connect().await.query(sql, &[]).await.unwrap() })
    }

    /// The one number that `sql` tells.
    #[must_use]
    pub fn count(&self, sql: &str) -> i64 {
        self.query(sql)[0].get(0)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let name = &self.name;
        execute(&Cluster::shared().config("postgres"), &format!("DROP DATABASE {name} WITH (FORCE)"));
    }
}

/// A connection, driven on the current runtime until its client is dropped.
pub(crate) async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    drop(tokio::spawn(connection));
    client
}

pub(super) fn execute(config: &Config, sql: &str) {
    wait(async { connect(config).await.batch_execute(sql).await.unwrap() });
}

/// As [`Stage`] asks: everything through a connection of its own.
impl Stage for Database {
    fn row(&self, id: i64) -> Option<Row> {
        let sql = format!("SELECT workspace_id, interval_minutes, version FROM automations WHERE id = {id}");
        let read = |line: &Line| Row { workspace: line.get(0), interval: line.get(1), version: line.get(2) };
        self.query(&sql).first().map(read)
    }

    fn receipts(&self) -> i64 {
        self.count("SELECT count(*) FROM counterfoil_receipts")
    }

    fn bare_update(&self, id: i64, version: i64, interval: i64) -> usize {
        let sql = format!(
            "UPDATE automations SET interval_minutes = {interval}, version = version + 1 \
              WHERE id = {id} AND version = {version} RETURNING id"
        );
        self.query(&sql).len()
    }

    fn change(&self, change: Change) {
        match change {
            Change::Move { id, workspace } => {
                self.execute(&format!("UPDATE automations SET workspace_id = '{workspace}' WHERE id = {id}"));
            }
            Change::Delete { id } => self.execute(&format!("DELETE FROM automations WHERE id = {id}")),
            Change::BreakReceipts => self.execute(BREAK),
            Change::MendReceipts => self.execute("DROP TRIGGER broken_receipts ON counterfoil_receipts"),
        }
    }
}

const BREAK: &str = "
CREATE OR REPLACE FUNCTION broken_receipts() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'receipts are broken'; END $$;
CREATE TRIGGER broken_receipts BEFORE INSERT ON counterfoil_receipts
FOR EACH ROW EXECUTE FUNCTION broken_receipts()";
