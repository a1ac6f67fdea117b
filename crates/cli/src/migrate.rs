//! `counterfoil migrate`: the ledger's tables, made by the role that owns them, for a role that only serves.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use counterfoil::postgres::{connect, migrate};
use counterfoil_server::config::{self, DatabaseUrl};
use counterfoil_server::plan;

use crate::check;
use crate::output::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config
    config: PathBuf,
    /// Connect as this role, which owns the tables, instead of the config's
    #[arg(long, value_name = "ROLE")]
    owner: Option<String>,
    /// The variable of the environment that holds that role's password
    #[arg(long, value_name = "VARIABLE", requires = "owner")]
    owner_password_env: Option<String>,
    /// Grant this role what serving needs, and no more
    #[arg(long, value_name = "ROLE")]
    grant_to: Option<String>,
    /// Let that role also remove what is over, and begin a new epoch when history is missing
    #[arg(long, requires = "grant_to")]
    may_remove: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let path = &arguments.config;
    let (config, report) = config::read(&path.to_string_lossy(), &check::text(path)?);
    let Some(config) = config else { bail!("{} names no database:\n\n{report}", path.display()) };
    let DatabaseUrl::Postgres(address) = &config.database.url.value else {
        bail!("a SQLite database is brought up to date when it is served: there is nothing to do before");
    };
    let mut server = match &arguments.owner {
        // The password in the config is another role's.
        Some(_) => plan::server_without_password(&config, address),
        None => plan::server(&config, address),
    }
    .map_err(|fault| anyhow!("{}", fault.message()))?;
    if let Some(owner) = &arguments.owner {
        server.connect.user(owner);
    }
    if let Some(name) = &arguments.owner_password_env {
        let password = std::env::var(name);
        server.connect.password(password.with_context(|| format!("{name} is not set, or is not text"))?);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let mut client = connect(server.connect, &server.tls).await.context("the database cannot be used")?;
        migrate(&mut client).await.context("the tables cannot be made")?;
        if let Some(role) = &arguments.grant_to {
            client
                .batch_execute(&grants(role, arguments.may_remove))
                .await
                .with_context(|| format!("{role} cannot be granted what it needs"))?;
        }
        anyhow::Ok(())
    })?;
    say("The ledger's tables are up to date.\n")?;
    Ok(ExitCode::SUCCESS)
}

/// What serving needs, and no more: receipts can be neither changed nor removed, unless that is wished.
fn grants(role: &str, may_remove: bool) -> String {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let serving = format!(
        "GRANT SELECT ON counterfoil_meta, counterfoil_epochs TO {role}; \
         GRANT SELECT, INSERT ON counterfoil_receipts, counterfoil_contracts TO {role}"
    );
    if !may_remove {
        return serving;
    }
    format!(
        "{serving}; GRANT UPDATE, DELETE ON counterfoil_receipts TO {role}; GRANT UPDATE ON counterfoil_meta TO {role}; \
         GRANT INSERT ON counterfoil_epochs TO {role}"
    )
}
