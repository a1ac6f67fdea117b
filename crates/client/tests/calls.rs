//! What a call comes to, whatever becomes of its tries: K3, K6 and K7, and what is never sent.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_client::Journal;
use counterfoil_client::client::{Outcome, Report, Why};
use counterfoil_client::journal::{Edge, Problem};
use counterfoil_client::operation::{Operation, Sending};
use counterfoil_client::retry::Policy;
use counterfoil_client::state::{Event, State};
use counterfoil_client::words::Caller;
use counterfoil_core::{Code, FieldError, Refusal, Timestamp};
use support::{ARGUMENTS, Fate, START, Way, client, journal, only, operation};

const SECOND: Duration = Duration::from_secs(1);

fn policy(tries: u32) -> Policy {
    Policy { tries, ..Policy::default() }
}

/// An outcome in a word, with the tries that are open.
fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Replied(reply) if reply.replayed => "replayed".into(),
        Outcome::Replied(_) => "fresh".into(),
        Outcome::Plain(_) => "plain".into(),
        Outcome::Committed(_) => "committed".into(),
        Outcome::Refused(refused) => format!("refused {}", refused.code),
        Outcome::Away(_) => "away".into(),
        Outcome::Voided => "voided".into(),
        Outcome::Abandoned { open } => format!("abandoned {open}"),
        Outcome::Unknown(unknown) => format!("unknown {}", unknown.open),
    }
}

struct Case {
    name: &'static str,
    fates: Vec<Fate>,
    expected: &'static str,
    effects: usize,
    sent: usize,
}

async fn check(case: Case, tries: u32) {
    let folder = tempfile::tempdir().unwrap();
    let (way, journal) = (Way::new(case.fates), journal(folder.path()));
    let (client, _time) = client(&way, &journal, policy(tries)).await;
    let report = client.call(operation("edit-42")).await.unwrap();
    assert_eq!(word(&report.outcome), case.expected, "{}: {report:?}", case.name);
    assert_eq!((way.effects(), way.sent().len()), (case.effects, case.sent), "{}", case.name);
    let entry = only(&journal);
    let known = !matches!(report.outcome, Outcome::Unknown(_));
    assert_eq!(entry.state.ended(), known, "{}: {entry:?}", case.name);
    let exact = |body: &String| body.contains(ARGUMENTS) && body.contains("\"edit-42\"");
    assert!(way.sent().iter().all(exact), "{}: same id, same bytes: {:?}", case.name, way.sent());
}

fn busy() -> Refusal {
    Refusal::busy(Duration::from_millis(250))
}

fn case(
    name: &'static str,
    fates: impl IntoIterator<Item = Fate>,
    expected: &'static str,
    effects: usize,
    sent: usize,
) -> Case {
    Case { name, fates: fates.into_iter().collect(), expected, effects, sent }
}

fn rpc_error(code: i32) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{{\"code\":{code},\"message\":\"no\"}}}}")
}

#[tokio::test]
async fn tries_and_what_they_come_to() {
    use Fate::{Answered, Edge, Hangs, LostAfter, LostBefore, NotSent, Refused, Says, Status};
    let conflict = || Refused(Refusal::version_conflict(None));
    let forbidden = || Edge(403, Refusal::forbidden("automation:write"), None);
    let limited = || Edge(429, Refusal::rate_limited(SECOND), Some(SECOND));
    let invalid = || Refused(Refusal::invalid_arguments(vec![FieldError::new("/id", "is required")]));
    let cases = [
        case("the plain way", [Answered], "fresh", 1, 1),
        case("the answer is lost", [LostAfter, Answered], "replayed", 1, 2),
        case("the call is lost", [LostBefore, Answered], "fresh", 1, 2),
        case("no connection at first", [NotSent, NotSent, Answered], "fresh", 1, 3),
        case("never a connection", vec![NotSent; 9], "unknown 0", 0, 3),
        case("never answered", vec![Hangs; 9], "unknown 2", 0, 2),
        case("busy, then not", [Refused(busy()), limited(), Answered], "fresh", 1, 3),
        case("busy for ever", vec![Refused(busy()); 9], "unknown 0", 0, 3),
        case("503 for ever", vec![Status(503); 9], "unknown 3", 0, 3),
        case("refused at once", [conflict()], "refused version_conflict", 0, 1),
        case("forbidden at once", [forbidden()], "refused forbidden", 0, 1),
        case("refused after being busy", [Refused(busy()), conflict()], "refused version_conflict", 0, 2),
        case("away", [Status(401)], "away", 0, 1),
        case("redirected", [Status(307)], "away", 0, 1),
        case("K7: lost, forbidden", [LostAfter, forbidden()], "unknown 1", 1, 2),
        case("K7: lost, invalid", [LostAfter, invalid()], "unknown 1", 1, 2),
        case("K7: lost, conflict", [LostBefore, conflict()], "unknown 1", 0, 2),
        case("K7: lost, away", [LostAfter, Status(401)], "unknown 1", 1, 2),
        case("K7: lost, busy for ever", [LostAfter, Refused(busy()), Refused(busy())], "unknown 1", 1, 3),
        case("K7: lost, limited for ever", [LostAfter, limited(), limited()], "unknown 1", 1, 3),
        case("K7: lost, busy, answered", [LostAfter, Refused(busy()), Answered], "replayed", 1, 3),
        case(
            "lost, then said to have committed",
            [LostBefore, Refused(Refusal::revision_changed(START))],
            "committed",
            0,
            2,
        ),
        case("lost, then voided", [LostBefore, Refused(Refusal::request_id_voided())], "voided", 0, 2),
        case("internal leaves its try open", [Refused(Refusal::internal("x")), conflict()], "unknown 1", 0, 2),
        case(
            "outcome_unknown leaves its try open",
            [Refused(Refusal::outcome_unknown(SECOND)), Answered],
            "fresh",
            1,
            2,
        ),
        case("rubbish", vec![Says("<html>".into()); 9], "unknown 3", 0, 3),
        case("an error that names no code of ours", vec![Says(rpc_error(-32603)); 3], "unknown 3", 0, 3),
        case("no such tool", [Says(rpc_error(-32602))], "away", 0, 1),
        case("K7: lost, no such tool", [LostAfter, Says(rpc_error(-32602).replace(":2,", ":3,"))], "unknown 1", 1, 2),
        case("an empty object", vec![Says("{}".into()); 9], "unknown 3", 0, 3),
        case(
            "another operation's reply",
            vec![Says("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"structuredContent\":{\"result\":1,\"request_id\":\"edit-43\",\"replayed\":false,\"committed_at\":\"2026-11-30T00:00:00Z\",\"epoch\":\"one\"}}}".into()); 3],
            "unknown 3",
            0,
            3,
        ),
        case(
            "a code from the future",
            vec![Says("{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"isError\":true,\"structuredContent\":{\"error\":{\"code\":\"later\",\"retry\":\"no\"}}}}".into()); 3],
            "unknown 3",
            0,
            3,
        ),
    ];
    for case in cases {
        check(case, 3).await;
    }
}

/// K3 in time: no try and no pause beyond the bounds, and what the server asks for is waited.
#[tokio::test]
async fn the_bounds_hold_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let (way, journal) = (Way::new(vec![Fate::Hangs; 50]), journal(folder.path()));
    let bounds = Policy { tries: 50, within: 100 * SECOND, ..Policy::default() };
    let (client, time) = client(&way, &journal, bounds).await;
    let report = client.call(operation("edit-42")).await.unwrap();
    assert_eq!(word(&report.outcome), format!("unknown {}", report.tries));
    let slept: Duration = time.slept.lock().unwrap().iter().sum();
    assert!(slept <= 100 * SECOND, "{slept:?}");

    way.fates([Fate::Edge(429, Refusal::rate_limited(SECOND), Some(7 * SECOND)), Fate::Answered]);
    time.slept.lock().unwrap().clear();
    let report = client.resume(&only(&journal)).await.unwrap();
    assert_eq!(word(&report.outcome), "fresh");
    assert_eq!(*time.slept.lock().unwrap(), [7 * SECOND], "Retry-After is longer than any pause of ours");
}

#[tokio::test]
async fn an_unknown_is_resumed_or_voided() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let way = Way::new([Fate::LostAfter]);
    let (client, _time) = client(&way, &journal, policy(1)).await;
    assert_eq!(word(&client.call(operation("edit-1")).await.unwrap().outcome), "unknown 1");
    let entry = only(&journal);
    let report = client.void(&entry).await.unwrap();
    assert_eq!(word(&report.outcome), "replayed", "it had committed: {report:?}");
    assert_eq!(
        word(&client.resume(&entry).await.unwrap().outcome),
        "replayed",
        "and is told again from here"
    );
    assert_eq!(way.sent().len(), 1);

    way.fates([Fate::LostBefore]);
    assert_eq!(word(&client.call(operation("edit-2")).await.unwrap().outcome), "unknown 1");
    let page = journal.list(&Default::default(), None, 1).unwrap();
    assert_eq!(word(&client.void(&page.entries[0]).await.unwrap().outcome), "voided");
    assert_eq!(word(&client.call(operation("edit-2")).await.unwrap().outcome), "voided");
    assert_eq!((way.effects(), way.sent().len()), (1, 2), "nothing is sent after a void");
}

/// The id is another operation's, which has committed: a void says that ours never will, not that it did.
#[tokio::test]
async fn a_void_tells_nothing_of_another_operation() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let reused = Fate::Refused(Refusal::request_id_reused());
    let way = Way::new([Fate::LostBefore, reused, Fate::LostBefore]);
    way.world.lock().unwrap().receipts.insert("edit-42".into(), "{\"version\":2}".into());
    let (client, _time) = client(&way, &journal, policy(3)).await;
    assert_eq!(word(&client.call(operation("edit-42")).await.unwrap().outcome), "unknown 1");
    let entry = only(&journal);
    assert_eq!(word(&client.void(&entry).await.unwrap().outcome), "voided");
    assert_eq!(only(&journal).state, State::Voided);
    assert_eq!(way.effects(), 0);
}

/// A read is asked again within the bounds, and never after an answer.
#[tokio::test]
async fn reads_are_asked_again_within_the_bounds() {
    use Fate::{Answered, Hangs, LostAfter, NotSent, Says, Status};
    let declined = || Says(rpc_error(-32602));
    let cases: [(&str, Vec<Fate>, &str, usize); 7] = [
        ("answered", vec![Answered], "answered", 1),
        ("lost, then answered", vec![LostAfter, NotSent, Answered], "answered", 3),
        ("never answered", vec![Hangs, Answered], "answered", 2),
        ("503 for ever", vec![Status(503); 9], "503", 3),
        ("never reached", vec![NotSent; 9], "cannot be reached", 3),
        ("declined", vec![declined(), Answered], "no", 1),
        ("forbidden", vec![Status(403), Answered], "403", 1),
    ];
    for (name, fates, expected, sent) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (way, journal) = (Way::new(fates), journal(folder.path()));
        let (client, time) = client(&way, &journal, policy(3)).await;
        let tool = support::reading();
        let arguments = counterfoil_client::operation::Arguments::parse("{}").unwrap();
        let got = client.read(&tool, &arguments).await;
        let got = got.map_or_else(|failure| failure.to_string(), |_result| "answered".into());
        assert!(got.contains(expected), "{name}: {got}");
        assert_eq!(way.sent().len(), sent, "{name}");
        let passed: Duration = time.slept.lock().unwrap().iter().sum();
        assert!(passed <= policy(3).within, "{name}: {passed:?}");
        assert!(journal.list(&Default::default(), None, 1).unwrap().entries.is_empty(), "{name}");
    }
}

/// Another caller, another server: nothing leaves, and the operation stays as it was.
#[tokio::test]
async fn only_the_same_caller_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let way = Way::new([Fate::LostAfter]);
    let (alice, _time) = client(&way, &journal, policy(1)).await;
    alice.call(operation("edit-42")).await.unwrap();
    let before = only(&journal);
    for name in [Some("bob"), None] {
        let other = Way { caller: name.map(str::to_owned), ..way.clone() };
        let (other, _time) = client(&other, &journal, policy(3)).await;
        for report in [other.resume(&before).await.unwrap(), other.void(&before).await.unwrap()] {
            let Outcome::Unknown(unknown) = &report.outcome else { panic!("{report:?}") };
            assert_eq!((unknown.open, &unknown.why), (1, &Why::OtherCaller));
        }
        let theirs = Operation { caller: other.session().caller().clone(), ..operation("edit-42") };
        let refused = other.call(theirs).await.unwrap_err();
        assert_eq!(*refused.problem(), Problem::OtherCaller(before.operation.id.clone()));
    }
    assert_eq!(only(&journal), before);
    assert_eq!(way.sent().len(), 1);
    let identity = Caller::of_identity("test").unwrap();
    let (nobody, _time) = client(&Way { caller: None, ..way.clone() }, &journal, policy(1)).await;
    assert_eq!(*nobody.session().caller(), identity, "a server that says nothing: our own name");
}

#[tokio::test]
async fn an_id_is_one_operation() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let way = Way::new([]);
    let (client, _time) = client(&way, &journal, policy(3)).await;
    assert_eq!(word(&client.call(operation("edit-42")).await.unwrap().outcome), "fresh");
    assert_eq!(word(&client.call(operation("edit-42")).await.unwrap().outcome), "replayed");
    let arguments = counterfoil_client::operation::Arguments::parse("{\"id\":2}").unwrap();
    let other = Operation { arguments, ..operation("edit-42") };
    let taken = client.call(other).await.unwrap_err();
    assert_eq!(*taken.problem(), Problem::IdTaken(operation("edit-42").id));
    assert_eq!(way.sent().len(), 1, "what the journal knows is not asked again");
}

/// K6: a server that knows no request ids gets each operation once, and none of our marks.
#[tokio::test]
async fn what_cannot_be_repeated_is_sent_once() {
    let once = || Operation { sending: Sending::AtMostOnce, ..operation("edit-42") };
    let plain =
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}]}}";
    let error = "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32603,\"message\":\"no\"}}";
    let cases: [(&str, Vec<Fate>, &str, usize); 6] = [
        ("answered", vec![Fate::Says(plain.into())], "plain", 1),
        ("an error", vec![Fate::Says(error.into())], "plain", 1),
        ("lost", vec![Fate::LostBefore, Fate::Says(plain.into())], "unknown 1", 1),
        ("503", vec![Fate::Status(503), Fate::Says(plain.into())], "unknown 1", 1),
        ("not sent at first", vec![Fate::NotSent, Fate::Says(plain.replace(":2,", ":3,"))], "plain", 2),
        ("limited at first", vec![Fate::Status(429), Fate::Says(plain.replace(":2,", ":3,"))], "plain", 2),
    ];
    for (name, fates, expected, sent) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (way, journal) = (Way::new(fates), journal(folder.path()));
        let (client, _time) = client(&way, &journal, policy(3)).await;
        let report = client.call(once()).await.unwrap();
        assert_eq!(word(&report.outcome), expected, "{name}: {report:?}");
        let again: Report = client.resume(&only(&journal)).await.unwrap();
        assert_eq!(word(&again.outcome), expected, "{name}: resumed");
        assert_eq!(way.sent().len(), sent, "{name}");
        assert!(way.sent().iter().all(|body| !body.contains("dev.counterfoil")), "{name}");
    }
}

/// T8 on this side: what a restore undid is named, what survived is not.
#[tokio::test]
async fn a_restore_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let way = Way::new([]);
    let (client, _time) = client(&way, &journal, policy(1)).await;
    for id in ["before-1", "before-2", "after-1"] {
        client.call(operation(id)).await.unwrap();
    }
    {
        let mut world = way.world.lock().unwrap();
        world.receipts.remove("after-1");
        world.epoch = "two".into();
    }
    let report = client.call(operation("new-1")).await.unwrap();
    let Outcome::Replied(reply) = report.outcome else { panic!("{report:?}") };
    let names = |entries: Vec<counterfoil_client::journal::Entry>| -> Vec<String> {
        entries.iter().map(|entry| entry.operation.id.to_string()).collect()
    };
    assert_eq!(names(client.undone(&reply.epoch).await.unwrap()), ["after-1"]);
    assert_eq!(names(client.undone(&reply.epoch).await.unwrap()), Vec::<String>::new(), "told once");
    let page = journal.list(&Default::default(), None, 10).unwrap();
    let undone: Vec<_> = page.entries.into_iter().filter(|entry| entry.undone_in.is_some()).collect();
    assert_eq!(names(undone), ["after-1"], "and marked");
}

/// A journal that can be written to until `event` is on disk.
fn breaking_after(path: &Path, event: Event) -> Arc<Journal> {
    let broken = path.to_owned();
    let watch = move |happened: &'static str, edge: Edge| {
        if happened == event.as_str() && edge == Edge::After {
            let rival = rusqlite::Connection::open(&broken).unwrap();
            rival.execute_batch("ALTER TABLE events RENAME TO gone").unwrap();
        }
    };
    Arc::new(Journal::open(path).unwrap().watched(Arc::new(watch)))
}

/// A refusal that cannot be written is not told as one: a later resume may send the operation again.
#[tokio::test]
async fn what_cannot_be_written_is_not_called_refused() {
    let conflict = Fate::Refused(Refusal::version_conflict(None));
    for (fate, expected) in [(conflict, "unknown 1"), (Fate::Answered, "fresh")] {
        let folder = tempfile::tempdir().unwrap();
        let journal = breaking_after(&folder.path().join("journal.db"), Event::Sent);
        let way = Way::new([fate]);
        let (client, _time) = client(&way, &journal, policy(3)).await;
        let report = client.call(operation("edit-42")).await.unwrap();
        assert_eq!(word(&report.outcome), expected, "{report:?}");
        assert!(report.unwritten.is_some());
        assert_eq!(only(&journal).state.open(), 1);
    }
}

/// The journal fails before the second try: that one does not leave, and the first is not denied.
#[tokio::test]
async fn what_fails_between_two_tries_is_not_called_unsent() {
    let folder = tempfile::tempdir().unwrap();
    let journal = breaking_after(&folder.path().join("journal.db"), Event::Unknown);
    let way = Way::new([Fate::LostAfter]);
    let (client, _time) = client(&way, &journal, policy(3)).await;
    let report = client.call(operation("edit-42")).await.unwrap();
    assert_eq!((word(&report.outcome).as_str(), report.tries), ("unknown 1", 1));
    assert!(report.unwritten.is_some());
    assert_eq!((way.effects(), way.sent().len()), (1, 1));
}

#[tokio::test]
async fn a_refusal_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal(folder.path());
    let row = "{\"id\":1,\"version\":7}";
    let way = Way::new([Fate::Refused(Refusal::version_conflict(Some(row.into())))]);
    let (client, _time) = client(&way, &journal, policy(3)).await;
    let report = client.call(operation("edit-42")).await.unwrap();
    let Outcome::Refused(refused) = report.outcome else { panic!("{report:?}") };
    assert_eq!(*refused.body, *Refusal::version_conflict(Some(row.into())).body());
    assert_eq!(refused.code, Code::VersionConflict);
    let entry = only(&journal);
    assert_eq!((entry.state, entry.code.as_deref()), (State::Refused, Some("version_conflict")));
    let again = client.resume(&entry).await.unwrap();
    assert_eq!(again.outcome, Outcome::Refused(refused), "told again from the journal");
    assert_eq!(way.sent().len(), 1);
    assert_eq!(entry.recorded_at, Timestamp::from_micros(START.micros()));
}
