//! `counterfoil backup` and `counterfoil restore`: whole copies, read through, and a new epoch for what was put back.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use counterfoil::postgres::connect;
use counterfoil::sqlite::{CopyError, Stage, Verified, begin_epoch, restore, verify};
use counterfoil::{Clock as _, SystemClock, postgres, sqlite};
use counterfoil_server::plan::Server;
use indicatif::ProgressBar;

use crate::output::say;
use crate::place::{Place, runtime};
use crate::progress::bar;

#[derive(Debug, clap::Args)]
pub(crate) struct Backup {
    /// The config, or the SQLite file itself
    place: PathBuf,
    /// Where the copy goes; a file that is there is not overwritten
    #[arg(long, value_name = "PATH")]
    to: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Restore {
    /// The config, or the SQLite file itself
    place: PathBuf,
    /// The backup; without it, the database is in its place already and only a new epoch begins
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    /// Replace the database that is there, and keep it under another name
    #[arg(long, requires = "from")]
    replace: bool,
}

/// Its own tools do it better than we could.
const BACKUP_ON_POSTGRES: &str = "take a base backup (`pg_basebackup`) with its log archived, or one `pg_dump` of the \
     whole database: rows and receipts of one instant. Both hold the ledger, which is in the same database";
const RESTORE_ON_POSTGRES: &str = "restore it with its own tools, and then run `counterfoil restore` without --from, \
     which begins a new epoch";

fn begin_on_server(server: &Server) -> anyhow::Result<ExitCode> {
    let epoch = runtime()?.block_on(async {
        let client = connect(server.connect.clone(), &server.tls).await?;
        postgres::begin_epoch(&client).await
    });
    let epoch = epoch.context("no epoch was begun")?;
    say(&format!("Epoch {} has begun. Servers name it from their next connection on.\n", epoch.as_str()))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn backup(arguments: &Backup) -> anyhow::Result<ExitCode> {
    let place = Place::of(&arguments.place)?;
    drop(place.look(BACKUP_ON_POSTGRES)?);
    let bar = bar(0, "copying");
    let copied =
        sqlite::backup(place.file(BACKUP_ON_POSTGRES)?, &arguments.to, &mut |stage| show(&bar, stage));
    bar.finish_and_clear();
    let held = copied.context("no backup was made")?;
    say(&format!("{} is whole: {}.\n", arguments.to.display(), inside(&held)))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn put_back(arguments: &Restore) -> anyhow::Result<ExitCode> {
    let place = Place::of(&arguments.place)?;
    if let Some(server) = place.server().filter(|_| arguments.from.is_none()) {
        return begin_on_server(server);
    }
    let (to, now) = (place.file(RESTORE_ON_POSTGRES)?, SystemClock.now());
    let Some(from) = &arguments.from else {
        let held = verify(to).context("no epoch was begun")?;
        let epoch = begin_epoch(to, now).context("no epoch was begun")?;
        say(&format!(
            "{}: {}.\nEpoch {} has begun. Restart its servers.\n",
            to.display(),
            inside(&held),
            epoch.as_str()
        ))?;
        return Ok(ExitCode::SUCCESS);
    };
    let bar = bar(0, "copying");
    let restored = restore(from, to, arguments.replace, now, &mut |stage| show(&bar, stage));
    bar.finish_and_clear();
    let restored = match restored {
        Err(CopyError::Exists(there)) if there == to => {
            bail!(
                "{} is there already: say --replace to replace it (it is kept under another name)",
                to.display()
            )
        }
        other => other.context("nothing was restored")?,
    };
    say(&format!(
        "{} is restored: {}.\nEpoch {} has begun: clients will ask which of their operations are gone.\n",
        to.display(),
        inside(&restored.backup),
        restored.epoch.as_str()
    ))?;
    if let Some(kept) = restored.kept {
        say(&format!("What was there is kept as {}.\n", kept.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn inside(held: &Verified) -> String {
    let newest = held.newest.map_or_else(String::new, |newest| format!(", the newest of {newest}"));
    format!("{} receipts{newest}", held.receipts)
}

fn show(bar: &ProgressBar, stage: Stage) {
    match stage {
        Stage::Copying(done, total) => {
            bar.set_length(u64::from(total.unsigned_abs()));
            bar.set_position(u64::from(done.unsigned_abs()));
        }
        Stage::Copied | Stage::Verified | Stage::Begun | Stage::Synced | Stage::Kept | Stage::Placed => {}
    }
}
