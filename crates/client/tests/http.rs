//! The real way to a server, against servers that follow older revisions, stream, flood, redirect or speak rubbish.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use counterfoil_client::client::{Client, Outcome};
use counterfoil_client::http::Http;
use counterfoil_client::operation::Operation;
use counterfoil_client::retry::Policy;
use counterfoil_client::session::{NoAnswer, Session};
use counterfoil_client::time::SystemTimer;
use counterfoil_client::token::Token;
use counterfoil_client::transport::{Fault, Loss, Message, Pending, Response, Transport};
use counterfoil_client::words::{Caller, ServerUrl, Tool};
use support::{journal, operation};

const TOKEN: &str = "alice-local-token";

/// One answer, byte for byte; `%ID%` stands for the JSON-RPC id.
type Script = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A server that answers each request as `script` says, and remembers what it was sent.
struct Scripted {
    url: ServerUrl,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn new(script: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = ServerUrl::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
        let (script, asked): (Script, _) = (Arc::new(script), Arc::<Mutex<Vec<String>>>::default());
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                thread::spawn(move || answer(stream, &script, &seen));
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn open(&self) -> Result<Session<Http>, NoAnswer> {
        let token = Token::parse(TOKEN).unwrap();
        let http = Http::new(&self.url, Some(&token)).unwrap();
        Session::open(http, &SystemTimer::default(), &Caller::of_identity("test").unwrap()).await
    }
}

fn answer(mut stream: TcpStream, script: &Script, seen: &Mutex<Vec<String>>) -> Option<()> {
    let (mut text, mut buffer) = (String::new(), [0; 65536]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break;
        }
    }
    seen.lock().unwrap().push(text.clone());
    let id = text.split_once("\"id\":").map_or("0", |(_, rest)| rest.split([',', '}']).next().unwrap());
    let answer = String::from_utf8(script(&text)).unwrap().replace("%ID%", id);
    stream.write_all(answer.as_bytes()).ok()
}

fn http(status: u16, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

fn json(result: &str) -> Vec<u8> {
    http(200, "application/json", &rpc(result))
}

fn rpc(result: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":%ID%,\"result\":{result}}}")
}

const DISCOVERED: &str = "{\"_meta\":{\"dev.counterfoil/caller\":\"alice\"}}";
const REPLY: &str = "{\"content\":[],\"structuredContent\":{\"result\":{\"n\":9007199254740993,\"d\":1.10},\"request_id\":\"edit-42\",\"replayed\":false,\"committed_at\":\"2026-11-30T00:00:00.000000Z\",\"epoch\":\"one\"}}";

/// `call` answers the calls; all else is as a modern server does it.
fn modern(call: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |request| if request.contains("tools/call") { call() } else { json(DISCOVERED) })
}

async fn called(server: &Scripted, tries: u32) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let session = server.open().await.unwrap();
    let caller = session.caller().clone();
    let policy = Policy { tries, first_pause: Duration::from_millis(1), ..Policy::default() };
    let time = Arc::new(SystemTimer::default());
    let client = Client::new(session, server.url.clone(), journal(folder.path()), time, policy);
    let operation = Operation { server: server.url.clone(), caller, ..operation("edit-42") };
    client.call(operation).await.unwrap().outcome
}

#[tokio::test]
async fn a_modern_server_is_told_who_speaks_in_every_request() {
    let server = modern(|| json(REPLY));
    let Outcome::Replied(reply) = called(&server, 1).await else { panic!("no reply") };
    assert_eq!(&*reply.result, "{\"n\":9007199254740993,\"d\":1.10}", "no digit is lost");
    let call = server.asked().pop().unwrap();
    let headers = ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/call", "mcp-name: set_interval"];
    let members = [
        "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"",
        "\"dev.counterfoil/request-id\":\"edit-42\"",
    ];
    for part in
        headers.iter().chain(&members).chain(&[support::ARGUMENTS, "authorization: Bearer alice-local-token"])
    {
        assert!(call.contains(part), "{part}: {call}");
    }
    assert!(call.starts_with("POST /mcp HTTP/1.1"), "no token in the URL: {call}");
}

#[tokio::test]
async fn an_older_server_is_met_halfway() {
    let server = Scripted::new(|request| {
        if request.contains("server/discover") {
            let error = "{\"jsonrpc\":\"2.0\",\"id\":%ID%,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}";
            http(200, "application/json", error)
        } else if request.contains("\"initialize\"") {
            let result = "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"serverInfo\":{\"name\":\"x\",\"version\":\"1\"}}";
            let body = rpc(result);
            format!("HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nMcp-Session-Id: s-1\r\nConnection: close\r\n\r\ndata: {body}\n\n").into_bytes()
        } else if request.contains("notifications/initialized") {
            http(202, "text/plain", "")
        } else {
            json(
                "{\"tools\":[{\"name\":\"other\"},{\"name\":\"set_interval\",\"inputSchema\":{\"type\":\"object\"}}]}",
            )
        }
    });
    let session = server.open().await.unwrap();
    assert_eq!(session.version(), "2025-06-18");
    assert_eq!(session.caller(), &Caller::of_identity("test").unwrap());
    let tool =
        session.tool(&SystemTimer::default(), &Tool::parse("set_interval").unwrap()).await.unwrap().unwrap();
    assert!(!tool.request_ids && !tool.read_only, "nothing is taken for granted: {tool:?}");
    let asked = server.asked();
    assert!(asked[2].contains("notifications/initialized"), "{}", asked[2]);
    for later in &asked[2..] {
        assert!(later.contains("mcp-session-id: s-1") && later.contains("mcp-protocol-version: 2025-06-18"));
        assert!(!later.contains("io.modelcontextprotocol"), "{later}");
    }
}

/// A server that has forgotten a session did not look at the message: it is sent again in a new one.
#[tokio::test]
async fn a_lost_session_is_opened_anew() {
    let greeted = std::sync::atomic::AtomicUsize::new(0);
    let server = Scripted::new(move |request| {
        if request.contains("server/discover") {
            let error = "{\"jsonrpc\":\"2.0\",\"id\":%ID%,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}";
            http(200, "application/json", error)
        } else if request.contains("\"initialize\"") {
            let session = greeted.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            let body = rpc("{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{}}");
            format!("HTTP/1.1 200 X\r\nContent-Type: application/json\r\nMcp-Session-Id: s-{session}\r\nConnection: close\r\n\r\n{body}").into_bytes()
        } else if request.contains("notifications/initialized") {
            http(202, "text/plain", "")
        } else if request.contains("mcp-session-id: s-1\r\n") {
            http(404, "text/plain", "")
        } else {
            json("{\"tools\":[{\"name\":\"set_interval\"}]}")
        }
    });
    let session = server.open().await.unwrap();
    let name = Tool::parse("set_interval").unwrap();
    assert!(session.tool(&SystemTimer::default(), &name).await.unwrap().is_some());
    let sent: Vec<bool> = server.asked().iter().map(|text| text.contains("tools/list")).collect();
    assert_eq!(sent, [false, false, false, true, false, false, true], "again, once, in a new session");
}

#[tokio::test]
async fn answers_in_a_stream_are_found_behind_notifications() {
    let server = modern(|| {
        let progress = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}";
        let body = format!(": hello\n\ndata: {progress}\n\nid: 7\ndata: {}\n\ndata: never read", rpc(REPLY));
        http(200, "text/event-stream; charset=utf-8", &body)
    });
    assert!(matches!(called(&server, 1).await, Outcome::Replied(_)));
    let cut = modern(|| http(200, "text/event-stream", &format!("data: {}", rpc(REPLY))));
    let outcome = called(&cut, 2).await;
    let Outcome::Unknown(unknown) = outcome else { panic!("{outcome:?}") };
    assert_eq!(unknown.open, 2, "a stream that breaks before the answer's end answered nothing");
}

/// The way itself, without a client: what each kind of bad answer comes to.
#[tokio::test]
async fn bad_answers_are_bounded() {
    let flood = || vec![b'x'; counterfoil_client::limits::ANSWER + 1];
    let cases: Vec<(&str, Script, Fault)> = vec![
        (
            "a flood",
            Arc::new(move |_| [http(200, "application/json", ""), flood()].concat()),
            Fault::Lost(Loss::TooLarge),
        ),
        (
            "a flood of events",
            Arc::new(move |_| [http(200, "text/event-stream", ": "), flood()].concat()),
            Fault::Lost(Loss::TooLarge),
        ),
        ("nothing", Arc::new(|_| Vec::new()), Fault::Lost(Loss::Broken)),
        (
            "half an answer",
            Arc::new(|_| b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{".to_vec()),
            Fault::Lost(Loss::Broken),
        ),
        ("no HTTP", Arc::new(|_| b"SSH-2.0-x\r\n".to_vec()), Fault::Lost(Loss::Broken)),
    ];
    for (name, script, expected) in cases {
        let server = modern(move || script(""));
        let folder = tempfile::tempdir().unwrap();
        let (fault, http) = (Arc::new(Mutex::new(None)), Http::new(&server.url, None).unwrap());
        let seen = Noting { http, fault: Arc::clone(&fault) };
        let session = Session::open(seen, &SystemTimer::default(), &Caller::of_identity("test").unwrap())
            .await
            .unwrap();
        let caller = session.caller().clone();
        let policy = Policy { tries: 1, ..Policy::default() };
        let time = Arc::new(SystemTimer::default());
        let client = Client::new(session, server.url.clone(), journal(folder.path()), time, policy);
        let operation = Operation { server: server.url.clone(), caller, ..operation("edit-42") };
        let report = client.call(operation).await.unwrap();
        assert!(matches!(report.outcome, Outcome::Unknown(_)), "{name}: {report:?}");
        assert_eq!(*fault.lock().unwrap(), Some(expected), "{name}");
    }
}

/// Remembers the last fault.
struct Noting {
    http: Http,
    fault: Arc<Mutex<Option<Fault>>>,
}

impl Transport for Noting {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(async move {
            let answer = self.http.exchange(message).await;
            *self.fault.lock().unwrap() = answer.as_ref().err().copied();
            answer
        })
    }
}

/// A token is for the server it was given for.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let thief = modern(|| json(REPLY));
    let to = thief.url.to_string();
    let server = modern(move || {
        format!("HTTP/1.1 307 X\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .into_bytes()
    });
    let outcome = called(&server, 3).await;
    assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
    assert_eq!(thief.asked().len(), 0);
}

#[tokio::test]
async fn nobody_there_is_told_from_nobody_answering() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let way = Http::new(&ServerUrl::parse(&format!("http://{closed}/")).unwrap(), None).unwrap();
    let time = SystemTimer::default();
    let refused = Session::open(way, &time, &Caller::of_identity("test").unwrap()).await.unwrap_err();
    assert_eq!(refused, NoAnswer::NotReached);
    let rude = Scripted::new(|_| Vec::new());
    assert_eq!(rude.open().await.unwrap_err(), NoAnswer::Lost(Loss::Broken));
    let other = Scripted::new(|_| http(200, "text/html", "<html>"));
    assert_eq!(other.open().await.unwrap_err(), NoAnswer::Lost(Loss::Rubbish));
    let closed_door = Scripted::new(|_| http(401, "text/plain", "who are you?"));
    assert_eq!(closed_door.open().await.unwrap_err(), NoAnswer::Declined("HTTP 401".into()));
}
