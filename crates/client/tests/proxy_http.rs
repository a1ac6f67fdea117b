//! The proxy's HTTP sides: an upstream over HTTP, which never sees what its caller's headers hold, and whose lost
//! sessions are opened anew; and callers over HTTP, with sessions and without.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod upstream;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use counterfoil_client::proxy::{Proxy, Upstream};
use counterfoil_client::token::Token;
use counterfoil_client::words::ServerUrl;
use upstream::{Agent, HELLO, TOOLS, at, proxy};

const TOKEN: &str = "the-proxys-own-token";

/// The upstream, when this program is run as one.
#[test]
fn the_upstream() {
    upstream::serve();
}

/// A server that answers each request, by its whole text, as `script` says; `%ID%` stands for the JSON-RPC id.
struct Scripted {
    url: ServerUrl,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    fn new(script: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = ServerUrl::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, script) = (Arc::clone(&heard), Arc::new(script));
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                thread::spawn(move || {
                    let Some(text) = message(&mut stream) else { return };
                    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                    let id = if body.is_empty() { String::new() } else { at(body, "id") };
                    let count = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(text.clone());
                        seen.len()
                    };
                    let answer = script(&text, count).replace("%ID%", &id);
                    let _gone = stream.write_all(answer.as_bytes());
                });
            }
        });
        Self { url, heard }
    }

    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn proxy(&self, folder: &std::path::Path) -> Arc<Proxy> {
        let token = Some(Token::parse(TOKEN).unwrap());
        proxy(folder, Upstream::Web(self.url.clone(), token)).0
    }
}

/// One HTTP message with a length.
fn message(stream: &mut TcpStream) -> Option<String> {
    let (mut text, mut buffer) = (String::new(), [0; 65536]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase();
        let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

fn http(status: u16, more: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{more}Connection: close\r\n\r\n{body}")
}

fn json(result: &str) -> String {
    http(
        200,
        "Content-Type: application/json\r\n",
        &format!(r#"{{"jsonrpc":"2.0","id":%ID%,"result":{result}}}"#),
    )
}

const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_session_is_opened_anew_and_the_message_sent_again() {
    let server = Scripted::new(|text, count| {
        let lower = text.to_ascii_lowercase();
        if text.starts_with("GET") {
            return http(405, "", "");
        }
        if text.contains("\"initialize\"") {
            let body = format!(r#"{{"jsonrpc":"2.0","id":%ID%,"result":{INITIALIZED}}}"#);
            return http(
                200,
                &format!("Mcp-Session-Id: s{count}\r\nContent-Type: application/json\r\n"),
                &body,
            );
        }
        // The first session is forgotten as soon as a tool is called in it.
        if text.contains("tools/call") && lower.contains("mcp-session-id: s1\r\n") {
            return http(404, "", "");
        }
        if text.contains("tools/list") {
            return json(&format!(r#"{{"tools":[{TOOLS}]}}"#));
        }
        if text.contains("\"method\":\"tools/call\"") {
            let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1.50}}"#;
            let answer = r#"{"jsonrpc":"2.0","id":%ID%,"result":{"content":[]}}"#;
            return http(
                200,
                "Content-Type: text/event-stream\r\n",
                &format!("data: {note}\n\ndata: {answer}\n\n"),
            );
        }
        http(202, "", "")
    });
    let folder = tempfile::tempdir().unwrap();
    let mut agent = Agent::of(&server.proxy(folder.path()));
    agent.greet().await;
    let answer = agent.call("write", r#"{"a":1e0}"#, "").await;
    assert!(answer.ends_with(r#""result":{"content":[]}}"#), "{answer}");
    assert_eq!(agent.noted, [r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"n":1.50}}"#]);
    let heard = server.heard();
    let calls: Vec<&String> = heard.iter().filter(|text| text.contains("tools/call")).collect();
    assert_eq!(calls.len(), 2, "{heard:?}");
    let body = |text: &str| text.split_once("\r\n\r\n").unwrap().1.to_owned();
    assert_eq!(body(calls[0]), body(calls[1]), "the same bytes");
    let greetings: Vec<String> = heard
        .iter()
        .filter(|text| text.contains("\"initialize\""))
        .map(|text| at(&body(text), "params"))
        .collect();
    assert_eq!(greetings, [at(HELLO, "params"), at(HELLO, "params")]);
    assert!(heard.iter().all(|text| text.contains(&format!("Bearer {TOKEN}"))), "{heard:?}");
}

/// One request of a caller; its answer.
fn ask(to: SocketAddr, method: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    let length = body.len();
    let text = format!(
        "{method} /mcp HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

struct Listening {
    at: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Listening {
    async fn new(proxy: &Arc<Proxy>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let proxy = Arc::clone(proxy);
        let shutdown = async move { stopped.await.unwrap_or_default() };
        let served = tokio::spawn(async move { proxy.serve_http(listener, shutdown).await });
        Self { at, stop: Some(stop), served }
    }

    async fn ask(&self, method: &'static str, headers: &str, body: &str) -> String {
        let (at, headers, body) = (self.at, headers.to_owned(), body.to_owned());
        tokio::task::spawn_blocking(move || ask(at, method, &headers, &body)).await.unwrap()
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.served.await.unwrap().unwrap();
    }
}

const SECRET: &str = "Authorization: Bearer the-callers-secret\r\nCookie: c=the-callers-secret\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_callers_headers_reaches_the_upstream() {
    let server = Scripted::new(|text, _| match text {
        text if text.contains("tools/list") => json(&format!(r#"{{"tools":[{TOOLS}]}}"#)),
        text if text.contains("server/discover") => json(r#"{"_meta":{"dev.counterfoil/caller":"alice"}}"#),
        _ => json(r#"{"content":[]}"#),
    });
    let folder = tempfile::tempdir().unwrap();
    let proxy = server.proxy(folder.path());
    let listening = Listening::new(&proxy).await;
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    for method in ["resources/list", "tools/call"] {
        let body =
            format!(r#"{{"id":1,"method":"{method}","params":{{"name":"write","arguments":{{}},{meta}}}}}"#);
        let headers = format!("{SECRET}Accept: application/json, text/event-stream\r\n");
        let answer = listening.ask("POST", &headers, &body).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"content\":[]"), "{answer}");
    }
    let heard = server.heard();
    assert!(heard.len() >= 4, "{heard:?}");
    for text in heard {
        assert!(!text.contains("the-callers-secret"), "{text}");
        assert!(
            text.contains(&format!("Bearer {TOKEN}")) && text.contains("mcp-protocol-version: 2026-07-28"),
            "{text}"
        );
    }
    listening.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_over_http_have_conversations_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let scene = upstream::Scene::silent(folder.path());
    let listening = Listening::new(&scene.proxy).await;
    let accept = "Accept: application/json, text/event-stream\r\n";
    let mut sessions = Vec::new();
    for _ in 0..2 {
        let answer = listening.ask("POST", accept, HELLO).await;
        let session =
            answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        sessions.push(format!("{accept}Mcp-Session-Id: {session}\r\n"));
    }
    assert_ne!(sessions[0], sessions[1]);
    let call = |n: u32, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"set","arguments":{{"n":{n}}}{more}}}}}"#
        )
    };
    // The same id in two sessions is two requests; the header is the runtime's word.
    for (session, key, replayed) in [(0, "a", false), (1, "a", true), (1, "b", false)] {
        let headers = format!("{}Idempotency-Key: \"{key}\"\r\n", sessions[session]);
        let answer = listening.ask("POST", &headers, &call(1, "")).await;
        assert!(answer.contains(&format!(r#""replayed":{replayed}"#)), "{session} {key}: {answer}");
    }
    assert_eq!(scene.folder.effects(), 2);
    // Delivered over HTTP: the next is a new intention.
    for effects in [3, 4] {
        listening.ask("POST", &sessions[0], &call(2, "")).await;
        assert_eq!(scene.folder.effects(), effects);
    }
    // What comes before the answer makes it a stream; who takes none gets the answer alone.
    let change = r#"{"id":9,"method":"change"}"#;
    assert!(listening.ask("POST", &sessions[0], change).await.contains("application/json"));
    let cases = [
        ("POST", "Mcp-Session-Id: unknown\r\n", HELLO.replace("initialize", "ping"), 404),
        ("POST", "", r#"{"id":1,"method":"ping"}"#.to_owned(), 400),
        ("POST", "", "rubbish".to_owned(), 400),
        ("POST", "Origin: https://example.com\r\n", HELLO.to_owned(), 403),
        ("PUT", "", String::new(), 405),
        ("GET", "Mcp-Session-Id: unknown\r\n", String::new(), 404),
        ("DELETE", &*sessions[1], String::new(), 200),
        ("POST", &*sessions[1], call(1, ""), 404),
    ];
    for (method, headers, body, status) in cases {
        let answer = listening.ask(method, headers, &body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{method} {headers}: {answer}");
    }
    listening.stop().await;
    assert_eq!(scene.folder.effects(), 4);
}

/// Callers without sessions share one upstream process: their ids and tokens are told apart.
#[tokio::test(flavor = "multi_thread")]
async fn callers_without_sessions_share_an_upstream() {
    let folder = tempfile::tempdir().unwrap();
    let scene = upstream::Scene::silent(folder.path());
    let listening = Listening::new(&scene.proxy).await;
    let meta = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":1"#;
    let body = |uri: &str| {
        format!(r#"{{"id":7,"method":"resources/read","params":{{"uri":"{uri}","_meta":{{{meta}}}}}}}"#)
    };
    let (one, two) = (body("x:one"), body("x:two"));
    let (one, two) = tokio::join!(listening.ask("POST", "", &one), listening.ask("POST", "", &two));
    for (answer, uri) in [(one, "x:one"), (two, "x:two")] {
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(body.contains(uri) && body.contains("\"id\":7") || body.contains("\"id\": 7"), "{answer}");
    }
    assert_eq!(scene.folder.lines("lives").len(), 1);
    let heard = scene.folder.heard();
    assert_ne!(at(&heard[0], "id"), at(&heard[1], "id"));
    assert_ne!(at(&heard[0], "params._meta.progressToken"), at(&heard[1], "params._meta.progressToken"));
    listening.stop().await;
}
