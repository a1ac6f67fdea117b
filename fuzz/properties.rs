//! What must hold for every input: once for the fuzzer, and once for `crates/server/tests/fuzz.rs`, which holds the
//! seeds and mutations of them to it on any toolchain.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use counterfoil::{Clock, SystemClock};
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::{Fingerprint, Issuer, Principal, Schema, Subject, ToolName, Workspace};
use counterfoil_server::auth::{Algorithm, Authenticator, Source, TokenEntry, TokenHash, Trusted};
use counterfoil_server::{config, front};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use serde_json::Value;

/// A property of inputs.
pub(crate) type Property = fn(&[u8]);

/// Every one, by the name of its fuzz target and of its folder of seeds.
pub(crate) const ALL: [(&str, Property); 4] = [
    ("request_body", request_body),
    ("config_file", config_file),
    ("token_header", token_header),
    ("canonical_intent", canonical_intent),
];

/// A body in front of the MCP library: what passes is JSON without the arguments, what does not is a JSON-RPC error.
pub(crate) fn request_body(bytes: &[u8]) {
    match front::read(bytes.to_vec().into(), Bounds::default(), Vec::new()) {
        Ok(message) => {
            let handed: Value = match serde_json::from_slice(&message.body) {
                Ok(handed) => handed,
                // JSON all the same, of which the library says that it does not fit.
                Err(error) => return assert!(error.to_string().contains("number out of range"), "{error}"),
            };
            assert_eq!(handed["jsonrpc"], "2.0");
            if message.given.is_some() {
                assert_eq!(handed["method"], "tools/call");
                let params = handed["params"].as_object().expect("params");
                assert!(params.keys().all(|name| name == "name" || name == "_meta"), "{handed}");
            }
        }
        Err(rejection) => {
            let told: Value = serde_json::from_str(&rejection.body()).expect("an error is JSON");
            let code = told["error"]["code"].as_i64();
            assert!(matches!(code, Some(-32700 | -32600 | -32602)), "{told}");
        }
    }
}

/// A config file: it is understood, or there is a picture of every mistake.
pub(crate) fn config_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(report) = config::parse("c.toml", text) {
        assert!(report.errors() > 0 && report.plain().contains("c.toml"), "{text}");
        let _drawn = report.coloured();
    }
}

/// An `Authorization` header by somebody who knows no token and has no key: nobody gets in.
pub(crate) fn token_header(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let known = Authenticator::new(vec![alice()]).trusting(vec![trusted()], &clock).expect("keys in a file");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let denied = runtime.block_on(known.authenticate(&headers, None)).expect_err("nobody gets in");
    assert!(denied.status().is_client_error() || denied.status().is_server_error());
}

fn alice() -> TokenEntry {
    let principal = Principal {
        issuer: Issuer::parse("local").expect("a word"),
        subject: Subject::parse("alice").expect("a word"),
        workspace: Workspace::parse("team-a").expect("a word"),
        scopes: BTreeSet::new(),
    };
    // The hash of nothing that is known.
    TokenEntry { sha256: TokenHash([7; 32]), principal: Arc::new(principal) }
}

/// The public key of RFC 8037, appendix A; this file is part of two packages.
fn jwks() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [here.join("jwks.json"), here.join("../../fuzz/jwks.json")];
    places.into_iter().find(|path| path.exists()).expect("the key's file")
}

fn trusted() -> Trusted {
    Trusted {
        issuer: Issuer::parse("https://id.example.com").expect("a word"),
        audiences: vec!["a".to_owned()],
        keys: Source::File(jwks()),
        patience: std::time::Duration::from_secs(5),
        algorithms: Algorithm::ALL.map(|(_, algorithm)| algorithm).to_vec(),
        leeway: std::time::Duration::ZERO,
        workspace: "w".to_owned(),
        subject: "sub".to_owned(),
        scopes: "scope".to_owned(),
    }
}

const SCHEMA: &[u8] = br#"{"type":"object","properties":{
    "s":{"type":"string"},"b":{"type":["boolean","null"]},"l":{"type":"array","items":{"type":"string"}},
    "n":{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991}}}"#;

/// Two documents, a line break between them: equal values have one fingerprint, different ones differ. Whether they
/// are equal is `serde_json`'s to say, which shares no code with ours.
pub(crate) fn canonical_intent(bytes: &[u8]) {
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let both = [&bytes[..at], &bytes[at + 1..]].map(fingerprint);
    if let [Some((one, first)), Some((other, second))] = both {
        assert_eq!(one == other, first == second, "{first:?} {second:?}");
    }
}

fn fingerprint(text: &[u8]) -> Option<(Fingerprint, Value)> {
    let schema =
        Schema::compile(&json::parse(SCHEMA, Bounds::default()).expect("a schema")).expect("a schema");
    let value = json::parse(text, Bounds::default()).ok()?;
    let intent = schema.read(&value).ok()?;
    let mut plain: Value = serde_json::from_slice(text).expect("what the strict reader takes is JSON");
    // An integer within 2^53 is exact as a double, however it is spelled; and 0 is -0.
    if let Some(number) = plain.get_mut("n") {
        *number = (number.as_f64().expect("a number") + 0.0).into();
    }
    // Maps of `serde_json` may keep an order, and compare without it.
    Some((Fingerprint::of(&ToolName::parse("t").expect("a word"), &intent), plain))
}
