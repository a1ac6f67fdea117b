//! `counterfoil call` and `counterfoil journal` as a shell meets them, against the real server: what is printed, by
//! which exit code, and how often the row changed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Server, Site, Who};
use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_counterfoil");

/// What a relay does with the next call's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    /// The call reaches the server, and its answer is lost.
    Cut,
    /// The call reaches the server, and its answer waits for ever.
    Hold,
}

/// Stands between a client and the server, and tells when it holds an answer.
struct Relay {
    address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    held: Receiver<()>,
}

impl Relay {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::new(Mutex::new(Mode::Pass));
        let (tell, held) = sync_channel(16);
        let shared = Arc::clone(&mode);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (mode, tell) = (Arc::clone(&shared), tell.clone());
                thread::spawn(move || relay(client, server, &mode, &tell));
            }
        });
        Self { address, mode, held }
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

/// One message and its answer at a time, as a client without pipelining sends them.
fn relay(mut client: TcpStream, server: SocketAddr, mode: &Mutex<Mode>, tell: &SyncSender<()>) {
    let mut server = TcpStream::connect(server).unwrap();
    while let Some(request) = message(&mut client) {
        server.write_all(&request).unwrap();
        let Some(answer) = message(&mut server) else { return };
        let call = request.windows(10).any(|window| window == b"tools/call");
        let mode = if call { *mode.lock().unwrap() } else { Mode::Pass };
        match mode {
            Mode::Pass => client.write_all(&answer).unwrap(),
            Mode::Cut => return client.shutdown(Shutdown::Both).unwrap_or_default(),
            Mode::Hold => {
                tell.send(()).unwrap();
                // Until the client is gone.
                let _end = client.read(&mut [0]);
                return;
            }
        }
    }
}

/// An HTTP message whose length is announced.
fn message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        all.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_ascii_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if all.len() >= head.len() + 4 + length.unwrap_or(0) {
            return Some(all);
        }
    }
}

#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// A server on the example, a relay before it, and a shell with a journal.
struct Scene {
    site: Site,
    _server: Server,
    relay: Relay,
    folder: TempDir,
}

impl Scene {
    fn new() -> Self {
        let site = Site::automations();
        let server = Server::start(Path::new(BINARY), &site.main());
        let relay = Relay::before(server.address);
        Self { site, _server: server, relay, folder: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.relay.address)
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("counterfoil/journal.db")
    }

    fn command(&self, who: Who, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).env("TOKEN", who.token()).env("XDG_STATE_HOME", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, who: Who, words: &[&str]) -> Ran {
        Ran::of(self.command(who, words).output().unwrap())
    }

    fn call_words<'a>(url: &'a str, arguments: &'a str, more: &'a [&'a str]) -> Vec<&'a str> {
        let mut words = vec!["call", url, "set_interval", "--token-env", "TOKEN"];
        words.extend(arguments.split_whitespace());
        words.extend(more);
        words
    }

    fn call(&self, arguments: &str, more: &[&str]) -> Ran {
        self.run(Who::Alice, &Self::call_words(&self.url(), arguments, more))
    }

    fn listed(&self) -> Vec<Value> {
        let out = self.run(Who::Alice, &["journal", "list"]).exits(0).out;
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn version(&self) -> i64 {
        self.site.database.row(1).unwrap().version
    }
}

const EDIT: &str = "id=1 expected_version=1 interval_minutes=30";

#[test]
fn an_edit_from_the_shell() {
    let scene = Scene::new();
    let first = scene.call(EDIT, &["--id", "edit-42"]).exits(0);
    let body = first.json();
    assert_eq!((&body["result"]["version"], &body["replayed"]), (&2.into(), &false.into()));
    assert_eq!(first.err, "", "nothing to say, and no spinner in a pipe");
    let again = scene.call(EDIT, &["--id", "edit-42"]).exits(0);
    assert_eq!((&again.json()["result"], &again.json()["replayed"]), (&body["result"], &true.into()));
    assert!(again.err.contains("not what is there now"), "{again:?}");
    let stale = scene.call(EDIT, &[]).exits(1);
    assert_eq!(stale.json()["error"]["code"], "version_conflict");
    assert_eq!(scene.version(), 2);
    let states: Vec<_> = scene.listed().iter().map(|line| line["state"].clone()).collect();
    assert_eq!(states, ["refused", "replied"]);
    let bounded = scene.run(Who::Alice, &["journal", "list", "--limit", "1"]).exits(0);
    assert!(bounded.out.lines().count() == 1 && bounded.err.contains("more"), "{bounded:?}");
    let shown = scene.run(Who::Alice, &["journal", "show", "edit-42"]).exits(0).json();
    assert_eq!(shown["arguments"], r#"{"id":1,"expected_version":1,"interval_minutes":30}"#);
    assert_eq!(shown["history"].as_array().unwrap().len(), 3);
    let read = ["call", &scene.url(), "get_automation", "id=1", "--token-env", "TOKEN"];
    assert_eq!(scene.run(Who::Alice, &read).exits(0).json()["result"]["version"], 2);
    assert_eq!(scene.listed().len(), 2, "a read needs no journal");
}

#[test]
fn wrong_words_send_nothing() {
    let scene = Scene::new();
    let url = scene.url();
    let cases: &[(&[&str], &str)] = &[
        (&["set_interval", "idd=1"], "it has: "),
        (&["set_interval", "id=one"], "must be a number"),
        (&["set_interval", "id"], "key=value"),
        (&["set_interval", "id=1", "id=1"], "twice"),
        (&["set_interval", "request_id=edit-1"], "--id"),
        (&["no_such_tool"], "no tool"),
        (&["set_interval", "--id", "two words"], "request id"),
        (&["set_interval", "--tries", "0"], "0"),
        (&["set_interval", "--within", "60"], "ends in"),
        (&["set_interval", "--within", "0s"], "more than 0"),
    ];
    for (words, part) in cases {
        let words = [&["call", &url, "--token-env", "TOKEN"], *words].concat();
        let ran = scene.run(Who::Alice, &words).exits(2);
        assert!(ran.err.contains(part) && ran.out.is_empty(), "{words:?}: {ran:?}");
    }
    assert_eq!(scene.listed().len(), 0);
    let secret = format!("http://alice:secret@{}/mcp", scene.relay.address);
    let ran = scene.run(Who::Alice, &["call", &secret, "set_interval"]).exits(2);
    assert!(ran.err.contains("holds a user or a password"), "{ran:?}");
}

#[test]
fn who_is_not_let_in_or_finds_nobody_sends_nothing() {
    let scene = Scene::new();
    let url = scene.url();
    let elsewhere = url.replace("/mcp", "/");
    let with_token: &[&str] = &["--token-env", "TOKEN"];
    for (url, token, why) in [(&url, &[] as &[&str], "no token"), (&elsewhere, with_token, "no MCP there")] {
        let words = [&["call", url, "set_interval", "id=1"], token].concat();
        let ran = scene.run(Who::Alice, &words).exits(5);
        assert!(ran.err.contains("nothing was sent"), "{why}: {ran:?}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = format!("http://{closed}/mcp");
    let ran = scene.run(Who::Alice, &["call", &nowhere, "set_interval", "id=1"]).exits(5);
    assert!(ran.err.contains("cannot be reached"), "{ran:?}");
    let journal = scene.folder.path().join("file");
    std::fs::write(&journal, "not a journal").unwrap();
    let ran = scene.call(EDIT, &["--journal", journal.to_str().unwrap()]).exits(3);
    assert!(ran.err.contains("nothing was sent") && ran.err.contains("not a journal"), "{ran:?}");
    let ran = scene.call(EDIT, &["--journal", journal.join("below").to_str().unwrap()]).exits(3);
    assert!(ran.err.contains("nothing was sent"), "{ran:?}");
    assert_eq!((scene.version(), scene.listed().len()), (1, 0));
}

/// K3: bounded, then unknown, with the ways out; and each of them works.
#[test]
fn an_unknown_outcome_has_a_way_out() {
    let scene = Scene::new();
    scene.relay.set(Mode::Cut);
    let lost = scene.call(EDIT, &["--id", "edit-42", "--tries", "2"]).exits(4);
    assert_eq!(lost.json()["error"]["code"], "outcome_unknown");
    assert_eq!((&lost.json()["request_id"], &lost.json()["unanswered"]), (&"edit-42".into(), &2.into()));
    for way in ["journal resume edit-42 --token-env TOKEN", "journal void edit-42 --token-env TOKEN"] {
        assert!(lost.err.contains(way), "{lost:?}");
    }
    let kept = scene.run(Who::Alice, &["journal", "forget", "edit-42"]).exits(4);
    assert!(kept.err.contains("has not ended"), "{kept:?}");

    scene.relay.set(Mode::Pass);
    let resume = ["journal", "resume", "edit-42", "--token-env", "TOKEN"];
    let other = scene.run(Who::Bob, &resume).exits(4);
    assert!(other.err.contains("another caller"), "{other:?}");
    assert_eq!(scene.listed()[0]["tries"], 2, "nothing was sent as another caller");
    let found = scene.run(Who::Alice, &resume).exits(0);
    assert_eq!((&found.json()["replayed"], scene.version()), (&true.into(), 2));
    scene.run(Who::Alice, &["journal", "void", "edit-42", "--token-env", "TOKEN"]).exits(1);
    scene.run(Who::Alice, &["journal", "forget", "edit-42"]).exits(0);
    scene.run(Who::Alice, &["journal", "show", "edit-42"]).exits(1);
}

#[test]
fn a_void_makes_sure() {
    let scene = Scene::new();
    scene.relay.set(Mode::Cut);
    scene.call("id=1 expected_version=7 interval_minutes=30", &["--id", "edit-7", "--tries", "1"]).exits(4);
    scene.relay.set(Mode::Pass);
    let void = ["journal", "void", "edit-7", "--token-env", "TOKEN"];
    let voided = scene.run(Who::Alice, &void).exits(0);
    assert_eq!(voided.json()["state"], "voided");
    scene.run(Who::Alice, &["journal", "resume", "edit-7", "--token-env", "TOKEN"]).exits(1);
    assert_eq!(scene.version(), 1);
}

/// K2 with the real command and the real server: killed while the answer is on its way, then resumed.
#[test]
fn a_killed_call_is_resumed_once() {
    let scene = Scene::new();
    scene.relay.set(Mode::Hold);
    let url = scene.url();
    let mut child = scene.command(Who::Alice, &Scene::call_words(&url, EDIT, &[])).spawn().unwrap();
    scene.relay.held.recv().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    scene.relay.set(Mode::Pass);
    assert_eq!((scene.version(), scene.listed()[0]["state"].as_str()), (2, Some("sent")));
    let found = scene.run(Who::Alice, &["journal", "resume", "--all", "--token-env", "TOKEN"]).exits(0);
    assert_eq!((&found.json()["replayed"], scene.version()), (&true.into(), 2));
    assert!(scene.journal().exists());
}

#[test]
fn a_terminal_sees_which_try_it_is_and_a_table() {
    let scene = Scene::new();
    let on_a_terminal = |words: &[&str]| {
        let line: Vec<String> = [&[BINARY], words].concat().iter().map(|word| format!("'{word}'")).collect();
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
        script.env("TOKEN", Who::Alice.token()).env("XDG_STATE_HOME", scene.folder.path());
        Ran::of(script.env("TERM", "xterm-256color").stdin(Stdio::null()).output().unwrap())
    };
    scene.relay.set(Mode::Cut);
    let url = scene.url();
    let lost = on_a_terminal(&Scene::call_words(&url, EDIT, &["--tries", "2"])).exits(4);
    assert!(lost.out.contains("try 1") && lost.out.contains("try 2"), "{lost:?}");
    let table = on_a_terminal(&["journal", "list", "--open"]).exits(0);
    assert!(table.out.contains("unknown, 2 unanswered"), "{table:?}");
}
