//! Every refusal as it stands on the wire: the literal JSON of each code, and the table of the contract.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panic")]

use std::time::Duration;

use counterfoil_core::{Code, FieldError, Refusal, Timestamp};

const AT: Timestamp = Timestamp::from_micros(1_796_000_000_123_456);
const WAIT: Duration = Duration::from_millis(250);

/// One refusal from every constructor.
fn all() -> Vec<Refusal> {
    let fields = vec![
        FieldError::new("/id", "must be an integer, not a boolean"),
        FieldError::new("/a~1b", "is not an argument of this tool"),
    ];
    let row = || Some("{\"id\":1,\"version\":3}".into());
    vec![
        Refusal::forbidden("automation:write"),
        Refusal::request_id_required(),
        Refusal::invalid_request_id("differs between two places of this call"),
        Refusal::invalid_arguments(fields),
        Refusal::resource_unavailable(),
        Refusal::request_id_reused(),
        Refusal::revision_changed(AT),
        Refusal::revision_retired(),
        Refusal::request_id_voided(),
        Refusal::result_expired(AT),
        Refusal::id_expired(),
        Refusal::version_conflict(row()),
        Refusal::version_conflict(None),
        Refusal::precondition_failed(row()),
        Refusal::constraint_violated("UNIQUE constraint failed: automations.name"),
        Refusal::result_too_large(262_144),
        Refusal::busy(WAIT),
        Refusal::rate_limited(WAIT),
        Refusal::outcome_unknown(WAIT),
        Refusal::internal("c0ffee"),
    ]
}

/// What stands between the message and the end, for each of [`all`].
const REST: [(&str, &str); 20] = [
    ("forbidden", r#""retry":"no","operation":"unknown""#),
    ("request_id_required", r#""retry":"corrected","operation":"unknown""#),
    ("invalid_request_id", r#""retry":"corrected","operation":"unknown""#),
    (
        "invalid_arguments",
        r#""retry":"corrected","operation":"unknown","fields":[{"pointer":"/id","message":"must be an integer, not a boolean"},{"pointer":"/a~1b","message":"is not an argument of this tool"}]"#,
    ),
    ("resource_unavailable", r#""retry":"no","operation":"unknown""#),
    ("request_id_reused", r#""retry":"new_id""#),
    (
        "revision_changed",
        r#""retry":"read_first","operation":"committed","committed_at":"2026-11-30T00:53:20.123456Z""#,
    ),
    ("revision_changed", r#""retry":"read_first","operation":"not_committed_so_far""#),
    ("request_id_voided", r#""retry":"new_id","operation":"voided""#),
    (
        "request_id_expired",
        r#""retry":"read_first","operation":"committed","committed_at":"2026-11-30T00:53:20.123456Z""#,
    ),
    ("request_id_expired", r#""retry":"read_first","operation":"unknown""#),
    (
        "version_conflict",
        r#""retry":"new_id","operation":"not_committed_so_far","current":{"id":1,"version":3}"#,
    ),
    ("version_conflict", r#""retry":"new_id","operation":"not_committed_so_far""#),
    (
        "precondition_failed",
        r#""retry":"new_id","operation":"not_committed_so_far","current":{"id":1,"version":3}"#,
    ),
    ("constraint_violated", r#""retry":"corrected","operation":"not_committed_so_far""#),
    ("result_too_large", r#""retry":"no","operation":"not_committed_so_far""#),
    ("busy", r#""retry":"same_id","operation":"unknown","retry_after_ms":250"#),
    ("rate_limited", r#""retry":"same_id","operation":"unknown","retry_after_ms":250"#),
    ("outcome_unknown", r#""retry":"same_id","operation":"unknown","retry_after_ms":250"#),
    ("internal", r#""retry":"same_id","operation":"unknown","correlation_id":"c0ffee""#),
];

#[test]
fn every_body_is_exactly_this_json() {
    let refusals = all();
    assert_eq!(refusals.len(), REST.len());
    for (refusal, (code, rest)) in refusals.iter().zip(REST) {
        let message = serde_json::to_string(refusal.message()).unwrap();
        let expected = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":{message},{rest}}}}}");
        assert_eq!(refusal.body(), expected);
        let parsed: serde_json::Value = serde_json::from_str(&refusal.body()).unwrap();
        assert_eq!(parsed["error"]["code"], *refusal.code().as_str());
    }
}

#[test]
fn for_a_read_there_is_no_operation() {
    for refusal in all() {
        let read = refusal.clone().of_read();
        assert_eq!(read.operation(), None);
        let body: serde_json::Value = serde_json::from_str(&read.body()).unwrap();
        let error = body["error"].as_object().unwrap();
        assert!(!error.contains_key("operation") && !error.contains_key("committed_at"), "{body}");
        assert_eq!((read.code(), read.message()), (refusal.code(), refusal.message()));
    }
}

/// The place of a code in `Code::ALL`. Matched without a wildcard: a new code does not build until it has its row.
fn row(code: Code) -> (usize, &'static str, u16) {
    match code {
        Code::Forbidden => (0, "no", 403),
        Code::RequestIdRequired => (1, "corrected", 400),
        Code::InvalidRequestId => (2, "corrected", 400),
        Code::InvalidArguments => (3, "corrected", 400),
        Code::ResourceUnavailable => (4, "no", 404),
        Code::RequestIdReused => (5, "new_id", 422),
        Code::RevisionChanged => (6, "read_first", 422),
        Code::RequestIdVoided => (7, "new_id", 409),
        Code::RequestIdExpired => (8, "read_first", 410),
        Code::VersionConflict => (9, "new_id", 409),
        Code::PreconditionFailed => (10, "new_id", 412),
        Code::ConstraintViolated => (11, "corrected", 422),
        Code::ResultTooLarge => (12, "no", 422),
        Code::Busy => (13, "same_id", 503),
        Code::RateLimited => (14, "same_id", 429),
        Code::OutcomeUnknown => (15, "same_id", 503),
        Code::Internal => (16, "same_id", 500),
    }
}

#[test]
fn the_table_of_codes() {
    for (at, code) in Code::ALL.into_iter().enumerate() {
        let (place, retry, status) = row(code);
        assert_eq!((at, code.retry().as_str(), code.status()), (place, retry, status), "{code}");
        assert_eq!(code.to_string(), code.as_str());
        assert!(all().iter().any(|refusal| refusal.code() == code), "{code} is never said above");
    }
    assert_eq!(row(Code::Internal).0 + 1, Code::ALL.len(), "the last row is the last code");
}

#[test]
fn whoever_advises_a_new_id_says_void_first() {
    let void_first = "If an earlier try of this id is still unanswered, void it first.";
    for refusal in all() {
        // A voided id needs no voiding; a committed one cannot be voided any more.
        let settled =
            matches!(refusal.operation().map(|operation| operation.as_str()), Some("voided" | "committed"));
        let advised = refusal.message().contains("new request_id");
        assert_eq!(refusal.message().contains(void_first), advised && !settled, "{refusal}");
    }
}

#[test]
fn a_refusal_reads_well_in_a_log() {
    let log = Refusal::forbidden("a:b").to_string();
    assert_eq!(log, "forbidden: This token lacks the scope a:b.");
    let odd = Refusal::constraint_violated("\"x\"\n\u{1}").body();
    let parsed: serde_json::Value = serde_json::from_str(&odd).unwrap();
    assert!(parsed["error"]["message"].as_str().unwrap().contains("\"x\"\n\u{1}"));
}
