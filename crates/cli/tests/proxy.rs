//! `counterfoil proxy` as an agent's configuration starts it: one round with the real server, wrong words, and journals
//! that cannot be trusted, of which `counterfoil call` says the same.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use counterfoil::rusqlite::Connection;
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Server, Site, Who};
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_counterfoil");

fn counterfoil(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(words).env("TOKEN", Who::Alice.token()).env("XDG_STATE_HOME", folder).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ran(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = counterfoil(folder, words).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn words_and_what_they_come_to() {
    let folder = TempDir::new().unwrap();
    let url = "http://127.0.0.1:9/mcp";
    let check = |words: &[&str], code: i32, said: &str| {
        let (got, out, err) = ran(folder.path(), &[&["proxy"], words].concat());
        assert_eq!(got, Some(code), "{words:?}: {err}");
        assert!(format!("{out}{err}").contains(said), "{words:?}: {out}{err}");
    };
    check(&["--help"], 0, "counterfoil proxy --upstream https://tools.example.com/mcp --token-env TOKEN");
    check(&["--help"], 0, "Exit codes:");
    check(&[], 2, "--upstream");
    check(&["--upstream", url, "--", "server"], 2, "cannot be used with");
    check(&["--upstream", "tools.example.com"], 2, "tools.example.com");
    check(&["--upstream", url, "--request-ids", "pay="], 2, "TOOL=ARGUMENT");
    check(&["--upstream", url, "--request-ids", "=key"], 2, "--request-ids");
    check(&["--upstream", url, "--listen", "0.0.0.0:0"], 3, "can be reached from other machines");
    check(&["--upstream", url, "--token-env", "NOT_SET"], 3, "NOT_SET");
    check(&["--token-env", "TOKEN", "--", "server"], 3, "a command takes no token");
    // The caller has left before it said anything: nobody was asked.
    check(&["--upstream", url], 0, "");
    check(&["--", "/nonexistent"], 0, "");
}

/// The lines of one conversation, asked one after the other; then the caller leaves, and the proxy with it.
fn talk(folder: &Path, words: &[&str], asked: &[Value]) -> Vec<Value> {
    let mut child = counterfoil(folder, words).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut answers = Vec::new();
    for message in asked {
        to.write_all(format!("{message}\n").as_bytes()).unwrap();
        let id = message["id"].clone();
        if !id.is_null() {
            let mut lines = from.by_ref().map(|line| serde_json::from_str::<Value>(&line).unwrap());
            answers.push(lines.find(|answer| answer["id"] == id).unwrap());
        }
    }
    drop(to);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    answers
}

fn request(id: u32, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[test]
fn one_round() {
    let (site, folder) = (Site::automations(), TempDir::new().unwrap());
    let server = Server::start(Path::new(BINARY), &site.main());
    let url = format!("http://{}/mcp", server.address);
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let edit = json!({"name": "set_interval", "arguments": {"id": 1, "expected_version": 1, "interval_minutes": 30}});
    let asked = [
        request(1, "initialize", &hello),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        request(2, "tools/list", &json!({})),
        request(3, "tools/call", &edit),
        request(4, "tools/call", &edit),
    ];
    let answers = talk(folder.path(), &["proxy", "--upstream", &url, "--token-env", "TOKEN"], &asked);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-11-25");
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    let tool = tools.iter().find(|tool| tool["name"] == "set_interval").unwrap();
    let offered = tool["inputSchema"]["properties"].as_object().unwrap();
    assert!(offered.contains_key("expected_version") && !offered.contains_key("request_id"), "{tool}");
    let done = &answers[2]["result"]["structuredContent"];
    assert_eq!((&done["result"]["version"], &done["replayed"]), (&2.into(), &false.into()));
    assert_eq!(
        answers[3]["result"]["structuredContent"]["error"]["code"], "version_conflict",
        "delivered, so new"
    );
    assert_eq!(site.database.row(1).unwrap().version, 2);
    let (_, listed, _) = ran(folder.path(), &["journal", "list"]);
    let states: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["state"].clone()).collect();
    assert_eq!(states, ["refused", "replied"]);
}

/// A journal as it should be, closed and settled.
fn journal(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    drop(counterfoil_client::Journal::open(&path).unwrap());
    Connection::open(&path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    path
}

/// Whatever is wrong with the journal is said before anybody is asked anything.
#[test]
fn without_a_journal_that_can_be_trusted_nothing_is_sent() {
    let (site, folder) = (Site::automations(), TempDir::new().unwrap());
    let server = Server::start(Path::new(BINARY), &site.main());
    let url = format!("http://{}/mcp", server.address);
    let newer = journal(folder.path(), "newer.db");
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let damaged = journal(folder.path(), "damaged.db");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[100..].fill(0xa5);
    std::fs::write(&damaged, bytes).unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "not a journal ".repeat(50)).unwrap();
    let cases = [
        (newer, "format 99"),
        (damaged, "damaged"),
        (text.clone(), "not a journal"),
        (text.join("journal.db"), "cannot be opened"),
    ];
    for (path, said) in cases {
        let path = path.to_str().unwrap();
        let options = ["--token-env", "TOKEN", "--journal", path];
        let edit = ["call", &url, "set_interval", "id=1", "expected_version=1", "interval_minutes=30"];
        for words in [&["proxy", "--upstream", &url][..], &edit] {
            let (code, out, err) = ran(folder.path(), &[words, &options].concat());
            assert_eq!((code, &*out), (Some(3), ""), "{path}: {err}");
            assert!(err.contains("nothing was sent") && err.contains(said), "{path}: {err}");
        }
    }
    assert_eq!(site.database.row(1).unwrap().version, 1);
}
