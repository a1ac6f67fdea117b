//! A server process spoken to over its standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio as Pipe};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::Value;

use crate::server::{Log, PATIENCE, terminate};
use crate::{Send, Told};

/// A client, and the server process it has started. Killed when dropped.
#[derive(Debug)]
pub struct Stdio {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: Log,
}

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"testkit","version":"1"}}}"#
);
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Stdio {
    /// Starts `program` on `config` and shakes hands.
    #[must_use]
    pub fn start(program: &Path, config: &Path) -> Self {
        let mut client = Self::spawn(program, config);
        client.line(INITIALIZE);
        let hello = client.heard().unwrap_or_else(|| panic!("it does not serve: {}", client.log.text()));
        let hello: Value = serde_json::from_str(&hello).unwrap();
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
        client.line(INITIALIZED);
        client
    }

    /// Starts `program` on `config` and says nothing yet.
    #[must_use]
    pub fn spawn(program: &Path, config: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("serve").arg(config).arg("--stdio");
        let mut child =
            command.stdin(Pipe::piped()).stdout(Pipe::piped()).stderr(Pipe::piped()).spawn().unwrap();
        let (log, _) = Log::of(child.stderr.take().unwrap());
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(1024);
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines.map_while(|line| sender.send(line).ok()).for_each(drop);
        });
        let input = child.stdin.take();
        Self { child, input, lines, log }
    }

    /// Calls, and waits for the answer.
    pub fn call(&mut self, send: &Send) -> Told {
        self.line(&send.body());
        self.told()
    }

    /// Sends a line.
    pub fn line(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes());
    }

    /// Sends raw bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().expect("open").write_all(bytes).unwrap();
    }

    /// The next line that it says; `None` when it says no more.
    pub fn heard(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("no answer: {}", self.log.text()),
        }
    }

    /// The next line as an answer.
    pub fn told(&mut self) -> Told {
        let body = self.heard().unwrap_or_else(|| panic!("it has ended: {}", self.log.text()));
        Told { status: 200, head: String::new(), body }
    }

    /// Closes its input.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        terminate(&self.child);
    }

    /// Waits for its end, which must be under way.
    #[must_use]
    pub fn ended(mut self) -> (ExitStatus, String) {
        while self.heard().is_some() {}
        (self.child.wait().unwrap(), self.log.text())
    }

    /// SIGKILL, here and now.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let _status = self.child.wait().unwrap();
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
