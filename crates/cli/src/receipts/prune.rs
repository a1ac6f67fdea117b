//! `counterfoil receipts prune` and `counterfoil forget`: what goes, and how far it has gone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use counterfoil::removal::{Bounds, Drift, Onward, Overdue, Removal, Removed, Terms, pass};
use counterfoil::sqlite::{Whose, overdue};
use counterfoil::{Clock as _, SystemClock};
use indicatif::HumanDuration;

use crate::output::{printable, say};
use crate::place::{Opened, Place, failed, runtime};
use crate::progress::bar;

/// An operator waits for the end: larger steps, shorter rests, and still four fifths of the time for calls.
const STEP: Bounds = Bounds { rows: 256, time: Duration::from_millis(10), rest: Duration::ZERO };

/// The clock is not believed.
const DISTRUSTED: u8 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config, which knows how long receipts of each tool last
    config: PathBuf,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
    /// Believe this machine's clock, though it is far from that of the last removal
    #[arg(long)]
    trust_clock: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let place = Place::sound(&arguments.config)?;
    let terms = place.terms()?;
    if arguments.dry_run && place.server().is_none() {
        let connection = place.look("")?;
        if !connection.table_exists(None::<&str>, "counterfoil_epochs")? {
            bail!("an older version wrote the database: serve it once, or leave out --dry-run");
        }
        say(&told(&overdue(&connection, &terms, SystemClock.now())?, "would go"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let ran = runtime()?.block_on(async {
        match place.open().await? {
            Opened::Sqlite(ledger) => remove(&ledger, &terms, arguments).await.inspect(|_| ledger.close()),
            Opened::Postgres(ledger) => remove(&ledger, &terms, arguments).await,
        }
    });
    match ran? {
        Ok((None, due)) => say(&told(&due, "would go"))?,
        Ok((Some(total), due)) => {
            say(&format!(
                "Removed {} and {}.\n",
                some(total.results, "result"),
                some(total.facts, "receipt")
            ))?;
            say(&undeclared(&due, &terms))?;
        }
        Err(why) => {
            eprintln!("counterfoil: nothing was removed: {why}");
            return Ok(ExitCode::from(DISTRUSTED));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(ledger: &impl Removal, terms: &Arc<Terms>, arguments: &Arguments) -> anyhow::Result<Ran> {
    if arguments.dry_run {
        // On the database's own clock, as near as makes no difference to what is only told.
        let due = ledger.overdue(terms, SystemClock.now()).await.map_err(failed)?;
        return Ok(Ok((None, due)));
    }
    let look = ledger.look_once(arguments.trust_clock).await.map_err(failed)?;
    let Some(as_of) = look.as_of.filter(|_| look.drift == Drift::Steady) else {
        return Ok(distrusted(look.drift));
    };
    let due = ledger.overdue(terms, as_of).await.map_err(failed)?;
    let bar = bar(due.iter().map(|due| due.results + due.facts).sum(), "removing");
    let mut total = Removed::default();
    let removed = pass(ledger, terms, as_of, STEP, |removed| {
        (total.results, total.facts) = (total.results + removed.results, total.facts + removed.facts);
        bar.set_position(total.results + total.facts);
        Onward::Go
    });
    removed.await.map_err(failed)?;
    bar.finish_and_clear();
    Ok(Ok((Some(total), due)))
}

/// What was removed, if anything was to be, and what was overdue; or why not.
type Ran = Result<(Option<Removed>, Vec<Overdue>), String>;

fn distrusted(drift: Drift) -> Ran {
    let human = |by| HumanDuration(by).to_string();
    Err(match drift {
        Drift::Ahead(by) => format!(
            "this machine's clock is {} ahead of the last removal. If it is right, and nothing was removed for so long, \
             say --trust-clock",
            human(by)
        ),
        Drift::Behind(by) => format!(
            "this machine's clock is {} behind that of the last removal. If it is right, say --trust-clock, or run \
             this once more",
            human(by)
        ),
        Drift::First | Drift::Steady | Drift::Elsewhere => "another server is at it".to_owned(),
    })
}

fn told(due: &[Overdue], what: &str) -> String {
    let total = |of: fn(&Overdue) -> u64| due.iter().map(of).sum::<u64>();
    let (results, facts) = (total(|due| due.results), total(|due| due.facts));
    let mut out = format!("{} and {} {what}.\n", some(results, "result"), some(facts, "receipt"));
    for one in due.iter().filter(|one| one.results + one.facts > 0) {
        let since = one.since.map_or_else(String::new, |since| format!(", overdue since {since}"));
        let tool = printable(&one.tool);
        let (results, facts) = (some(one.results, "result"), some(one.facts, "receipt"));
        out.push_str(&format!("  {tool}: {results}, {facts}{since}\n"));
    }
    out
}

fn some(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Tools that nobody declares any more.
fn undeclared(due: &[Overdue], terms: &Terms) -> String {
    let names: Vec<String> =
        due.iter().filter(|one| !terms.declares(&one.tool)).map(|one| printable(&one.tool)).collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        "Not declared in this config, and kept for the longest windows there are: {}.\n",
        names.join(", ")
    )
}

#[derive(Debug, clap::Args)]
pub(crate) struct Forget {
    /// The config, or the SQLite file itself
    place: PathBuf,
    /// The person, as their issuer names them
    #[arg(long)]
    subject: String,
    /// In this workspace alone
    #[arg(long)]
    workspace: Option<String>,
    /// As this issuer names people
    #[arg(long)]
    issuer: Option<String>,
}

pub(crate) fn forget(arguments: &Forget) -> anyhow::Result<ExitCode> {
    let Forget { place, subject, workspace, issuer } = arguments;
    let whose = Whose { subject: subject.clone(), workspace: workspace.clone(), issuer: issuer.clone() };
    let forgotten = forget_all(place, &whose)?;
    say(&format!(
        "Forgot the arguments and results of {forgotten} operations; that they happened is still known.\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn forget_all(place: &Path, whose: &Whose) -> anyhow::Result<u64> {
    let place = Place::of(place)?;
    runtime()?.block_on(async {
        match place.open().await? {
            Opened::Sqlite(ledger) => all_of(&ledger, whose).await.inspect(|_| ledger.close()),
            Opened::Postgres(ledger) => all_of(&ledger, whose).await,
        }
    })
}

async fn all_of(ledger: &impl Removal, whose: &Whose) -> anyhow::Result<u64> {
    let mut total = 0;
    loop {
        match ledger.forget(whose, STEP).await.map_err(failed)? {
            0 => return Ok(total),
            some => total += some,
        }
    }
}
