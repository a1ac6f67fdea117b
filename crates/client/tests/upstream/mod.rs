//! An upstream as a process, which writes down all that it hears and does, and dies when it is told to; and a caller
//! of a proxy. The upstream is the test program itself, run as a child.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support"
)]

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil_client::journal::{Journal, Watch};
use counterfoil_client::proxy::{Proxy, Told, Upstream};
use counterfoil_client::retry::Policy;
use counterfoil_client::time::SystemTimer;
use counterfoil_client::words::{Caller, ServerUrl};
use counterfoil_core::json::{self, Bounds, Value};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::task::JoinHandle;

/// Where the child finds its folder.
pub const FOLDER: &str = "COUNTERFOIL_TEST_UPSTREAM";

/// What the upstream lists: a tool that takes request ids, one that does not, one that reads; spelled with care.
pub const TOOLS: &str = r#"{"name":"set","inputSchema":{"type":"object","properties":{"request_id":{"type":"string"},"n":{"maximum":1e2}},"required":["request_id"]},"_meta":{"dev.counterfoil/request-ids":true}},{"name":"write","inputSchema":{"type":"object","properties":{"request_id":{"type":"integer"}}}},{"name":"pay","inputSchema":{"type":"object"}},{"name":"read","inputSchema":{},"annotations":{"readOnlyHint":true}},{"name":"ask"},{"name":"slow"}"#;

pub fn value(text: &str) -> Value {
    json::parse(text.as_bytes(), Bounds::default()).unwrap_or_else(|why| panic!("{why}: {text}"))
}

/// The member at a path of names, as JSON text.
pub fn at(text: &str, path: &str) -> String {
    let whole = value(text);
    let found = path.split('.').try_fold(&whole, |value, name| match (value, name.parse::<usize>()) {
        (Value::Array(items), Ok(index)) => items.get(index),
        _ => value.get(name),
    });
    found.map(json::text).unwrap_or_default()
}

/// What an upstream keeps between its lives, and what its test sees of it.
#[derive(Clone)]
pub struct Folder(pub PathBuf);

impl Folder {
    fn append(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join(file)).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// All that it was sent, line by line.
    pub fn heard(&self) -> Vec<String> {
        self.lines("heard")
    }

    pub fn effects(&self) -> usize {
        self.lines("effects").len()
    }

    /// What becomes of the next calls: `die before`, `die after`, `rubbish`, `flood`, `conflict`, `huge`, `hold`.
    pub fn fates(&self, fates: &[&str]) {
        fs::write(self.0.join("fates"), fates.iter().map(|fate| format!("{fate}\n")).collect::<String>())
            .unwrap();
    }

    fn fate(&self) -> String {
        let mut fates = self.lines("fates");
        if fates.is_empty() {
            return String::new();
        }
        let fate = fates.remove(0);
        self.fates(&fates.iter().map(|fate| &**fate).collect::<Vec<_>>());
        fate
    }

    /// The command that starts the upstream.
    pub fn command(&self) -> Vec<OsString> {
        let folder = format!("{FOLDER}={}", self.0.display());
        let exe = std::env::current_exe().unwrap().into_os_string();
        let words = ["the_upstream", "--exact", "--nocapture", "--test-threads=1"];
        ["env".into(), folder.into(), exe].into_iter().chain(words.map(OsString::from)).collect()
    }
}

/// What the child does. Outside of a child it is a test that passes.
pub fn serve() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Folder(folder.into());
    // What the test harness has written so far ends here.
    say("");
    folder.append("lives", "born");
    folder.append("pids", &std::process::id().to_string());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        folder.append("heard", &line);
        answer(&folder, &line);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn answer(folder: &Folder, line: &str) {
    let (id, method) = (at(line, "id"), at(line, "method"));
    let result = |result: &str| say(&format!(r#"{{"jsonrpc":"2.0", "id": {id}, "result":{result}}}"#));
    match &*method {
        // The answer to what was asked back.
        "" => {
            let asked = fs::read_to_string(folder.0.join("asked")).unwrap();
            say(&format!(r#"{{"id":{asked},"result":{{"content":[],"told":{}}}}}"#, at(line, "result")));
        }
        "\"initialize\"" => {
            result(
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"_meta":{"dev.counterfoil/caller":"alice"}}"#,
            );
        }
        "\"tools/list\"" => result(&format!(r#"{{"tools":[{TOOLS}],"x":1.0}}"#)),
        "\"tools/call\"" => call(folder, line, &id),
        "\"change\"" => {
            say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
            result("{}");
        }
        _ if id.is_empty() => {}
        _ => result(&format!(r#"{{"echo":{line},"big":12345678901234567890123.50}}"#)),
    }
}

fn call(folder: &Folder, line: &str, id: &str) {
    let params = at(line, "params");
    let name = at(line, "params.name");
    match &*folder.fate() {
        "die before" => std::process::abort(),
        "hold" => return,
        "rubbish" => (0..3).for_each(|_| say("no message")),
        "flood" => flood(folder),
        "conflict" => return say(&conflict(id)),
        "huge" => return say(&"x".repeat(50 << 20)),
        fate => {
            let text = done(folder, &params, &name, line, id);
            if fate == "die after" {
                std::process::abort();
            }
            return text.iter().for_each(|text| say(text));
        }
    }
    done(folder, &params, &name, line, id).iter().for_each(|text| say(text));
}

/// Notifications of a flood.
pub const FLOOD: usize = 20_000;

/// More notifications than anybody wants, and every now and then how many it has been so far.
fn flood(folder: &Folder) {
    let text = "x".repeat(1000);
    for number in 0..FLOOD {
        if number % 100 == 0 {
            folder.append("flood", &number.to_string());
        }
        say(&format!(r#"{{"method":"notifications/message","params":{{"n":{number},"data":"{text}"}}}}"#));
    }
}

/// K5: what a version condition makes of the second of two.
fn conflict(id: &str) -> String {
    let body = counterfoil_core::Refusal::version_conflict(Some(r#"{"version":2}"#.into())).body();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"Reload it."}}],"structuredContent":{body},"isError":true}}}}"#
    )
}

fn done(folder: &Folder, params: &str, name: &str, line: &str, id: &str) -> Option<String> {
    let result = |body: &str| Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{body}}}"#));
    match name {
        "\"set\"" => result(&set(folder, params)),
        "\"write\"" | "\"pay\"" => {
            folder.append("effects", params);
            result(&format!(
                r#"{{"content":[{{"type":"text","text":"effect {}"}}],"exact":1.50}}"#,
                folder.effects()
            ))
        }
        "\"ask\"" => {
            fs::write(folder.0.join("asked"), id).unwrap();
            Some(
                r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"really?"}}"#
                    .into(),
            )
        }
        "\"slow\"" => {
            let token = at(line, "params._meta.progressToken");
            Some(format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":0.10}}}}"#
            ))
        }
        _ => result(&format!(r#"{{"content":[],"read":{params}}}"#)),
    }
}

/// A receipt a request id, as a Counterfoil server keeps them.
fn set(folder: &Folder, params: &str) -> String {
    let id = request_id(params);
    let id = id.trim_matches('"');
    let file = folder.0.join(format!("receipt-{id}"));
    let replayed = file.exists();
    if !replayed {
        folder.append("effects", id);
        fs::write(&file, format!("{{\"n\":{}.0}}", folder.effects())).unwrap();
    }
    let row = fs::read_to_string(&file).unwrap();
    let body = format!(
        r#"{{"result":{row},"request_id":"{id}","replayed":{replayed},"committed_at":"2026-12-01T00:00:00.000000Z","epoch":"one"}}"#
    );
    format!(r#"{{"content":[{{"type":"text","text":"done"}}],"structuredContent":{body},"isError":false}}"#)
}

/// The name holds a dot.
fn request_id(params: &str) -> String {
    let whole = value(params);
    let meta = whole.get("_meta").and_then(|meta| meta.get("dev.counterfoil/request-id"));
    meta.map(json::text).expect("a call without a request id")
}

/// A proxy with its caller.
pub struct Scene {
    pub folder: Folder,
    pub journal: Arc<Journal>,
    pub agent: Agent,
    pub proxy: Arc<Proxy>,
}

/// A caller.
pub struct Agent {
    to: tokio::io::WriteHalf<DuplexStream>,
    from: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    pub served: JoinHandle<std::io::Result<()>>,
    /// What came while an answer was waited for.
    pub noted: Vec<String>,
    next: u32,
}

pub const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}"#;

pub fn proxy(folder: &Path, upstream: Upstream) -> (Arc<Proxy>, Arc<Journal>) {
    watched(folder, upstream, Arc::new(|_, _| ()))
}

pub fn watched(folder: &Path, upstream: Upstream, watch: Watch) -> (Arc<Proxy>, Arc<Journal>) {
    let journal = Arc::new(Journal::open(&folder.join("journal.db")).unwrap().watched(watch));
    let told = Told::from([("pay".into(), Some("key".into()))]);
    let policy = Policy { first_pause: std::time::Duration::from_millis(10), ..Policy::default() };
    let with = (Arc::clone(&journal), Arc::new(SystemTimer::default()) as Arc<_>, policy);
    let identity = Caller::of_identity("test").unwrap();
    (Proxy::new(upstream, identity, told, with).unwrap(), journal)
}

impl Scene {
    pub async fn new(folder: &Path) -> Self {
        let mut scene = Self::silent(folder);
        scene.agent.greet().await;
        scene
    }

    pub fn silent(folder: &Path) -> Self {
        let here = Folder(folder.to_owned());
        let command = here.command();
        let server = ServerUrl::of_command(&command, folder).unwrap();
        let (proxy, journal) = proxy(folder, Upstream::Command(command, server));
        Self { folder: here, journal, agent: Agent::of(&proxy), proxy }
    }
}

impl Agent {
    pub fn of(proxy: &Arc<Proxy>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(theirs);
        let proxy = Arc::clone(proxy);
        let served =
            tokio::spawn(async move { proxy.serve_stdio(input, output, std::future::pending()).await });
        let (from, to) = tokio::io::split(ours);
        Self { to, from: BufReader::new(from).lines(), served, noted: Vec::new(), next: 100 }
    }

    pub async fn greet(&mut self) {
        let answer = self.ask(HELLO).await;
        assert!(answer.contains("2025-11-25"), "{answer}");
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    }

    pub async fn say(&mut self, line: &str) {
        self.to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub async fn hear(&mut self) -> String {
        self.from.next_line().await.unwrap().expect("the proxy has ended")
    }

    /// The answer to `id`, as it is spelled.
    pub async fn wait(&mut self, id: &str) -> String {
        loop {
            let line = self.hear().await;
            if at(&line, "id") == id && at(&line, "method").is_empty() {
                return line;
            }
            self.noted.push(line);
        }
    }

    pub async fn ask(&mut self, line: &str) -> String {
        self.say(line).await;
        self.wait(&at(line, "id")).await
    }

    /// Calls a tool; `more` are further members of params.
    pub async fn start(&mut self, tool: &str, arguments: &str, more: &str) -> String {
        self.next += 1;
        let id = self.next.to_string();
        let comma = if more.is_empty() { "" } else { "," };
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{comma}{more}}}"#);
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)).await;
        id
    }

    pub async fn call(&mut self, tool: &str, arguments: &str, more: &str) -> String {
        let id = self.start(tool, arguments, more).await;
        self.wait(&id).await
    }

    /// Leaves, and waits until the proxy has noticed.
    pub async fn leave(self) {
        let Self { to, from, served, .. } = self;
        drop((to, from));
        served.await.unwrap().unwrap();
    }
}
