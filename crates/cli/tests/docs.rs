//! What the documents show is what the programs print: every example of README and docs is run here.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

#[path = "../src/demo/client.rs"]
#[allow(dead_code, reason = "the documents need less of it than the demo does")]
mod client;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use counterfoil::rusqlite::Connection;
use counterfoil_core::Windows;
use counterfoil_server::config::{self, Limits, bounds};
use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use client::Client;

const README: &str = include_str!("../../../README.md");
const WIRE: &str = include_str!("../../../docs/wire.md");
const CONFIG: &str = include_str!("../../../docs/config.md");
const CLIENTS: &str = include_str!("../../../docs/clients.md");

/// The fenced blocks of a page, as info string and text, in their order.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fences = page.split("\n```").skip(1).step_by(2);
    fences.map(|fence| fence.split_once('\n').unwrap()).collect()
}

fn blocks_of<'p>(page: &'p str, info: &str) -> Vec<&'p str> {
    let found: Vec<&str> =
        blocks(page).into_iter().filter(|(other, _)| *other == info).map(|(_, text)| text).collect();
    assert!(!found.is_empty(), "no block is marked `{info}`");
    found
}

/// Times and epochs differ from run to run, and nothing else does.
fn normalised(value: &Value) -> String {
    settled(&serde_json::to_string_pretty(value).unwrap())
}

fn settled(text: &str) -> String {
    let time = Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z").unwrap();
    let epoch = Regex::new(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    epoch.replace_all(&time.replace_all(text, "TIME"), "EPOCH").into_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|problem| panic!("{problem}: {text}"))
}

fn counterfoil(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.current_dir(folder);
    command
}

fn printed(command: &mut Command) -> String {
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

/// A served config: the process, and where it listens.
struct Served(Child, SocketAddr);

impl Served {
    fn of(folder: &Path, config: &str) -> Self {
        let serve = ["serve", config, "--listen", "127.0.0.1:0"];
        let mut process = counterfoil(folder).args(serve).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        let line =
            lines.find_map(|line| line.strip_prefix("listening on http://").map(str::to_owned)).unwrap();
        let address = line.split('/').next().unwrap().parse().unwrap();
        Self(process, address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A server of the example, in a folder of its own.
struct Server {
    served: Served,
    alice: Client,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/automations");
        for file in ["counterfoil.toml", "schema.sql"] {
            std::fs::copy(example.join(file), folder.path().join(file)).unwrap();
        }
        let served = Served::of(folder.path(), "counterfoil.toml");
        let alice = Client::alice(served.1);
        Self { served, alice, folder }
    }

    /// Sends the params of a `tools/call`.
    fn check(&self, call: &Value, answer: &str) {
        let got = self.alice.call(call["name"].as_str().unwrap(), &call["arguments"]).unwrap().unwrap();
        assert_eq!(normalised(&got.value), normalised(&json(answer)), "{call}");
    }
}

/// An agent's configuration starts a proxy, which leaves when its caller does. Nobody is asked before the caller asks.
#[test]
fn what_agents_are_configured_with_starts() {
    let folder = tempfile::tempdir().unwrap();
    for block in blocks_of(CLIENTS, "json client") {
        let whole = json(block);
        let servers = whole["mcpServers"].as_object().unwrap();
        for (name, server) in servers {
            assert_eq!(server["command"], "counterfoil", "{name}");
            let words = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
            let mut command = counterfoil(folder.path());
            command.args(words).stdin(Stdio::null()).env("XDG_STATE_HOME", folder.path());
            for (variable, value) in server["env"].as_object().into_iter().flatten() {
                command.env(variable, if value == "…" { "token" } else { value.as_str().unwrap() });
            }
            let ran = command.output().unwrap();
            assert_eq!(ran.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
            assert!(ran.stdout.is_empty(), "{name}");
        }
    }
}

#[test]
fn the_wire_is_as_its_page_says() {
    let server = Server::start();
    let (calls, answers) = (blocks_of(WIRE, "json call"), blocks_of(WIRE, "json answer"));
    assert_eq!(calls.len(), answers.len());
    for (call, answer) in calls.into_iter().zip(answers) {
        server.check(&json(call), answer);
    }
}

/// The body of the README's curl of that number, from 1.
fn body(number: usize) -> &'static str {
    README.split("-d '").nth(number).unwrap().split('\'').next().unwrap()
}

#[test]
fn the_readme_is_what_happens() {
    let server = Server::start();
    assert!(README.contains(&format!("curl -s http://{}/mcp", bounds::DEFAULT_LISTEN)));
    for answer in blocks_of(README, "json answer") {
        server.check(&json(body(1))["params"], answer);
        assert_eq!(normalised(&json(answer)), settled(answer), "not as jq writes it");
    }
    let url = format!("http://{}/mcp", server.served.1);
    let call = README.lines().find_map(|line| line.strip_prefix("counterfoil call ")).unwrap();
    let call = call.replace(&format!("http://{}/mcp", bounds::DEFAULT_LISTEN), &url);
    let shell = |command: &str, line: &str| {
        let mut run = counterfoil(server.folder.path());
        run.env("ALICE", "alice-local-token").env("XDG_STATE_HOME", server.folder.path());
        let output =
            run.args(command.split(' ')).args(line.split(' ').filter(|word| !word.is_empty())).output();
        assert!(output.as_ref().unwrap().status.success(), "{output:?}");
        json(std::str::from_utf8(&output.unwrap().stdout).unwrap())
    };
    let done = shell("call", &call);
    assert_eq!(done["result"]["interval_minutes"], 30, "{done}");
    assert_eq!(shell("journal list", "")["request_id"], done["request_id"]);
    let show = ["receipts", "show", "counterfoil.toml", "edit-42"];
    let shown = printed(counterfoil(server.folder.path()).args(show));
    assert_eq!(normalised(&json(&shown)), normalised(&json(blocks_of(README, "json receipt")[0])));
    for client in blocks_of(README, "json client") {
        assert!(json(client)["mcpServers"]["automations"].is_object());
    }
    for excerpt in blocks_of(README, "text demo") {
        assert!(include_str!("demo.txt").contains(excerpt), "{excerpt}");
    }
}

/// Sends what curl sends, and gives the whole answer back.
fn curl(address: SocketAddr, token: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Accept: */*\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ones_own_table_is_served_as_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let (database, config) = (folder.path().join("shop.db"), folder.path().join("shop.toml"));
    let connection = Connection::open(database).unwrap();
    connection.execute_batch(blocks_of(README, "sql table")[0]).unwrap();
    let token = README.lines().find_map(|line| line.strip_prefix("counterfoil token new ")).unwrap();
    let token = token.strip_suffix(" >> shop.toml").unwrap();
    let made = counterfoil(folder.path()).args(["token", "new"]).args(token.split(' ')).output().unwrap();
    let stanza = String::from_utf8(made.stdout).unwrap();
    let shown = String::from_utf8(made.stderr).unwrap();
    let secret = shown.lines().find(|line| line.trim().starts_with("cf_")).unwrap().trim();
    let written = format!("{}\n{stanza}", blocks_of(README, "toml shop")[0]);
    let check = |text: &str| {
        std::fs::write(&config, text).unwrap();
        printed(counterfoil(folder.path()).args(["check", "shop.toml"])).trim_end().to_owned()
    };
    let warned = check(&written);
    assert_eq!(warned, blocks_of(README, "text check")[0]);
    let trigger = warned.lines().find_map(|line| line.split_once("= help: ")).unwrap().1;
    connection.execute_batch(trigger).unwrap();
    assert_eq!(check(&written), "shop.toml: nothing wrong");
    let misspelt = written.replace("= :price_cents,", "= :price_cent,");
    assert_eq!(check(&misspelt), blocks_of(README, "text mistake")[0]);
    assert_eq!(check(&written), "shop.toml: nothing wrong");
    let served = Served::of(folder.path(), "shop.toml");
    let answer = curl(served.1, secret, body(2));
    let price = blocks_of(README, "json price")[0];
    assert_eq!(normalised(&client::read(&answer).unwrap().value), settled(price));
}

/// A config with one line in one section.
fn parsed(section: &str, lines: &str) -> Option<config::Config> {
    let text = format!(
        "[database]\nurl = \"sqlite:data.db\"\n[tools.list]\nscope = \"s\"\nread = \"SELECT 1\"\n[{section}]\n{lines}"
    );
    config::parse("counterfoil.toml", &text).ok()
}

/// The number before or after the one that `text` begins with.
fn moved(text: &str, by: i64) -> String {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    format!("{}{}", text[..digits].parse::<i64>().unwrap() + by, &text[digits..])
}

#[test]
fn the_config_page_has_the_bounds_that_are_kept() {
    let row =
        Regex::new(r"^\| `(\w+)` \| (size|integer|duration) \| `(\w+)` \| `(\w+)` to `(\w+)` \|").unwrap();
    let mut rows = 0;
    for section in ["receipts", "limits"] {
        let page = CONFIG.split(&format!("## `[{section}]`")).nth(1).unwrap().split("\n## ").next().unwrap();
        for row in page.lines().filter_map(|line| row.captures(line)) {
            let (key, kind) = (&row[1], &row[2]);
            // The other window is as far away as it may be.
            let beside = match key {
                "keep" => "remember = \"100y\"\n",
                "remember" => "keep = \"1s\"\n",
                _ => "",
            };
            let with = |value: &str, beside: &str| {
                let value = if kind == "integer" { value.to_owned() } else { format!("\"{value}\"") };
                parsed(section, &format!("{beside}{key} = {value}"))
            };
            let default = with(&row[3], "").unwrap();
            assert_eq!(default.limits, Limits::default(), "{key}");
            assert_eq!(default.windows(&default.tools[0]), Windows::default(), "{key}");
            assert!(with(&row[4], beside).is_some() && with(&row[5], beside).is_some(), "{key}");
            assert!(with(&moved(&row[4], -1), beside).is_none(), "{key} may be less");
            assert!(with(&moved(&row[5], 1), beside).is_none(), "{key} may be more");
            rows += 1;
        }
    }
    assert_eq!(rows, 9);
    let listen = format!("| `listen` | string | `{}` |", bounds::DEFAULT_LISTEN);
    let limit = format!("| `limit` | integer | `{}` |", bounds::DEFAULT_ROWS);
    let issuer = format!("| `issuer` | string | `{}` |", bounds::DEFAULT_ISSUER);
    for row in [listen, limit, issuer] {
        assert!(CONFIG.contains(&row), "{row}");
    }
}

/// Inputs, columns and statement names of the config that has every key.
const NAMES: [&str; 16] = [
    "queue", "seen", "draft", "urgency", "kind", "weight", "notify", "tags", "extra", "from", "to", "x",
    "urgent", "payload", "id", "last",
];

#[test]
fn the_config_page_names_every_key() {
    let everything = include_str!("../../server/tests/config/everything.toml");
    let key = Regex::new(r"(?m)(?:^|[{,.] ?)([A-Za-z_]+) = ").unwrap();
    let keys: BTreeSet<&str> =
        key.captures_iter(everything).map(|found| found.get(1).unwrap().as_str()).collect();
    let named = |key: &&str| CONFIG.contains(&format!("`{key}`")) || CONFIG.contains(&format!("{key} = "));
    let missing: Vec<&str> =
        keys.iter().copied().filter(|key| !NAMES.contains(key)).filter(|key| !named(key)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(keys.len() > 40, "{keys:?}");
}
