//! The real binary as a real process: started, asked to stop, killed, started again.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Http, Who};

/// How long anything may take before the test has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server process that listens. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    log: Log,
}

/// A server process that ended without listening.
#[derive(Debug)]
pub struct Refused {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it said on standard error.
    pub log: String,
}

impl Server {
    /// Starts `program` on `config` and waits until it listens.
    #[must_use]
    pub fn start(program: &Path, config: &Path) -> Self {
        Self::try_start(program, config).unwrap_or_else(|refused| panic!("it does not serve: {refused:?}"))
    }

    /// Starts `program` on `config` and waits until it listens, or has ended.
    ///
    /// # Errors
    /// It ended.
    pub fn try_start(program: &Path, config: &Path) -> Result<Self, Refused> {
        Self::spawn(Command::new(program).args(arguments(config)))
    }

    /// As [`Server::start`], by way of a shell that first does `setup`: limits of the process are its to set.
    #[must_use]
    pub fn start_after(setup: &str, program: &Path, config: &Path) -> Self {
        let script = format!("{setup}\nexec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(program).args(arguments(config));
        Self::spawn(&mut command).unwrap_or_else(|refused| panic!("it does not serve: {refused:?}"))
    }

    fn spawn(command: &mut Command) -> Result<Self, Refused> {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (log, listening) = Log::of(child.stderr.take().unwrap());
        match listening.recv_timeout(PATIENCE) {
            Ok(address) => Ok(Self { child, address, log }),
            Err(RecvTimeoutError::Disconnected) => {
                let code = child.wait().unwrap().code();
                Err(Refused { code, log: log.text() })
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("it neither listens nor ends: {}", log.text());
            }
        }
    }

    /// A connection for `who`.
    #[must_use]
    pub fn connect(&self, who: Who) -> Http {
        Http::connect(self.address, &who.token())
    }

    /// What it has said on standard error.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until it has said `text` on standard error: what it says may arrive after what it answers.
    pub fn says(&self, text: &str) {
        let begun = std::time::Instant::now();
        while !self.log.text().contains(text) {
            assert!(begun.elapsed() < PATIENCE, "it does not say {text}: {}", self.log.text());
            std::thread::yield_now();
        }
    }

    /// SIGKILL, here and now.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let _status = self.child.wait().unwrap();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let kill =
            Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        let kill = Command::new("sh").args(["-c", "kill -HUP \"$0\"", &self.child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for its end, which must be under way.
    #[must_use]
    pub fn ended(mut self) -> ExitStatus {
        self.log.closed();
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log.text());
        }
    }
}

/// Asks a process to stop: SIGTERM, by way of the shell, which every Unix has.
pub(crate) fn terminate(child: &Child) {
    let kill = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
}

fn arguments(config: &Path) -> [&OsStr; 4] {
    ["serve".as_ref(), config.as_ref(), "--listen".as_ref(), "127.0.0.1:0".as_ref()]
}

/// Standard error of a process, read as it comes.
#[derive(Debug)]
pub(crate) struct Log {
    text: Arc<Mutex<String>>,
    closed: Mutex<Receiver<()>>,
}

impl Log {
    /// Reads `stderr` on a thread; the receiver gets the address that a server says it listens on.
    pub(crate) fn of(stderr: ChildStderr) -> (Self, Receiver<SocketAddr>) {
        let text = Arc::new(Mutex::new(String::new()));
        let (listening, receiver) = sync_channel(1);
        let (end, closed) = sync_channel(1);
        let shared = Arc::clone(&text);
        std::thread::spawn(move || {
            read(stderr, &shared, listening);
            drop(end);
        });
        (Self { text, closed: Mutex::new(closed) }, receiver)
    }

    pub(crate) fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn closed(&self) {
        let open = self.closed.lock().unwrap().recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        assert!(!open, "it does not end: {}", self.text());
    }
}

fn read(stderr: ChildStderr, text: &Mutex<String>, listening: SyncSender<SocketAddr>) {
    let mut listening = Some(listening);
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let said = line.strip_prefix("listening on ").and_then(|rest| rest.strip_suffix("/mcp"));
        let address = said.and_then(|url| url.split_once("://")).map(|(_scheme, address)| address);
        let mut text = text.lock().unwrap();
        text.push_str(&line);
        text.push('\n');
        drop(text);
        if let Some(address) = address
            && let Some(listening) = listening.take()
        {
            let _sent = listening.send(address.parse().unwrap());
        }
    }
}
