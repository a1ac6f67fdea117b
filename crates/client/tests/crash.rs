//! K2: the client is killed at every boundary of a call, resumed, and the effect is there once.
//!
//! The test runs itself again as a child, which aborts at a named point; the server is the parent, so that what it
//! has done survives the child.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use counterfoil_client::client::{Client, Outcome, new_id};
use counterfoil_client::http::Http;
use counterfoil_client::journal::{Edge, Filter, Journal};
use counterfoil_client::operation::Operation;
use counterfoil_client::retry::Policy;
use counterfoil_client::session::Session;
use counterfoil_client::state::State;
use counterfoil_client::time::{SystemTimer, Time as _};
use counterfoil_client::transport::{Fault, Message, Pending, Response, Transport};
use counterfoil_client::words::{Caller, ServerUrl};
use support::{Fate, Way, operation};

const CHILD: &str = "COUNTERFOIL_TEST_CHILD";
const KILLED_AT: &str = "COUNTERFOIL_TEST_KILLED_AT";

/// Serves `way` over HTTP, a connection a request, to the end of the test.
fn serve(way: Way) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let way = way.clone();
            thread::spawn(move || answer(&way, stream));
        }
    });
    url
}

/// A client that dies mid-request ends its connection, and nothing else.
fn answer(way: &Way, mut stream: TcpStream) -> Option<()> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    let (head, length) = loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        all.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length: ")?.trim().parse::<usize>().ok()
        })?;
        if all.len() >= head.len() + 4 + length {
            break (head.len() + 4, length);
        }
    };
    let body = way.http(&all[head..head + length]);
    let (status, body) = match body {
        Ok(response) => (response.status, response.body),
        Err(_) => return None,
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).ok()
}

/// Dies between the answer and the journal.
struct Dying {
    http: Http,
    point: String,
}

impl Transport for Dying {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(async move {
            let call = message.name() == Some("set_interval");
            if call && self.point == "before send" {
                std::process::abort();
            }
            let answer = self.http.exchange(message).await;
            if call && self.point == "before recording" {
                std::process::abort();
            }
            answer
        })
    }
}

/// What the child does: one operation, from the journal it is told, to the server it is told.
fn child(folder: &Path, url: &str, work: impl FnOnce(&Arc<Journal>, &ServerUrl) -> Vec<Operation>) {
    let point = std::env::var(KILLED_AT).unwrap_or_default();
    let watched = point.clone();
    let journal = Journal::open(&folder.join("journal.db")).unwrap().watched(Arc::new(move |event, edge| {
        let side = if edge == Edge::Before { "before" } else { "after" };
        if watched == format!("{side} {event}") {
            std::process::abort();
        }
    }));
    let (journal, server) = (Arc::new(journal), ServerUrl::parse(url).unwrap());
    let operations = work(&journal, &server);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client =
            connect(Dying { http: Http::new(&server, None).unwrap(), point }, &journal, &server).await;
        for operation in operations {
            let report = client.call(operation).await.unwrap();
            assert!(matches!(report.outcome, Outcome::Replied(_) | Outcome::Refused(_)), "{report:?}");
        }
    });
}

async fn connect<T: Transport>(transport: T, journal: &Arc<Journal>, server: &ServerUrl) -> Client<T> {
    let time = Arc::new(SystemTimer::default());
    let identity = Caller::of_identity("test").unwrap();
    let session = Session::open(transport, &*time, &identity).await.unwrap();
    Client::new(session, server.clone(), Arc::clone(journal), time, Policy::default())
}

fn run(test: &str, folder: &Path, url: &str, killed_at: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}\n{url}", folder.display()))
        .env(KILLED_AT, killed_at)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn told() -> Option<(String, String)> {
    let told = std::env::var(CHILD).ok()?;
    let (folder, url) = told.split_once('\n')?;
    Some((folder.to_owned(), url.to_owned()))
}

/// Where the child is killed; the state it leaves behind; effects before and after the resume.
const POINTS: [(&str, Option<State>, usize, usize); 10] = [
    ("before recorded", None, 0, 0),
    ("after recorded", Some(State::Ready), 0, 1),
    ("before sent", Some(State::Ready), 0, 1),
    ("after sent", Some(SENT), 0, 1),
    ("before send", Some(SENT), 0, 1),
    ("before recording", Some(SENT), 1, 1),
    ("before replied", Some(SENT), 1, 1),
    ("after replied", Some(State::Replied), 1, 1),
    ("before refused", Some(SENT), 0, 0),
    ("after refused", Some(State::Refused), 0, 0),
];
const SENT: State = State::Sent { open: std::num::NonZeroU32::MIN };

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_boundary_and_resumed_once() {
    if let Some((folder, url)) = told() {
        // Persisted and sent in two steps, so that there is a boundary between them.
        let work = |journal: &Arc<Journal>, server: &ServerUrl| {
            let operation = Operation { server: server.clone(), ..operation("edit-42") };
            journal.record(SystemTimer::default().now(), &operation).unwrap();
            vec![operation]
        };
        return tokio::task::spawn_blocking(move || child(Path::new(&folder), &url, work)).await.unwrap();
    }
    for (point, left, before, after) in POINTS {
        let folder = tempfile::tempdir().unwrap();
        let refusing = point.ends_with("refused");
        let refusal = || Fate::Refused(counterfoil_core::Refusal::version_conflict(None));
        let way = Way::new(refusing.then(refusal));
        let url = serve(way.clone());
        let status =
            run("killed_at_every_boundary_and_resumed_once", folder.path(), &url, point).wait().unwrap();
        assert!(!status.success(), "{point}: the child was not killed");
        assert_eq!(way.effects(), before, "{point}");
        let journal = Arc::new(Journal::open(&folder.path().join("journal.db")).unwrap());
        let page = journal.list(&Filter::default(), None, 10).unwrap();
        assert_eq!(page.entries.first().map(|entry| entry.state), left, "{point}");
        let Some(entry) = page.entries.into_iter().next() else { continue };
        way.fates(refusing.then(refusal));
        let server = entry.operation.server.clone();
        let client = connect(Http::new(&server, None).unwrap(), &journal, &server).await;
        let report = client.resume(&entry).await.unwrap();
        assert_eq!(way.effects(), after, "{point}: {report:?}");
        match left {
            // One try is open for ever: a refusal of the next is no end.
            Some(State::Sent { .. }) if refusing => assert!(matches!(report.outcome, Outcome::Unknown(_))),
            _ if refusing => assert!(matches!(report.outcome, Outcome::Refused(_)), "{point}: {report:?}"),
            _ => assert!(matches!(report.outcome, Outcome::Replied(_)), "{point}: {report:?}"),
        }
        let bodies: BTreeSet<String> = way.sent().iter().map(|body| arguments_and_id(body)).collect();
        assert!(bodies.len() <= 1, "{point}: the same id and bytes: {bodies:?}");
    }
}

/// Everything of a call but its JSON-RPC id.
fn arguments_and_id(body: &str) -> String {
    body.split_once("\"method\"").unwrap().1.to_owned()
}

/// 16 processes and one journal: no id twice, no operation lost, no effect twice.
#[test]
fn a_storm_over_one_journal() {
    const PROCESSES: usize = 16;
    const EACH: usize = 63;
    if let Some((folder, url)) = told() {
        let work = |_: &Arc<Journal>, server: &ServerUrl| {
            let fresh = |_| Operation {
                id: new_id(SystemTimer::default().now()),
                server: server.clone(),
                ..operation("x")
            };
            (0..EACH).map(fresh).collect()
        };
        return child(Path::new(&folder), &url, work);
    }
    let folder = tempfile::tempdir().unwrap();
    let way = Way::new([]);
    let url = serve(way.clone());
    let children: Vec<_> =
        (0..PROCESSES).map(|_| run("a_storm_over_one_journal", folder.path(), &url, "")).collect();
    for child in children {
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "a process of the storm failed: {said}");
    }
    let journal = Journal::open(&folder.path().join("journal.db")).unwrap();
    let entries = journal.list(&Filter::default(), None, 10_000).unwrap().entries;
    assert_eq!((entries.len(), way.effects()), (PROCESSES * EACH, PROCESSES * EACH));
    let mut tries: BTreeMap<String, u32> = BTreeMap::new();
    for entry in &entries {
        assert_eq!(entry.state, State::Replied, "{entry:?}");
        *tries.entry(entry.operation.id.to_string()).or_default() += 1;
    }
    assert!(tries.values().all(|times| *times == 1), "an id stands twice");
    let events: usize = entries.iter().take(100).map(|entry| journal.history(entry).unwrap().len()).sum();
    assert_eq!(events, 300, "recorded, sent, replied");
}
