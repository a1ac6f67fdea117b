//! The demo says no when a claim does not hold: the same story, over databases that were tampered with.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use counterfoil::rusqlite::Connection;
use counterfoil_server::auth::{Authenticator, TokenEntry};
use counterfoil_server::plan::plan;
use counterfoil_server::run::Engine;
use counterfoil_server::{config, http};
use tokio::net::TcpListener;

use super::page::{Broken, Page};
use super::stage::{CONFIG, DATABASE, SCHEMA, Scene};
use super::{story, verdict};

/// The server of the demo, in this process, so that its database can be tampered with before the story begins.
async fn open(folder: &Path) -> Scene {
    let path = folder.join("counterfoil.toml");
    std::fs::write(folder.join("schema.sql"), SCHEMA).unwrap();
    let config = config::parse(path.to_str().unwrap(), CONFIG).unwrap();
    let plan = plan(&config).0.unwrap();
    let entries = plan.tokens.clone().into_iter();
    let entries = entries.map(|(sha256, principal)| TokenEntry { sha256, principal }).collect();
    let engine = Arc::new(Engine::start(plan).await.unwrap());
    let edge = http::Edge::new(engine, Authenticator::new(entries), http::Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(http::serve(listener, edge, std::future::pending()));
    Scene { address, database: folder.join(DATABASE), server: "in this process".to_owned() }
}

/// Tells the story after `sabotage`; returns what was printed, and how it ended.
fn told(sabotage: &str) -> (String, anyhow::Result<()>) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = runtime.block_on(open(folder.path()));
    Connection::open(&scene.database).unwrap().execute_batch(sabotage).unwrap();
    let mut page = Vec::new();
    let outcome = story::tell(&mut Page::new(&mut page, false), &scene);
    runtime.shutdown_background();
    (String::from_utf8(page).unwrap(), outcome)
}

/// The story ends at `claim`, says so, and the exit code says it too.
fn check(sabotage: &str, claim: &str, came: &str) {
    let (page, outcome) = told(sabotage);
    let error = outcome.expect_err(claim);
    let broken = error.downcast_ref::<Broken>().unwrap_or_else(|| panic!("{error:#}"));
    assert_eq!((broken.claim.as_str(), broken.came.to_string().as_str()), (claim, came), "{page}");
    let shown = format!("✗ {claim}\n     expected {}\n     came     {came}\n", broken.expected);
    assert!(page.ends_with(&shown), "{page}");
    assert_eq!(format!("{:?}", verdict(Err(error)).unwrap()), format!("{:?}", ExitCode::from(1)));
}

#[test]
fn what_holds_is_told_to_its_end() {
    let (page, outcome) = told("");
    outcome.unwrap();
    assert!(!page.contains('✗'), "{page}");
    assert!(!page.contains('\u{1b}'), "{page}");
}

#[test]
fn a_claim_that_does_not_hold_ends_the_story() {
    let on_receipt = |then: &str| {
        format!("CREATE TRIGGER sabotage AFTER INSERT ON counterfoil_receipts BEGIN {then}; END")
    };
    check(
        "UPDATE automations SET interval_minutes = 20, version = 2 WHERE id = 1",
        "it runs every 15 minutes, at version 1",
        r#"{"id":1,"interval_minutes":20,"version":2}"#,
    );
    check(
        &on_receipt("DELETE FROM counterfoil_receipts"),
        "replayed from its receipt, not run again",
        "null",
    );
    check(
        &on_receipt("UPDATE counterfoil_receipts SET result = replace(result, '30', '31')"),
        "the result is that of the lost answer, byte for byte",
        r#""{\"id\":1,\"interval_minutes\":31,\"version\":2}""#,
    );
    check(
        &on_receipt(
            "INSERT INTO counterfoil_receipts SELECT workspace, issuer, subject, tool, 'another', state, \
             committed_at, revision, fingerprint, intent, result FROM counterfoil_receipts",
        ),
        "there is one receipt",
        r#"["another","edit-42"]"#,
    );
}

#[test]
fn an_interrupted_demo_is_not_a_broken_one() {
    let other = verdict(Err(anyhow::anyhow!("the server cannot be reached")));
    assert!(other.is_err());
    assert_eq!(
        format!("{:?}", verdict(Ok(ExitCode::from(130))).unwrap()),
        format!("{:?}", ExitCode::from(130))
    );
}
