//! The accept loop, TLS, rate limits, and what is told to whoever has no token.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::Clock;
use counterfoil_core::Scope;
use counterfoil_server::audit::{Audit, Target};
use counterfoil_server::http::{Certificates, Files, Metadata};
use counterfoil_server::limit::{Limiter, Rates};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use support::identity::Hand;
use support::{BOB, MODERN, Reply, Request, Server, call, call_of, read, rpc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A client that sends this and then nothing is sent away, whether or not it would have gone on.
async fn check_sent_away(server: &Server, sent: &[u8]) {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(sent).await.unwrap();
    let mut all = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await;
    assert!(ended.is_ok(), "{:?} is waited for", String::from_utf8_lossy(sent));
}

#[tokio::test]
async fn silent_clients_are_sent_away() {
    let server = Server::start(|options| options.header_wait = Duration::from_millis(100)).await;
    let whole = Request::post(call("{}")).bytes(server.address);
    let keep_alive = String::from_utf8(whole.clone()).unwrap().replace("Connection: close\r\n", "");
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [&preface[..], b"\0\0\0\x04\0\0\0\0\0"].concat();
    let cases: [&[u8]; 8] =
        [b"", b"P", b"PRI * HTT", &whole[..20], &whole[..100], keep_alive.as_bytes(), preface, &settings];
    for sent in cases {
        check_sent_away(&server, sent).await;
    }
    assert_eq!(server.send(&Request::post(call("{}"))).await.status, 200);
}

/// A client that asks and asks and reads no answer is sent away when nothing more goes out to it.
#[tokio::test]
async fn unread_answers_are_not_kept_for_ever() {
    let server = Server::start(|options| options.header_wait = Duration::from_millis(200)).await;
    let whole = Request::post(call("{}")).bytes(server.address);
    let asks = String::from_utf8(whole).unwrap().replace("Connection: close\r\n", "");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let asking = async { while stream.write_all(asks.as_bytes()).await.is_ok() {} };
    let ended = tokio::time::timeout(Duration::from_secs(20), asking).await;
    assert!(ended.is_ok(), "its place is never free again");
    assert_eq!(server.send(&Request::post(call("{}"))).await.status, 200);
}

#[tokio::test]
async fn so_many_connections_at_once() {
    let server = Server::start(|options| options.connections = 2).await;
    let mut held = vec![
        TcpStream::connect(server.address).await.unwrap(),
        TcpStream::connect(server.address).await.unwrap(),
    ];
    for stream in &mut held {
        // Taken in, and now waited for.
        stream.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    }
    let mut third = TcpStream::connect(server.address).await.unwrap();
    third.write_all(&Request::post(call("{}")).bytes(server.address)).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), third.peek(&mut byte)).await;
    assert!(early.is_err(), "there is no place for it");
    drop(held.pop());
    assert_eq!(read(third).await.status, 200, "now there is");
}

/// A head beyond its bound is refused, and a long one within it is read.
#[tokio::test]
async fn heads_are_bounded() {
    let server = Server::start(|_| {}).await;
    let padded = |length: usize| Request::post(call("{}")).and("X-Padding", &"x".repeat(length));
    assert_eq!(server.send(&padded(30_000)).await.status, 200);
    assert_eq!(server.send(&padded(100_000)).await.status, 431);
}

fn openssl(folder: &Path, name: &str) -> Files {
    let files = Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
    let subject = format!("/CN={name}");
    let mut made = Command::new("openssl");
    made.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    made.args(["-subj", &subject, "-addext", "basicConstraints=critical,CA:FALSE"]);
    made.args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
        .arg(&files.key)
        .arg("-out")
        .arg(&files.cert);
    let made = made.output().expect("openssl is on the path");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    files
}

/// A call over TLS, which trusts this certificate alone.
async fn over_tls(server: &Server, trusted: &CertificateDer<'static>) -> Result<Reply, std::io::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(&Request::post(call("{}")).bytes(server.address)).await?;
    Ok(read(stream).await)
}

#[tokio::test]
async fn tls_and_new_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let files = openssl(folder.path(), "first");
    let certificate = || CertificateDer::from_pem_file(&files.cert).unwrap();
    let first = certificate();
    let certificates = Arc::new(Certificates::load(files.clone()).unwrap());
    let used = Arc::clone(&certificates);
    let server = Server::start(move |options| {
        options.tls = Some(used);
        options.header_wait = Duration::from_millis(500);
    })
    .await;
    assert_eq!(over_tls(&server, &first).await.unwrap().status, 200);
    check_sent_away(&server, b"").await;
    check_sent_away(&server, &Request::post(call("{}")).bytes(server.address)).await;
    // What is wrong changes nothing, and is told.
    let key = std::fs::read(&files.key).unwrap();
    let _other = openssl(folder.path(), "second");
    let second = certificate();
    let second_key = std::fs::read(&files.key).unwrap();
    let bad: [&[u8]; 4] = [b"", b"nonsense", &key, &second_key[..second_key.len() / 2]];
    for wrong in bad {
        std::fs::write(&files.key, wrong).unwrap();
        let problem = certificates.reload().unwrap_err().to_string();
        assert!(problem.contains("key") && !problem.contains("BEGIN"), "{problem}");
        assert_eq!(over_tls(&server, &first).await.unwrap().status, 200);
    }
    std::fs::remove_file(&files.key).unwrap();
    assert!(certificates.reload().is_err());
    std::fs::write(&files.key, &second_key).unwrap();
    certificates.reload().unwrap();
    assert_eq!(over_tls(&server, &second).await.unwrap().status, 200);
    assert!(over_tls(&server, &first).await.is_err(), "the old one is out of use");
}

fn from(token: &str, body: String) -> Request {
    Request::post(body).with("Authorization", &format!("Bearer {token}"))
}

async fn limited(writes: u32, reads: u32) -> (Server, Arc<Hand>) {
    let clock = Hand::new();
    let shared: Arc<dyn Clock> = clock.clone();
    let server = Server::start(move |options| {
        options.watch.limiter = Some(Arc::new(Limiter::new(Rates { writes, reads }, shared)));
    })
    .await;
    (server, clock)
}

/// How many of `count` requests pass; the others are 429.
async fn passed(server: &Server, count: usize, request: impl Fn() -> Request) -> usize {
    let mut passed = 0;
    for _ in 0..count {
        let reply = server.send(&request()).await;
        assert!(matches!(reply.status, 200 | 429), "{reply:?}");
        passed += usize::from(reply.status == 200);
    }
    passed
}

/// S6
#[tokio::test]
async fn one_caller_at_full_speed_is_limited_and_others_are_not() {
    let (server, clock) = limited(5, 20).await;
    let write = |token: &'static str| move || from(token, call("{}"));
    assert_eq!(passed(&server, 30, write(support::TOKEN)).await, 10);
    assert_eq!(server.engine.begun(), 10, "what is limited is not begun");
    assert_eq!(passed(&server, 10, write(BOB)).await, 10);
    let reply = server.send(&write(support::TOKEN)()).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    let body = reply.json();
    assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32000)));
    let refusal = &body["error"]["data"]["error"];
    assert_eq!((&refusal["code"], &refusal["retry"]), (&json!("rate_limited"), &json!("same_id")));
    assert_eq!((&refusal["operation"], &refusal["retry_after_ms"]), (&json!("unknown"), &json!(200)));
    // Reads are counted apart, whatever is asked; of them, nothing is known as an operation.
    let reads = [call_of("get_automation"), rpc("tools/list", "{}"), rpc("ping", "{}")];
    let mut taken = 0;
    for read in reads {
        taken += passed(&server, 20, || from(support::TOKEN, read.clone())).await;
    }
    assert_eq!(taken, 40);
    let reply = server.send(&from(support::TOKEN, call_of("get_automation"))).await.json();
    assert_eq!(reply["error"]["data"]["error"]["operation"], Value::Null);
    clock.pass(Duration::from_secs(1));
    assert_eq!(passed(&server, 30, write(support::TOKEN)).await, 5);
}

/// A replay, and a refusal that costs no write, is not counted as one.
#[tokio::test]
async fn retries_are_not_hindered() {
    let (server, _clock) = limited(2, 1000).await;
    for name in ["replayed", "forbidden"] {
        for _ in 0..50 {
            let reply = server.send(&from(support::TOKEN, call_of(name))).await;
            assert_ne!(reply.status, 429, "{name}");
        }
    }
    assert_eq!(passed(&server, 10, || from(support::TOKEN, call("{}"))).await, 4);
    let busy = passed(&server, 10, || from(BOB, call_of("busy"))).await;
    assert_eq!(busy, 4, "what may have reached the writer is counted");
}

fn metadata(first: &[&str]) -> Metadata {
    let scopes = |all: &[&str]| all.iter().map(|scope| Scope::parse(scope).unwrap()).collect();
    let issuers = vec!["https://id.example.com".to_owned()];
    let all = scopes(&["automation:read", "automation:write"]);
    Metadata::new("https://tools.example.com/mcp", issuers, all, scopes(first)).unwrap()
}

#[tokio::test]
async fn a_client_without_a_token_finds_out_where_to_get_one() {
    let server = Server::start(|options| options.metadata = Some(metadata(&["automation:read"]))).await;
    let well_known = "/.well-known/oauth-protected-resource";
    for (suffix, resource) in [("", ""), ("/mcp", ""), ("/mcp/team-a", "/team-a")] {
        let get = Request::post("").without("Authorization").at(&format!("GET {well_known}{suffix}"));
        let reply = server.send(&get.with("Host", "tools.example.com")).await;
        let expected = json!({
            "resource": format!("https://tools.example.com/mcp{resource}"),
            "authorization_servers": ["https://id.example.com"],
            "scopes_supported": ["automation:read", "automation:write"],
            "bearer_methods_supported": ["header"],
        });
        assert_eq!((reply.status, reply.json()), (200, expected), "{suffix}");
    }
    let url = "resource_metadata=\"https://tools.example.com/.well-known/oauth-protected-resource/mcp";
    let missing = Request::post(call("{}")).without("Authorization").with("Host", "tools.example.com");
    let cases = [
        (missing.clone(), 401, format!("Bearer scope=\"automation:read\", {url}\"")),
        (
            missing.at("POST /mcp/team%20a"),
            401,
            format!("Bearer scope=\"automation:read\", {url}/team%20a\""),
        ),
        (
            from("nobody", call("{}")),
            401,
            format!("Bearer error=\"invalid_token\", scope=\"automation:read\", {url}\""),
        ),
        // Before 2026-07-28 a client asks for what is named, and drops what it had.
        (
            Request::post(call_of("forbidden")),
            403,
            format!(
                "Bearer error=\"insufficient_scope\", scope=\"automation:read automation:write\", {url}\""
            ),
        ),
        (
            Request::post(rpc("tools/call", &format!("{{\"name\":\"forbidden\",{MODERN}}}")))
                .modern("tools/call", Some("forbidden")),
            403,
            format!("Bearer error=\"insufficient_scope\", scope=\"automation:write\", {url}\""),
        ),
    ];
    for (request, status, challenge) in cases {
        let reply = server.send(&request).await;
        assert_eq!(
            (reply.status, reply.header("www-authenticate")),
            (status, Some(&*challenge)),
            "{reply:?}"
        );
    }
    let plain = Server::start(|_| {}).await;
    let get = Request::post("").at(&format!("GET {well_known}"));
    assert_eq!(plain.send(&get).await.status, 404);
}

#[tokio::test]
async fn alive_and_ready_tell_nothing_more() {
    let server = Server::start(|_| {}).await;
    let ask = |path: &str| Request::post("").without("Authorization").at(&format!("GET {path}"));
    let told = |reply: Reply| (reply.status, reply.body);
    assert_eq!(told(server.send(&ask("/readyz")).await), (200, "{\"status\":\"ready\"}".to_owned()));
    server.engine.gate.close();
    assert_eq!(told(server.send(&ask("/readyz")).await), (503, "{\"status\":\"not ready\"}".to_owned()));
    assert_eq!(told(server.send(&ask("/healthz")).await), (200, "{\"status\":\"ok\"}".to_owned()));
}

/// One line for each write, whoever waits for its answer; none for a read.
#[tokio::test]
async fn writes_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let audit = Arc::new(Audit::open(Target::File(path.clone())).unwrap());
    let used = Arc::clone(&audit);
    let server = Server::start(move |options| options.watch.audit = Some(used)).await;
    let names = ["set_interval", "replayed", "get_automation", "busy", "forbidden", "panics"];
    for name in names {
        let _reply = server.post(call_of(name)).await;
    }
    audit.close();
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["duration_us"].is_u64() && line["at"].is_string(), "{line}");
        assert_eq!((&line["subject"], &line["workspace"]), (&json!("alice"), &json!("team-a")));
        format!("{} {} {}", line["tool"], line["outcome"], line["replayed"]).replace('"', "")
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    let expected = [
        "set_interval committed false",
        "replayed committed true",
        "busy busy false",
        "forbidden forbidden false",
        "panics internal false",
    ];
    assert_eq!(lines, expected);
}
