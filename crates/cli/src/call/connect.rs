//! From options to a client: who calls, within which bounds, from which journal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use counterfoil_client::client::{Client, Progress};
use counterfoil_client::http::Http;
use counterfoil_client::journal::Journal;
use counterfoil_client::limits;
use counterfoil_client::operation::Arguments;
use counterfoil_client::retry::Policy;
use counterfoil_client::session::{Listed, NoAnswer, Session};
use counterfoil_client::time::{SystemTimer, Time};
use counterfoil_client::token::Token;
use counterfoil_client::words::{Caller, ServerUrl, Tool};
use counterfoil_core::json::Value;
use indicatif::ProgressBar;

/// Who calls.
#[derive(Debug, clap::Args)]
pub(crate) struct Identity {
    /// The environment variable that holds the bearer token
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// The file that holds the bearer token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A name for who calls, for servers that have none [default: where the token comes from]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
}

/// How often and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Tries {
    /// Most tries
    #[arg(long, value_name = "N", default_value_t = limits::TRIES, value_parser = clap::value_parser!(u32).range(1..))]
    tries: u32,
    /// Most time for all of them
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    within: Duration,
}

impl Tries {
    pub(crate) fn policy(&self) -> Policy {
        Policy { tries: self.tries, within: self.within, ..Policy::default() }
    }
}

/// Which journal.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The journal [default: counterfoil/journal.db under $XDG_STATE_HOME, else under ~/.local/state]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

impl Place {
    /// The option as it was given, for a command that goes on with this one.
    fn given(&self) -> String {
        self.journal.as_ref().map(|file| option("journal", &file.display().to_string())).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> anyhow::Result<PathBuf> {
        let given = self.journal.clone();
        let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = || folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        let path = given.or_else(|| Some(state()?.join("counterfoil/journal.db")));
        path.context("there is no home directory to keep the journal in: say where, with --journal")
    }

    /// Opens it for writing: without it nothing is sent.
    pub(crate) fn open(&self) -> anyhow::Result<Arc<Journal>> {
        Ok(Arc::new(Journal::open(&self.path()?).context("nothing was sent")?))
    }
}

impl Identity {
    /// The options as they were given, for a command that goes on with this one.
    fn given(&self) -> String {
        let file = self.token_file.as_ref().map(|file| file.display().to_string());
        let given = [("token-env", &self.token_env), ("token-file", &file), ("identity", &self.identity)];
        given.iter().filter_map(|(name, value)| Some(option(name, value.as_deref()?))).collect()
    }

    pub(crate) fn token(&self) -> anyhow::Result<Option<Token>> {
        Ok(match (&self.token_env, &self.token_file) {
            (Some(name), _) => Some(Token::from_env(name)?),
            (None, Some(path)) => Some(Token::from_file(path)?),
            (None, None) => None,
        })
    }

    pub(crate) fn caller(&self) -> anyhow::Result<Caller> {
        let name = match (&self.identity, &self.token_env, &self.token_file) {
            (Some(name), _, _) => name.clone(),
            (None, Some(name), _) => format!("env:{name}"),
            (None, None, Some(path)) => format!("file:{}", path.display()),
            (None, None, None) => "nobody".to_owned(),
        };
        Ok(Caller::of_identity(&name)?)
    }
}

/// A server that answered, and what is needed to call it.
pub(crate) struct Connection {
    pub(crate) client: Client<Http>,
    /// The options that a command needs which goes on with an operation of this one.
    pub(crate) given: String,
    journal: Arc<Journal>,
    time: Arc<SystemTimer>,
    spinner: ProgressBar,
}

impl Connection {
    /// The outer error is ours, the inner one the server's.
    pub(crate) async fn new(
        server: &ServerUrl,
        identity: &Identity,
        tries: &Tries,
        place: &Place,
        journal: Arc<Journal>,
    ) -> anyhow::Result<Result<Self, NoAnswer>> {
        let (token, caller) = (identity.token()?, identity.caller()?);
        let http = Http::new(server, token.as_ref()).context("nothing was sent")?;
        let time = Arc::new(SystemTimer::default());
        let spinner = spinner();
        let session = match Session::open(http, &*time, &caller).await {
            Ok(session) => session,
            Err(failure) => return Ok(Err(failure)),
        };
        let policy = tries.policy();
        let client = Client::new(session, server.clone(), Arc::clone(&journal), time.clone(), policy);
        let shown = spinner.clone();
        let client = client.watched(move |progress| show(&shown, &progress));
        let given = identity.given() + &place.given();
        Ok(Ok(Self { client, given, journal, time, spinner }))
    }

    pub(crate) async fn tool(&self, name: &Tool) -> Result<Option<Listed>, NoAnswer> {
        self.client.session().tool(&*self.time, name).await
    }

    pub(crate) async fn read(&self, tool: &Listed, given: &Arguments) -> Result<Value, NoAnswer> {
        self.client.read(tool, given).await
    }

    /// Takes the spinner away.
    pub(crate) fn done(&self) {
        self.spinner.finish_and_clear();
    }

    /// One bounded step: what has ended long ago goes. It can wait for another call if it cannot be done now.
    pub(crate) fn compact(&self) {
        let before = self.time.now().minus(limits::KEEP);
        let _later = self.journal.compact(before, limits::COMPACT);
    }
}

/// ` --name value`, quoted for a shell where it must be.
fn option(name: &str, value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        return format!(" --{name} {value}");
    }
    format!(" --{name} '{}'", value.replace('\'', r"'\''"))
}

/// On a terminal; elsewhere it draws nothing.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    spinner.set_message("connecting");
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

fn show(spinner: &ProgressBar, progress: &Progress) {
    spinner.set_message(match progress {
        Progress::Trying { number } => format!("try {number}"),
        Progress::Waiting { pause, why } => format!("{why}; again in {:.1} s", pause.as_secs_f64()),
    });
}

/// `500ms`, `60s`, `15m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| "not a time, as 60s or 5m".to_owned())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a time ends in ms, s, m or h".to_owned()),
    };
    match number.saturating_mul(millis) {
        0 => Err("no time is enough for no try: give more than 0".to_owned()),
        millis => Ok(Duration::from_millis(millis)),
    }
}

pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let cases = [
            ("500ms", Some(Duration::from_millis(500))),
            ("60s", Some(Duration::from_secs(60))),
            ("15m", Some(Duration::from_secs(900))),
            ("1h", Some(Duration::from_secs(3600))),
            ("60", None),
            ("s", None),
            ("1d", None),
            ("-1s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(duration(text).ok(), expected, "{text}");
        }
    }
}
