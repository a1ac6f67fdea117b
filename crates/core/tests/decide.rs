//! Every row of steps 8 and 9 of a write call: a receipt or none, a call, an instant, and the one right answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail by panic")]

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::contract::{Fresh, Windows};
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::time::DAY;
use counterfoil_core::{
    Call, Code, Committed, Contract, Decision, Fingerprint, IdForm, Intent, Issuer, Operation, Principal,
    Receipt, RequestId, Revision, Schema, Scope, Sources, Subject, Timestamp, ToolName, Workspace, decide,
};

/// When every receipt of this file committed.
const T: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);
const KEEP: Duration = Duration::from_secs(30 * 86_400);
const REMEMBER: Duration = Duration::from_secs(365 * 86_400);
const MICRO: Duration = Duration::from_micros(1);

fn value(text: &str) -> json::Value {
    json::parse(text.as_bytes(), Bounds::default()).unwrap()
}

fn schema(members: &str) -> Schema {
    let names: Vec<String> = members.split_whitespace().map(|name| format!("\"{name}\"")).collect();
    let properties: Vec<String> =
        names.iter().map(|name| format!("{name}:{{\"type\":\"integer\"}}")).collect();
    let (properties, names) = (properties.join(","), names.join(","));
    let text = format!("{{\"type\":\"object\",\"properties\":{{{properties}}},\"required\":[{names}]}}");
    Schema::compile(&value(&text)).unwrap()
}

fn revision(name: &str) -> Revision {
    Revision::parse(name).unwrap()
}

/// `v3` is live and reads `a`; `v2` is retired and reads `a` too; `v1` is retired and reads `b`.
fn contract() -> Contract {
    Contract {
        ledger_name: ToolName::parse("tool").unwrap(),
        scope: Scope::parse("write").unwrap(),
        revision: revision("v3"),
        schema: schema("a"),
        retired: vec![(revision("v1"), schema("b")), (revision("v2"), schema("a"))],
        ids: IdForm::Any,
        windows: Windows { keep: KEEP, remember: REMEMBER },
        store_intent: true,
    }
}

fn call(pin: Option<&str>, id: &str, arguments: &str) -> Call {
    let principal = Arc::new(Principal {
        issuer: Issuer::parse("local").unwrap(),
        subject: Subject::parse("alice").unwrap(),
        workspace: Workspace::parse("team-a").unwrap(),
        scopes: [Scope::parse("write").unwrap()].into(),
    });
    let sources = Sources { member: Some(json::Value::String(id.into())), ..Sources::default() };
    contract().admit(&principal, pin.map(revision).as_ref(), &sources, value(arguments)).unwrap()
}

fn print(arguments: &str) -> Fingerprint {
    Fingerprint::of(&ToolName::parse("tool").unwrap(), &Intent::of_json(&value(arguments)).unwrap())
}

fn receipt(under: &str, arguments: &str) -> Receipt {
    let (revision, fingerprint) = (revision(under), print(arguments));
    Receipt::Committed(Committed { revision, fingerprint, at: T, result: Some("{\"n\":1}".into()) })
}

fn pruned(under: &str, arguments: &str) -> Receipt {
    let (revision, fingerprint) = (revision(under), print(arguments));
    Receipt::Committed(Committed { revision, fingerprint, at: T, result: None })
}

/// What is decided, without borrowing.
#[derive(Debug, PartialEq)]
enum Answer {
    Fresh(&'static str),
    Replay,
    Refuse(Code, Option<Operation>),
}

const COMMITTED: Option<Operation> = Some(Operation::Committed(T));
const SO_FAR: Option<Operation> = Some(Operation::NotCommittedSoFar);
const UNKNOWN: Option<Operation> = Some(Operation::Unknown);
const REUSED: Answer = Answer::Refuse(Code::RequestIdReused, None);
const CHANGED: Answer = Answer::Refuse(Code::RevisionChanged, COMMITTED);
const EXPIRED: Answer = Answer::Refuse(Code::RequestIdExpired, COMMITTED);
const FORGOTTEN: Answer = Answer::Refuse(Code::RequestIdExpired, UNKNOWN);
const VOIDED: Answer = Answer::Refuse(Code::RequestIdVoided, Some(Operation::Voided));
const MISFIT: Answer = Answer::Refuse(Code::InvalidArguments, UNKNOWN);
const RETIRED: Answer = Answer::Refuse(Code::RevisionChanged, SO_FAR);
const AHEAD: Answer = Answer::Refuse(Code::InvalidRequestId, UNKNOWN);

fn check(name: &str, receipt: Option<&Receipt>, call: &Call, now: Timestamp, expected: &Answer) {
    let got = match decide(receipt, call, now) {
        Decision::Fresh(reading) => {
            assert_eq!(reading.revision, revision("v3"), "{name}: only the live revision runs");
            Answer::Fresh("v3")
        }
        Decision::Replay(committed, result) => {
            assert_eq!((committed.at, result), (T, "{\"n\":1}"), "{name}: byte for byte what was stored");
            Answer::Replay
        }
        Decision::Refuse(refusal) => Answer::Refuse(refusal.code(), refusal.operation()),
    };
    assert_eq!(got, *expected, "{name}");
}

#[test]
fn a_receipt_decides_in_the_order_of_step_8() {
    let (a1, a2, b1) = ("{\"a\":1}", "{\"a\":2}", "{\"b\":1}");
    let unpinned = |arguments| call(None, "edit-1", arguments);
    let pinned = |pin, arguments| call(Some(pin), "edit-1", arguments);
    let rows = [
        ("voided", Receipt::Voided, unpinned(a1), VOIDED),
        ("voided, fits retired schemas only", Receipt::Voided, unpinned(b1), VOIDED),
        ("voided, pinned", Receipt::Voided, pinned("v1", b1), VOIDED),
        ("R2 same revision, same intent", receipt("v3", a1), unpinned(a1), Answer::Replay),
        ("P4 same intent, other spelling", receipt("v3", a1), unpinned("{\"a\":1.0}"), Answer::Replay),
        ("R4 same revision, other intent", receipt("v3", a1), unpinned(a2), REUSED),
        ("same revision, which these arguments do not even fit", receipt("v3", a1), unpinned(b1), REUSED),
        ("T4 retired, equal as it reads them", receipt("v2", a1), unpinned(a1), Answer::Replay),
        ("T4 retired, other as it reads them", receipt("v2", a1), unpinned(a2), REUSED),
        ("T4 retired, fits only there, equal", receipt("v1", b1), unpinned(b1), Answer::Replay),
        ("T4 retired, fits only there, other", receipt("v1", b1), unpinned("{\"b\":2}"), REUSED),
        ("T4 retired, whose schema they do not fit", receipt("v1", b1), unpinned(a1), CHANGED),
        ("T4 retired, fits another retired one only", receipt("v2", a1), unpinned(b1), CHANGED),
        ("T4 undeclared, same intent", receipt("v0", a1), unpinned(a1), CHANGED),
        ("T4 undeclared, fits retired schemas only", receipt("v0", b1), unpinned(b1), CHANGED),
        ("T4 from a newer server", receipt("v4", a1), unpinned(a1), CHANGED),
        ("T5 pinned to the retired, equal", receipt("v2", a1), pinned("v2", a1), Answer::Replay),
        ("T5 pinned to the retired, other", receipt("v2", a1), pinned("v2", a2), REUSED),
        ("T5 pinned to the retired, committed by the live", receipt("v3", a1), pinned("v2", a1), CHANGED),
        ("T5 pinned to the live, committed by the retired", receipt("v2", a1), pinned("v3", a1), CHANGED),
        ("pinned to the live, equal", receipt("v3", a1), pinned("v3", a1), Answer::Replay),
        (
            "pruned early: by the clock it should be there, but it is not",
            pruned("v3", a1),
            unpinned(a1),
            EXPIRED,
        ),
        ("pruned, other intent", pruned("v3", a1), unpinned(a2), REUSED),
        ("pruned, undeclared revision", pruned("v0", a1), unpinned(a1), CHANGED),
    ];
    for (name, receipt, call, expected) in rows {
        check(name, Some(&receipt), &call, T, &expected);
    }
}

#[test]
fn t1_a_result_is_kept_by_the_clock_and_not_by_whether_it_was_pruned() {
    let (equal, other) = (call(None, "edit-1", "{\"a\":1}"), call(None, "edit-1", "{\"a\":2}"));
    let pinned = call(Some("v2"), "edit-1", "{\"a\":1}");
    let second = Duration::from_secs(1);
    let rows = [
        ("at once", "v3", &equal, T, Answer::Replay),
        ("T2 the clock has gone back", "v3", &equal, T.minus(DAY), Answer::Replay),
        ("a second before the window closes", "v3", &equal, T.plus(KEEP - second), Answer::Replay),
        ("exactly at the window's end", "v3", &equal, T.plus(KEEP), Answer::Replay),
        ("a microsecond after", "v3", &equal, T.plus(KEEP + MICRO), EXPIRED),
        ("a second after", "v3", &equal, T.plus(KEEP + second), EXPIRED),
        ("long after, not removed yet", "v3", &equal, T.plus(REMEMBER + REMEMBER), EXPIRED),
        ("T2 forward a year, other intent", "v3", &other, T.plus(REMEMBER), REUSED),
        ("T5 retired, exactly at the end", "v2", &pinned, T.plus(KEEP), Answer::Replay),
        ("T5 retired, a microsecond after", "v2", &pinned, T.plus(KEEP + MICRO), EXPIRED),
        ("undeclared, after the window", "v0", &equal, T.plus(KEEP + MICRO), CHANGED),
    ];
    for (name, under, call, now, expected) in rows {
        check(name, Some(&receipt(under, "{\"a\":1}")), call, now, &expected);
    }
}

#[test]
fn without_a_receipt_only_a_call_that_fits_the_live_revision_runs() {
    let rows = [
        ("fits", call(None, "edit-1", "{\"a\":1}"), Answer::Fresh("v3")),
        ("fits, pinned to the live", call(Some("v3"), "edit-1", "{\"a\":1}"), Answer::Fresh("v3")),
        ("T5 fits retired schemas only", call(None, "edit-1", "{\"b\":1}"), MISFIT),
        ("T5 pinned to the retired", call(Some("v2"), "edit-1", "{\"a\":1}"), RETIRED),
        ("T5 pinned to the retired, fits only there", call(Some("v1"), "edit-1", "{\"b\":1}"), RETIRED),
    ];
    for (name, call, expected) in rows {
        check(name, None, &call, T, &expected);
    }
}

#[test]
fn the_verdict_of_a_misfit_is_that_of_the_live_schema() {
    let call = call(None, "edit-1", "{\"b\":1}");
    assert!(matches!(&call.fresh, Fresh::Misfit(live, _) if *live == revision("v3")));
    let Decision::Refuse(refusal) = decide(None, &call, T) else { panic!("must be refused") };
    let pointers: Vec<&str> = refusal.fields().iter().map(|field| &*field.pointer).collect();
    assert_eq!(pointers, ["/b", "/a"]);
}

/// A UUIDv7 and a ULID of this millisecond.
fn ids(at: Timestamp) -> [String; 2] {
    const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let millis = u64::try_from(at.micros() / 1000).unwrap();
    let hex = format!("{millis:012x}");
    let digit = |place: u32| char::from(CROCKFORD[(millis >> (5 * place) & 31) as usize]);
    let ulid: String = (0..10).rev().map(digit).collect();
    [format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..]), format!("{ulid}{}", "0".repeat(16))]
}

#[test]
fn t12_an_id_that_dates_itself_is_refused_where_its_fact_may_be_gone() {
    let rows = [
        ("now", T, Answer::Fresh("v3")),
        ("older than keep, never committed", T.plus(KEEP + KEEP), Answer::Fresh("v3")),
        ("exactly as old as what is remembered", T.plus(REMEMBER), Answer::Fresh("v3")),
        ("a microsecond older", T.plus(REMEMBER + MICRO), FORGOTTEN),
        ("much older", T.plus(REMEMBER + REMEMBER), FORGOTTEN),
        ("exactly a day ahead", T.minus(DAY), Answer::Fresh("v3")),
        ("a day and a microsecond ahead", T.minus(DAY + MICRO), AHEAD),
        ("a microsecond less than a day ahead", T.minus(DAY).plus(MICRO), Answer::Fresh("v3")),
        ("dated next year", T.minus(REMEMBER), AHEAD),
    ];
    for (name, now, expected) in rows {
        for id in ids(T) {
            check(&format!("{name}: {id}"), None, &call(None, &id, "{\"a\":1}"), now, &expected);
        }
    }
}

/// What one statement judges between two instants is what [`decide::dated`] judges at one: at both ends, and right beyond.
#[test]
fn t12_a_store_may_judge_the_date_between_two_instants() {
    let bounds = ids(T).map(|id| (id, T.minus(DAY), T.plus(REMEMBER)));
    let ever = [Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX)];
    let opaque = ["edit-1", "00000000-0000-4000-8000-000000000000"];
    let opaque = opaque.map(|id| (id.to_owned(), ever[0], ever[1]));
    for (id, from, until) in bounds.into_iter().chain(opaque) {
        let id = RequestId::parse(&id).unwrap();
        assert_eq!(decide::commits_between(&id, REMEMBER), (from, until), "{id:?}");
        for now in [from, until, from.minus(MICRO), until.plus(MICRO), T] {
            let within = from <= now && now <= until;
            assert_eq!(decide::dated(&id, REMEMBER, now).is_none(), within, "{id:?} at {now:?}");
        }
    }
    // At the ends of what can be written down the window ends there too.
    let id = RequestId::parse("ffffffff-ffff-7000-8000-000000000000").unwrap();
    assert_eq!(decide::commits_between(&id, REMEMBER).1, ever[1]);
}

#[test]
fn t12_the_date_comes_before_every_other_verdict_on_an_absent_receipt() {
    let late = T.plus(REMEMBER + MICRO);
    for id in ids(T) {
        let pinned = call(Some("v2"), &id, "{\"a\":1}");
        check("a retired pin cannot say \"not so far\" of it", None, &pinned, late, &FORGOTTEN);
        check("while it would be remembered, it can", None, &pinned, T.plus(REMEMBER), &RETIRED);
        check("a misfit may have committed", None, &call(None, &id, "{\"b\":1}"), late, &FORGOTTEN);
        check("ahead and pinned", None, &pinned, T.minus(DAY + MICRO), &AHEAD);
    }
}

#[test]
fn t12_a_receipt_that_is_there_is_answered_whatever_date_the_id_bears() {
    for id in ids(T) {
        let call = call(None, &id, "{\"a\":1}");
        let (late, early) = (T.plus(REMEMBER + REMEMBER), T.minus(REMEMBER));
        check("not removed yet", Some(&receipt("v3", "{\"a\":1}")), &call, late, &EXPIRED);
        check("voided long ago", Some(&Receipt::Voided), &call, late, &VOIDED);
        check("the clock has gone back", Some(&receipt("v3", "{\"a\":1}")), &call, early, &Answer::Replay);
    }
}

#[test]
fn t12_every_other_id_is_opaque() {
    let opaque = [
        "edit-1",
        "00000000000000000000000000",
        "01DXF6DSZZZZZZZZZZZZZZZZZZ",
        "01jcqkwyr00000000000000000",
        "00000000-0000-4000-8000-000000000000",
        "1ec9414c-232a-6b00-b3c8-9f6bdeced846",
    ];
    for id in opaque {
        let call = call(None, id, "{\"a\":1}");
        for now in [T, T.plus(REMEMBER * 20), Timestamp::from_micros(0)] {
            check(id, None, &call, now, &Answer::Fresh("v3"));
        }
    }
}
