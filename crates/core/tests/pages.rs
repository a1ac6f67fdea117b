//! The pages of `docs/errors`: each has its title, its headings and an example that is what the code really says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panic")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use counterfoil_core::{Code, FieldError, Refusal, Timestamp};

const HEADINGS: [&str; 4] = ["Cause", "What `operation` tells", "Fix", "Example"];

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

/// The refusal that a code's page shows.
fn example(code: Code) -> Refusal {
    let at = Timestamp::parse("2026-11-30T09:15:02.481516Z").unwrap();
    let row = || Some("{\"id\":1,\"interval_minutes\":15,\"version\":2}".into());
    match code {
        Code::Forbidden => Refusal::forbidden("automation:write"),
        Code::RequestIdRequired => Refusal::request_id_required(),
        Code::InvalidRequestId => {
            Refusal::invalid_request_id("must be 1 to 64 characters of A-Z a-z 0-9 _ -")
        }
        Code::InvalidArguments => {
            let absent = FieldError::new("/expected_version", "is required");
            Refusal::invalid_arguments(vec![
                absent,
                FieldError::new("/interval_minutes", "must be at least 5"),
            ])
        }
        Code::ResourceUnavailable => Refusal::resource_unavailable(),
        Code::RequestIdReused => Refusal::request_id_reused(),
        Code::RevisionChanged => Refusal::revision_changed(at),
        Code::RequestIdVoided => Refusal::request_id_voided(),
        Code::RequestIdExpired => Refusal::result_expired(at),
        Code::VersionConflict => Refusal::version_conflict(row()),
        Code::PreconditionFailed => Refusal::precondition_failed(row()),
        Code::ConstraintViolated => {
            Refusal::constraint_violated("UNIQUE constraint failed: automations.name")
        }
        Code::ResultTooLarge => Refusal::result_too_large(262_144),
        Code::Busy => Refusal::busy(Duration::from_millis(250)),
        Code::RateLimited => Refusal::rate_limited(Duration::from_secs(2)),
        Code::OutcomeUnknown => Refusal::outcome_unknown(Duration::from_secs(1)),
        Code::Internal => Refusal::internal("7f3a9c1e"),
    }
}

#[test]
fn every_page_has_its_title_and_headings() {
    for code in Code::ALL {
        let page = code.page();
        assert!(page.starts_with(&format!("# `{code}`\n")), "{code}: its title is not its name");
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{code}");
    }
}

#[test]
fn every_example_is_what_the_code_says() {
    for code in Code::ALL {
        let body: serde_json::Value = serde_json::from_str(&example(code).body()).unwrap();
        let shown = format!("```json\n{}\n```\n", serde_json::to_string_pretty(&body).unwrap());
        assert!(code.page().contains(&shown), "{code}: its page should show\n{shown}");
    }
}

#[test]
fn there_is_a_page_for_every_code_and_no_other() {
    let names = std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut found: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(found.remove("README.md"));
    assert_eq!(found, Code::ALL.iter().map(|code| format!("{code}.md")).collect());
}

#[test]
fn the_index_lists_all_with_their_advice() {
    let index = std::fs::read_to_string(directory().join("README.md")).unwrap();
    for code in Code::ALL {
        let row = format!("| [`{code}`]({code}.md) | {} | `{}` |", code.status(), code.retry().as_str());
        assert!(index.contains(&row), "the index should have a row that begins with\n{row}");
    }
}
