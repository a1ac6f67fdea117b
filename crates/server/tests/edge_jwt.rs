//! S3: signed tokens over HTTP, with keys made here. Every token that is wrong in one thing is 401, and they all look
//! alike from outside.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use counterfoil_core::Issuer;
use counterfoil_server::auth::{Algorithm, FRESH, PAUSE, SIZE, STALE, Trusted};
use ring::hmac;
use serde_json::{Value, json};
use support::identity::{
    AUDIENCE, Hand, ISSUER, NOW, Provider, Served, Signer, base64, claims, set, trusted, trusting, with,
};
use support::{Reply, Request, Server, call};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

fn bearing(token: &str) -> Request {
    Request::post(call("{}")).with("Authorization", &format!("Bearer {token}"))
}

/// Who the token stands for: subject, workspace and scopes.
async fn check_taken(server: &Server, token: &str, at: &str, expected: (&str, &str, &str)) {
    let reply = server.send(&bearing(token).at(&format!("POST {at}"))).await;
    assert_eq!(reply.status, 200, "{at}: {reply:?}");
    let who = server.engine.callers.lock().unwrap().pop().unwrap();
    let scopes: Vec<&str> = who.scopes.iter().map(|scope| scope.as_str()).collect();
    assert_eq!((who.subject.as_str(), who.workspace.as_str(), &*scopes.join(" ")), expected);
    assert!(server.engine.last().is_some());
}

async fn check_refused(server: &Server, what: &str, token: &str) -> Reply {
    let reply = server.send(&bearing(token)).await;
    assert_eq!(reply.status, 401, "{what}: {reply:?}");
    assert_eq!(server.engine.begun(), 0, "{what}");
    assert!(!reply.body.contains(token), "{what}: a token is never shown");
    reply
}

struct Keys {
    rsa: Signer,
    rsa2: Signer,
    p256: Signer,
    p384: Signer,
    ed: Signer,
}

impl Keys {
    fn new() -> Self {
        Self {
            rsa: Signer::rsa("rsa"),
            rsa2: Signer::rsa("rsa"),
            p256: Signer::p256("p256"),
            p384: Signer::p384("p384"),
            ed: Signer::ed25519("ed"),
        }
    }

    fn all(&self) -> Vec<Value> {
        [&self.rsa, &self.rsa2, &self.p256, &self.p384, &self.ed].map(Signer::jwk).to_vec()
    }
}

/// A server that trusts one issuer whose key set is this text.
async fn server(keys: &[Value]) -> (Server, Provider, std::sync::Arc<Hand>) {
    let provider = Provider::start(Served::Set(set(keys))).await;
    let clock = Hand::new();
    let known = trusting(vec![trusted(provider.source())], &clock);
    (Server::knowing(known, |_| {}).await, provider, clock)
}

#[tokio::test]
async fn tokens_that_are_right() {
    let keys = Keys::new();
    let mut listed = keys.all();
    // What a set may hold besides: keys of other kinds and for other ends, and members nobody knows.
    listed.insert(0, json!({"kty": "AKP", "kid": "rsa", "alg": "ML-DSA-65", "pub": "AA"}));
    listed.insert(0, json!({"kty": "OKP", "crv": "X25519", "kid": "ed", "x": base64([1; 32]), "use": "enc"}));
    listed.insert(0, json!("nonsense"));
    let (server, provider, _clock) = server(&listed).await;
    let alice = ("alice", "team-a", "automation:read automation:write");
    for alg in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
        check_taken(&server, &keys.rsa.sign(alg, &claims()), "/mcp", alice).await;
    }
    // Two keys of one name: the one that signed is found.
    check_taken(&server, &keys.rsa2.sign("RS256", &claims()), "/mcp", alice).await;
    check_taken(&server, &keys.p256.sign("ES256", &claims()), "/mcp", alice).await;
    check_taken(&server, &keys.p384.sign("ES384", &claims()), "/mcp", alice).await;
    check_taken(&server, &keys.ed.sign("EdDSA", &claims()), "/mcp", alice).await;
    check_taken(&server, &keys.ed.sign("Ed25519", &claims()), "/mcp", alice).await;
    let headers = [
        json!({"alg": "ES256"}),
        json!({"alg": "ES256", "typ": "JWT", "kid": "p256", "jku": "https://evil.example.com/", "jwk": keys.ed.jwk()}),
        json!({"alg": "ES256", "typ": "application/at+jwt", "kid": "p256", "x5u": "https://evil.example.com/"}),
    ];
    for header in headers {
        let token = keys.p256.token(&header.to_string(), &claims().to_string());
        check_taken(&server, &token, "/mcp", alice).await;
    }
    let read = ("alice", "team-a", "automation:read");
    let shapes = [
        (with("scope", json!("automation:read")), read),
        (with("scope", json!(["automation:read"])), read),
        (with("scope", json!(["automation:read", "\"quotes\""])), read),
        (with("scope", json!("")), ("alice", "team-a", "")),
        (with("scope", json!([])), ("alice", "team-a", "")),
        (with("aud", json!(["https://other.example.com", AUDIENCE])), alice),
        (with("workspace_id", json!(["team-a"])), alice),
        (with("sub", json!("Alice")), ("Alice", "team-a", alice.2)),
        (with("exp", json!(1e300)), alice),
        (with("email", json!("someone@else.example.com")), alice),
        (with("nbf", None), alice),
    ];
    for (claims, expected) in shapes {
        check_taken(&server, &keys.p256.sign("ES256", &claims), "/mcp", expected).await;
    }
    // The other way in is still there.
    check_taken(&server, support::TOKEN, "/mcp", ("alice", "team-a", "automation:read automation:write"))
        .await;
    assert_eq!(provider.hits(), 1, "the keys are fetched once");
}

fn flipped(token: &str, part: usize) -> String {
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let first = if parts[part].starts_with('A') { "B" } else { "A" };
    parts[part].replace_range(..1, first);
    parts.join(".")
}

/// Tokens that are wrong in one thing: in the signature, or the key, or what holds it together.
fn forged(keys: &Keys) -> Vec<(&'static str, String)> {
    let good = keys.p256.sign("ES256", &claims());
    let (claims, es256) = (claims().to_string(), json!({"alg": "ES256", "kid": "p256"}).to_string());
    let header = |members: Value| keys.p256.token(&members.to_string(), &claims);
    let unsigned = |alg: &str| format!("{}.{}.", base64(json!({"alg": alg}).to_string()), base64(&claims));
    let hmac_with = |secret: &[u8]| {
        let message = format!("{}.{}", base64("{\"alg\":\"HS256\",\"kid\":\"p256\"}"), base64(&claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        format!("{message}.{}", base64(tag))
    };
    let stranger = Signer::p256("p256");
    let nested =
        keys.p256.token("{\"alg\":\"ES256\",\"kid\":\"p256\",\"cty\":\"JWT\"}", &format!("\"{good}\""));
    let message = good.rsplit_once('.').unwrap().0;
    vec![
        ("alg none", unsigned("none")),
        ("alg None", unsigned("None")),
        ("alg nOnE, with a signature", header(json!({"alg": "nOnE", "kid": "p256"}))),
        ("no alg", header(json!({"kid": "p256"}))),
        ("alg is no text", header(json!({"alg": ["ES256"], "kid": "p256"}))),
        ("alg in small letters", header(json!({"alg": "es256", "kid": "p256"}))),
        ("alg of a curve that is not known", header(json!({"alg": "ES256K", "kid": "p256"}))),
        ("HMAC with the public key", hmac_with(&keys.p256.public())),
        ("HMAC with the key set's text", hmac_with(keys.p256.jwk().to_string().as_bytes())),
        ("HMAC with nothing", hmac_with(b"")),
        ("a key of another type", keys.rsa.token(&es256, &claims)),
        ("another type's name for the key", header(json!({"alg": "RS256", "kid": "p256"}))),
        ("another curve", keys.p384.token(&es256, &claims)),
        ("another's key under a known name", stranger.sign("ES256", &support::identity::claims())),
        ("another's key without a name", stranger.token("{\"alg\":\"ES256\"}", &claims)),
        (
            "its own key brought along",
            stranger.token(&json!({"alg": "ES256", "jwk": stranger.jwk()}).to_string(), &claims),
        ),
        ("an unknown kid", header(json!({"alg": "ES256", "kid": "other"}))),
        ("a kid that is a path", header(json!({"alg": "ES256", "kid": "../../dev/null"}))),
        ("a kid that is no text", header(json!({"alg": "ES256", "kid": 1}))),
        ("an empty kid", header(json!({"alg": "ES256", "kid": ""}))),
        ("a huge kid", header(json!({"alg": "ES256", "kid": "k".repeat(2000)}))),
        ("two kids", keys.p256.token("{\"alg\":\"ES256\",\"kid\":\"p256\",\"kid\":\"p256\"}", &claims)),
        ("two algs", keys.p256.token("{\"alg\":\"none\",\"kid\":\"p256\",\"alg\":\"ES256\"}", &claims)),
        ("crit", header(json!({"alg": "ES256", "kid": "p256", "crit": ["exp"]}))),
        ("an empty crit", header(json!({"alg": "ES256", "kid": "p256", "crit": []}))),
        ("b64", header(json!({"alg": "ES256", "kid": "p256", "b64": false, "crit": ["b64"]}))),
        ("b64 alone", header(json!({"alg": "ES256", "kid": "p256", "b64": true}))),
        ("another type of token", header(json!({"alg": "ES256", "kid": "p256", "typ": "logout+jwt"}))),
        ("typ is no text", header(json!({"alg": "ES256", "kid": "p256", "typ": 1}))),
        ("nested", nested),
        ("claims that are no object", keys.p256.token(&es256, "[]")),
        ("claims that are no JSON", keys.p256.token(&es256, "alice")),
        ("a claim twice", keys.p256.token(&es256, &claims.replacen('{', "{\"sub\":\"bob\",", 1))),
        ("claims nested deep", keys.p256.token(&es256, &format!("{}{}", "[".repeat(5000), "]".repeat(5000)))),
        ("header flipped", flipped(&good, 0)),
        ("claims flipped", flipped(&good, 1)),
        ("signature flipped", flipped(&good, 2)),
        ("no signature", format!("{message}.")),
        ("half a signature", good[..good.len() - 43].to_owned()),
        ("a signature of zeros", format!("{message}.{}", base64([0; 64]))),
        ("two parts", message.to_owned()),
        ("four parts", format!("{good}.{}", base64("x"))),
        ("five parts", format!("{good}.a.b")),
        ("padded", format!("{good}=")),
        ("not base64url", good.replace('.', ".+")),
        ("only dots", "..".to_owned()),
        ("no token at all", "x".to_owned()),
    ]
}

/// Claims that are wrong in one thing.
fn unfit() -> Vec<(&'static str, Value)> {
    vec![
        ("another audience", with("aud", json!("https://other.example.com/mcp"))),
        ("the audience's beginning", with("aud", json!("https://tools.example.com"))),
        ("the audience with a slash", with("aud", json!(format!("{AUDIENCE}/")))),
        ("a workspace's audience, without that path", with("aud", json!(format!("{AUDIENCE}/team-a")))),
        ("no audience", with("aud", None)),
        ("an empty list of audiences", with("aud", json!([]))),
        ("an audience that is no text", with("aud", json!({"x": AUDIENCE}))),
        ("another issuer", with("iss", json!("https://evil.example.com"))),
        ("the issuer with a slash", with("iss", json!(format!("{ISSUER}/")))),
        ("the issuer of the static tokens", with("iss", json!("local"))),
        ("no issuer", with("iss", None)),
        ("issuers in a list", with("iss", json!([ISSUER]))),
        ("expired", with("exp", json!(NOW - 60))),
        ("expired long ago", with("exp", json!(0))),
        ("expired before all time", with("exp", json!(-1e300))),
        ("no exp", with("exp", None)),
        ("exp null", with("exp", Value::Null)),
        ("exp is text", with("exp", json!((NOW + 300).to_string()))),
        ("not yet valid", with("nbf", json!(NOW + 61))),
        ("nbf is text", with("nbf", json!("0"))),
        ("no subject", with("sub", None)),
        ("an empty subject", with("sub", json!(""))),
        ("a subject that is a number", with("sub", json!(7))),
        ("several subjects", with("sub", json!(["alice"]))),
        ("a subject with NUL", with("sub", json!("alice\0"))),
        ("a long subject", with("sub", json!("a".repeat(513)))),
        ("no workspace", with("workspace_id", None)),
        ("an empty workspace", with("workspace_id", json!(""))),
        ("no workspace in the list", with("workspace_id", json!([]))),
        ("a workspace that is a number", with("workspace_id", json!([1]))),
        ("too many workspaces", with("workspace_id", json!(vec!["a"; 257]))),
        ("no scopes", with("scope", None)),
        ("scopes are an object", with("scope", json!({"automation:write": true}))),
        ("a scope is a number", with("scope", json!(["automation:write", 1]))),
    ]
}

#[tokio::test]
async fn tokens_that_are_wrong() {
    let keys = Keys::new();
    let (server, provider, _clock) = server(&keys.all()).await;
    let mut bodies: Vec<String> = Vec::new();
    let signed = unfit().into_iter().map(|(what, claims)| (what, keys.p256.sign("ES256", &claims)));
    for (what, token) in forged(&keys).into_iter().chain(signed) {
        let reply = check_refused(&server, what, &token).await;
        let malformed =
            what == "not base64url" && reply.header("www-authenticate").unwrap().contains("invalid_request");
        if !malformed {
            assert_eq!(reply.header("www-authenticate"), Some("Bearer error=\"invalid_token\""), "{what}");
            bodies.push(reply.body);
        }
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]), "which thing is wrong is not told");
    assert!(provider.hits() <= 2, "strangers' tokens make nobody fetch keys again and again");
    // And with the same keys a right one passes.
    check_taken(
        &server,
        &keys.p256.sign("ES256", &claims()),
        "/mcp",
        ("alice", "team-a", "automation:read automation:write"),
    )
    .await;
}

/// Sent in another way than as one bearer token in its header.
#[tokio::test]
async fn ways_to_send_a_token() {
    let key = Signer::p256("p256");
    let (server, _provider, _clock) = server(&[key.jwk()]).await;
    let token = key.sign("ES256", &claims());
    let ok = || bearing(&token);
    let requests = [
        ok().and("Authorization", &format!("Bearer {token}")),
        ok().and("Authorization", "Basic eDp5"),
        ok().with("Authorization", &format!("Bearer {token},Bearer {token}")),
        ok().with("Authorization", &format!("Bearer {token} x")),
        ok().with("Authorization", &format!("Bearer \u{a0}{token}")),
        ok().with("Authorization", &format!("Bearer\t{token}")),
        ok().with("Authorization", &format!("Bearer{token}")),
        ok().with("Authorization", &format!("DPoP {token}")),
        ok().with("Authorization", &format!("Bearer \"{token}\"")),
        ok().with("Authorization", &format!("Bearer {token}{}", "A".repeat(20_000))),
        ok().without("Authorization").at(&format!("POST /mcp?access_token={token}")),
        ok().without("Authorization").and("X-Access-Token", &token),
        ok().without("Authorization").and("Cookie", &format!("access_token={token}")),
        ok().without("Authorization").and("Proxy-Authorization", &format!("Bearer {token}")),
    ];
    for request in requests {
        let reply = server.send(&request).await;
        assert_eq!(reply.status, 401, "{:?} {}: {reply:?}", request.headers, request.line);
        assert_eq!(server.engine.begun(), 0);
    }
    for spelled in ["bearer", "BEARER"] {
        assert_eq!(
            server.send(&ok().with("Authorization", &format!("{spelled}   {token}  "))).await.status,
            200
        );
    }
}

/// `exp` and `nbf` with sixty seconds of leeway, a microsecond to each side.
#[tokio::test]
async fn the_edges_of_time() {
    let key = Signer::p256("p256");
    let (server, _provider, clock) = server(&[key.jwk()]).await;
    let minute = 60_000_000;
    let cases = [
        (json!({"exp": NOW}), -1, true),
        (json!({"exp": NOW}), 0, true),
        (json!({"exp": NOW}), minute - 1, true),
        (json!({"exp": NOW}), minute, false),
        (json!({"exp": NOW}), minute + 1, false),
        (json!({"exp": NOW as f64 + 0.5}), minute + 499_999, true),
        (json!({"exp": NOW as f64 + 0.5}), minute + 500_000, false),
        (json!({"exp": NOW + 3600, "nbf": NOW}), -minute - 1, false),
        (json!({"exp": NOW + 3600, "nbf": NOW}), -minute, true),
        (json!({"exp": NOW + 3600, "nbf": NOW}), 0, true),
    ];
    for (times, offset, taken) in cases {
        let mut claims = with("nbf", None);
        claims.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        let token = key.sign("ES256", &claims);
        clock.move_by(offset);
        let reply = server.send(&bearing(&token)).await;
        clock.move_by(-offset);
        assert_eq!(reply.status == 200, taken, "{times} {offset}: {reply:?}");
    }
}

/// Keys that say what they are for are used for nothing else.
#[tokio::test]
async fn keys_are_used_for_what_they_are_for() {
    let (key, rsa) = (Signer::p256("k"), Signer::rsa("k"));
    let saying = |jwk: Value, name: &str, value: Value| {
        let mut jwk = jwk;
        jwk[name] = value;
        jwk
    };
    let cases = [
        (key.jwk(), "ES256", true),
        (saying(key.jwk(), "use", json!("sig")), "ES256", true),
        (saying(key.jwk(), "use", json!("enc")), "ES256", false),
        (saying(key.jwk(), "alg", json!("ES256")), "ES256", true),
        (saying(key.jwk(), "alg", json!("ECDH-ES")), "ES256", false),
        (saying(key.jwk(), "key_ops", json!(["verify"])), "ES256", true),
        (saying(key.jwk(), "key_ops", json!(["sign", "encrypt"])), "ES256", false),
        (saying(key.jwk(), "kty", json!("oct")), "ES256", false),
        (saying(key.jwk(), "crv", json!("P-384")), "ES256", false),
        (saying(key.jwk(), "x", json!("AA")), "ES256", false),
        (saying(rsa.jwk(), "alg", json!("RS256")), "RS256", true),
        (saying(rsa.jwk(), "alg", json!("RS256")), "RS512", false),
        (saying(rsa.jwk(), "alg", json!("RS256")), "PS256", false),
        (saying(rsa.jwk(), "n", json!(base64([&[0][..], &rsa.public()].concat()))), "RS256", true),
    ];
    for (jwk, alg, taken) in cases {
        let (server, _provider, _clock) = server(std::slice::from_ref(&jwk)).await;
        let signer = if alg == "ES256" { &key } else { &rsa };
        let reply = server.send(&bearing(&signer.sign(alg, &claims()))).await;
        assert_eq!(reply.status == 200, taken, "{jwk} {alg}: {reply:?}");
    }
}

/// An issuer is judged by its own keys and its own allow-list, and the same subject at two of them is two callers.
#[tokio::test]
async fn several_issuers() {
    let (mine, other, rsa) = (Signer::p256("k"), Signer::p256("k"), Signer::rsa("rsa"));
    let first = Provider::start(Served::Set(set(&[mine.jwk()]))).await;
    let second = Provider::start(Served::Set(set(&[other.jwk(), rsa.jwk()]))).await;
    let clock = Hand::new();
    let named = "https://login.example.org";
    let elsewhere = Trusted {
        issuer: Issuer::parse(named).unwrap(),
        algorithms: vec![Algorithm::Es256],
        audiences: vec!["api://tools".to_owned()],
        subject: "uid".to_owned(),
        ..trusted(second.source())
    };
    let known = trusting(vec![trusted(first.source()), elsewhere], &clock);
    let server = Server::knowing(known, |_| {}).await;
    let theirs = json!({"iss": named, "aud": "api://tools", "uid": "alice", "sub": "x", "workspace_id": "team-a", "scope": "s", "exp": NOW + 1});
    for token in [mine.sign("ES256", &claims()), other.sign("ES256", &theirs)] {
        assert_eq!(server.send(&bearing(&token)).await.status, 200);
    }
    let callers = server.engine.callers.lock().unwrap().clone();
    let named_alike = callers.iter().all(|caller| caller.subject.as_str() == "alice");
    assert!(named_alike && callers[0].caller() != callers[1].caller(), "{callers:?}");
    let _both = (server.engine.last(), server.engine.last());
    let swapped = [
        ("one's claims with the other's key", other.sign("ES256", &claims())),
        ("the other's claims with one's key", mine.sign("ES256", &theirs)),
        ("its own key, by an algorithm that it is not to use", rsa.sign("RS256", &theirs)),
    ];
    for (what, token) in swapped {
        check_refused(&server, what, &token).await;
    }
}

/// A caller of several workspaces picks one by the path, among those that the claim lists.
#[tokio::test]
async fn a_workspace_is_picked_by_the_path() {
    let key = Signer::p256("p256");
    let (server, _provider, _clock) = server(&[key.jwk()]).await;
    let several = with("workspace_id", json!(["team-a", "team b/ü", "..x"]));
    let bound = |workspace: &str| {
        let mut claims = several.clone();
        claims["aud"] = json!(format!("{AUDIENCE}/{workspace}"));
        claims
    };
    let scopes = "automation:read automation:write";
    let taken = [
        (&several, "/mcp/team-a", "team-a"),
        (&several, "/mcp/team%20b%2F%C3%BC", "team b/ü"),
        (&several, "/mcp/te%61m-a", "team-a"),
        (&several, "/mcp/..x", "..x"),
        (&claims(), "/mcp/team-a", "team-a"),
        (&bound("team-a"), "/mcp/team-a", "team-a"),
        (&bound("team%20b%2F%C3%BC"), "/mcp/team%20b%2f%c3%bc", "team b/ü"),
    ];
    for (claims, at, workspace) in taken {
        check_taken(&server, &key.sign("ES256", claims), at, ("alice", workspace, scopes)).await;
    }
    let stopped = [
        (several.clone(), "/mcp", 403),
        (several.clone(), "/mcp/team-b", 403),
        (several.clone(), "/mcp/Team-A", 403),
        (several.clone(), "/mcp/team-a%00", 403),
        (claims(), "/mcp/team-b", 403),
        (bound("team-a"), "/mcp/..x", 401),
        (several.clone(), "/mcp/", 404),
        (several.clone(), "/mcp/team-a/", 404),
        (several.clone(), "/mcp/team-a/x", 404),
        (several, "/mcp/%ff", 404),
    ];
    for (claims, at, status) in stopped {
        let reply = server.send(&bearing(&key.sign("ES256", &claims)).at(&format!("POST {at}"))).await;
        assert_eq!((reply.status, server.engine.begun()), (status, 0), "{at}: {reply:?}");
    }
    let own = |at: &str| Request::post(call("{}")).at(&format!("POST {at}"));
    assert_eq!(server.send(&own("/mcp/team-a")).await.status, 200);
    assert_eq!(server.send(&own("/mcp/team-b")).await.status, 403);
}

/// What a provider may do instead of serving its keys.
fn trouble() -> Vec<(&'static str, Served)> {
    vec![
        ("silent", Served::Nothing),
        ("10 MB", Served::Large(10 << 20)),
        ("just too large", Served::Large(SIZE)),
        ("failing", Served::Status("500 Internal Server Error", String::new())),
        ("gone", Served::Status("404 Not Found", String::new())),
        ("empty", Served::Set(String::new())),
        ("no JSON", Served::Set("<html>".into())),
        ("no keys", Served::Set("{}".into())),
        ("keys that are none", Served::Set("{\"keys\":{}}".into())),
        ("too many keys", Served::Set(set(&vec![json!({}); 101]))),
    ]
}

/// Keys that cannot be had at first: nobody is judged, and everybody is told to come back. They come, all is well.
/// They cannot be had later: the old ones serve for a day.
#[tokio::test]
async fn keys_that_cannot_be_had() {
    let key = Signer::p256("p256");
    let elsewhere = Provider::start(Served::Set(set(&[key.jwk()]))).await;
    let redirect =
        Served::Status("302 Found", format!("Location: http://{}/jwks.json\r\n", elsewhere.address));
    for (what, served) in trouble().into_iter().chain([("redirecting", redirect)]) {
        let provider = Provider::start(served.clone()).await;
        let clock = Hand::new();
        let issuer = Trusted { patience: Duration::from_millis(300), ..trusted(provider.source()) };
        let server = Server::knowing(trusting(vec![issuer], &clock), |_| {}).await;
        let call = || async {
            let token = key.sign("ES256", &with("exp", json!(NOW + 1_000_000)));
            let reply = server.send(&bearing(&token)).await;
            (reply.status, reply.header("retry-after").map(str::to_owned))
        };
        let later = (503, Some(PAUSE.as_secs().to_string()));
        assert_eq!(call().await, later, "{what}");
        provider.serve(Served::Set(set(&[key.jwk()])));
        assert_eq!(call().await, later, "{what}: not asked again at once");
        assert_eq!(provider.hits(), 1, "{what}");
        clock.pass(PAUSE);
        assert_eq!(call().await, (200, None), "{what}: it has recovered");
        provider.serve(served);
        clock.pass(FRESH);
        assert_eq!(call().await, (200, None), "{what}: the old keys serve");
        assert_eq!(provider.hits(), 3, "{what}");
        clock.pass(STALE);
        assert_eq!(call().await, later, "{what}: and not for ever");
    }
    assert_eq!(elsewhere.hits(), 0, "redirects are not followed");
}

/// An unknown key is looked for, at most so often; a key that is taken out is good no longer than a set is fresh.
#[tokio::test]
async fn keys_come_and_go() {
    let (old, new) = (Signer::p256("old"), Signer::p256("new"));
    let (server, provider, clock) = server(&[old.jwk()]).await;
    let status = |signer: &Signer| {
        let token = signer.sign("ES256", &with("exp", json!(NOW + 1_000_000)));
        let request = bearing(&token);
        let server = &server;
        async move { server.send(&request).await.status }
    };
    assert_eq!((status(&old).await, provider.hits()), (200, 1));
    provider.serve(Served::Set(set(&[old.jwk(), new.jwk()])));
    assert_eq!((status(&new).await, provider.hits()), (401, 1), "a moment ago it was not there");
    clock.pass(PAUSE);
    assert_eq!((status(&new).await, provider.hits()), (200, 2), "an unknown key is looked for");
    for _ in 0..5 {
        assert_eq!(status(&Signer::p256("unheard-of")).await, 401);
    }
    assert_eq!(provider.hits(), 2, "strangers do not make it ask again");
    provider.serve(Served::Set(set(&[new.jwk()])));
    assert_eq!((status(&old).await, provider.hits()), (200, 2));
    clock.pass(FRESH);
    assert_eq!((status(&old).await, status(&new).await, provider.hits()), (401, 200, 3), "it was taken out");
    // A clock that was put back a day does not keep a set for a day more.
    provider.serve(Served::Set(set(&[old.jwk()])));
    clock.move_by(-86_400_000_000);
    let early = with("nbf", None);
    assert_eq!(server.send(&bearing(&new.sign("ES256", &early))).await.status, 401);
}

/// A caller who hangs up while keys are being fetched takes them from nobody.
#[tokio::test]
async fn a_fetch_outlives_who_asked_for_it() {
    let key = Signer::p256("p256");
    let (release, held) = tokio::sync::watch::channel(false);
    let provider = Provider::start(Served::Held(held, set(&[key.jwk()]))).await;
    let server = Server::knowing(trusting(vec![trusted(provider.source())], &Hand::new()), |_| {}).await;
    let request = bearing(&key.sign("ES256", &claims()));
    let mut first = TcpStream::connect(server.address).await.unwrap();
    first.write_all(&request.bytes(server.address)).await.unwrap();
    while provider.hits() == 0 {
        tokio::task::yield_now().await;
    }
    drop(first);
    let mut second = Box::pin(server.send(&request));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut second).await;
    assert!(early.is_err(), "the fetch goes on, and whoever comes meanwhile waits for it: {early:?}");
    release.send_replace(true);
    assert_eq!((second.await.status, provider.hits()), (200, 1));
}

/// From a file, too.
#[tokio::test]
async fn keys_in_a_file() {
    let (old, new) = (Signer::ed25519("old"), Signer::ed25519("new"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    std::fs::write(&path, set(&[old.jwk()])).unwrap();
    let clock = Hand::new();
    let issuer = trusted(counterfoil_server::auth::Source::File(path.clone()));
    let server = Server::knowing(trusting(vec![issuer], &clock), |_| {}).await;
    let token = |signer: &Signer| bearing(&signer.sign("EdDSA", &with("exp", json!(NOW + 100_000))));
    assert_eq!(server.send(&token(&old)).await.status, 200);
    std::fs::write(&path, set(&[new.jwk()])).unwrap();
    clock.pass(PAUSE);
    assert_eq!(server.send(&token(&new)).await.status, 200);
    assert_eq!(server.send(&token(&old)).await.status, 401);
}
