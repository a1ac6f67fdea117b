//! The proxy between a caller and an upstream that is a process: what passes, what is done once, what is told again.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod upstream;

use std::sync::Arc;

use counterfoil_client::journal::Filter;
use counterfoil_client::proxy::Upstream;
use counterfoil_client::state::State;
use counterfoil_client::words::ServerUrl;
use upstream::{Agent, Folder, HELLO, Scene, at, proxy};

/// The upstream, when this program is run as one.
#[test]
fn the_upstream() {
    upstream::serve();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let messages = [
        r#"{"jsonrpc":"2.0","id":1.0,"method":"resources/list"}"#,
        r#"{ "jsonrpc" : "2.0" , "id":"a\u0062", "method":"resources/read", "params":{"uri":"x:\ud83d\ude00","n":1e400} }"#,
        r#"{"id":3,"method":"prompts/get","params":{"name":"p","arguments":{"a":12345678901234567890.10}},"unknown":[]}"#,
        r#"{"id":4,"method":"completion/complete","params":{"ref":{"type":"ref/prompt"},"_meta":{"x":-0}}}"#,
        r#"{"id":5,"method":"logging/setLevel","params":{"level":"debug"}}"#,
        r#"{"id":6,"method":"vendor/unknown","params":[1,2.50]}"#,
        r#"{"id":7,"method":"tools/call","params":{"name":"read","arguments":{"request_id":"mine","n":1.0}}}"#,
    ];
    for message in messages {
        let answer = scene.agent.ask(message).await;
        assert_eq!(scene.folder.heard().last().unwrap(), message.trim(), "as it was sent");
        if !message.contains("tools/call") {
            let id = at(message, "id");
            let echo = format!(
                r#"{{"jsonrpc":"2.0", "id": {id}, "result":{{"echo":{message},"big":12345678901234567890123.50}}}}"#
            );
            assert_eq!(answer, echo, "as it came");
        }
    }
    let told = r#"{"jsonrpc":"2.0", "method":"notifications/vendor","params":{"n":1.50}}"#;
    scene.agent.say(told).await;
    scene.agent.ask(messages[0]).await;
    assert!(scene.folder.heard().contains(&told.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listing_is_without_what_a_model_must_not_fill_in() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let shown = scene.agent.ask(r#"{"id":1,"method":"tools/list"}"#).await;
    let tools =
        upstream::TOOLS.replace(r#""request_id":{"type":"string"},"#, "").replace(r#"["request_id"]"#, "[]");
    assert_eq!(shown, format!(r#"{{"jsonrpc":"2.0", "id": 1, "result":{{"tools":[{tools}],"x":1.0}}}}"#));
    // A foreign tool's own argument of that name stays, in the listing and in calls.
    scene.agent.call("write", r#"{"request_id": 7}"#, "").await;
    assert!(scene.folder.heard().last().unwrap().contains(r#""arguments":{"request_id": 7}"#));
    assert!(
        !scene.folder.heard().last().unwrap().contains("dev.counterfoil"),
        "nothing of ours in a foreign call"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_upstream_asks_and_says_goes_to_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    // Asked back in the midst of a call.
    let id = scene.agent.start("ask", "{}", "").await;
    let asked = scene.agent.hear().await;
    assert_eq!(
        asked,
        r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"really?"}}"#
    );
    scene.agent.say(r#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept","n":1.0}}"#).await;
    let answer = scene.agent.wait(&id).await;
    assert_eq!(at(&answer, "result.told"), r#"{"action":"accept","n":1.0}"#);
    // Progress by the caller's own token, then cancelled.
    let id = scene.agent.start("slow", "{}", r#""_meta":{"progressToken":"tok"}"#).await;
    let progress = scene.agent.hear().await;
    assert_eq!(
        progress,
        r#"{"method":"notifications/progress","params":{"progressToken":"tok","progress":0.10}}"#
    );
    scene
        .agent
        .say(&format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#))
        .await;
    // The listing has changed.
    scene.agent.ask(r#"{"id":9,"method":"change"}"#).await;
    assert_eq!(scene.agent.noted, [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#]);
    let cancelled = |line: &String| line.contains("notifications/cancelled");
    until(|| scene.folder.heard().iter().any(cancelled)).await;
    let heard = scene.folder.heard();
    let call = heard.iter().find(|line| line.contains("\"slow\"")).unwrap();
    let cancelled = heard.iter().find(|line| cancelled(line)).unwrap();
    assert_eq!(at(cancelled, "params.requestId"), at(call, "id"), "by the id that the upstream knows");
}

/// What a call is told: the state of it, and how many effects there are by then.
#[derive(Debug, PartialEq)]
struct Answered {
    word: String,
    effects: usize,
}

/// `new` and `replayed` as the body says, `unknown`, else the refusal's code.
fn word(answer: &str) -> String {
    let structured = at(answer, "result.structuredContent");
    let marked = answer.contains(r#""dev.counterfoil/replayed":true"#);
    match (at(answer, "result.structuredContent.error.code").trim_matches('"'), structured.is_empty()) {
        ("", true) if answer.contains("\"error\"") => "error".into(),
        ("", true) if marked => "replayed".into(),
        ("", true) => "new".into(),
        ("", false) if at(answer, "result.structuredContent.replayed") == "true" => "replayed".into(),
        ("", false) => "new".into(),
        (code, _) => code.into(),
    }
}

const NO: &str = "";

/// One call after the other: the tool, its arguments, further params, what becomes of it, what it is told, effects.
type Step<'a> = (&'a str, &'a str, &'a str, &'a [&'a str], &'a str, usize);

const META: &str = r#""_meta":{"dev.counterfoil/request-id":"runtime-1"}"#;
const OTHER: &str = r#""_meta":{"dev.counterfoil/request-id":"runtime-2"}"#;
const SOURCE: &str = r#""_meta":{"claudecode/toolUseId":"toolu_1"}"#;
const NEXT: &str = r#""_meta":{"claudecode/toolUseId":"toolu_2"}"#;
const TABLES: &[(&str, &[Step<'_>])] = &[
    (
        "delivered: the next is a new intention",
        &[
            ("set", "{}", NO, &[], "new", 1),
            ("set", "{}", NO, &[], "new", 2),
            ("write", "{}", NO, &[], "new", 3),
            ("write", "{}", NO, &[], "new", 4),
        ],
    ),
    (
        "K1, K2: the answer is lost, and asked for under the same id",
        &[
            ("set", "{}", NO, &["die after"], "replayed", 1),
            ("set", "{}", NO, &["die before"], "new", 2),
            ("set", "{}", NO, &["die after", "die after", "die before"], "replayed", 3),
        ],
    ),
    (
        "K6: a foreign write is sent once, and what is lost is unknown",
        &[
            ("write", "{}", NO, &["die after"], "outcome_unknown", 1),
            ("write", "{}", NO, &["die before"], "outcome_unknown", 1),
            ("write", "{}", NO, &[], "new", 2),
        ],
    ),
    ("reads are asked again", &[("read", "{}", NO, &["die before", "die after"], "new", 0)]),
    (
        "a runtime's id decides",
        &[
            ("set", "{}", META, &[], "new", 1),
            ("set", "{}", META, &[], "replayed", 1),
            ("set", "{}", OTHER, &[], "new", 2),
            ("set", r#"{"n":1}"#, META, &[], "request_id_reused", 2),
            ("set", "{}", r#""idempotencyKey":"runtime-1""#, &[], "replayed", 2),
            ("set", "{}", r#""_meta":{"dev.counterfoil/request-id":"a b"}"#, &[], "invalid_request_id", 2),
        ],
    ),
    (
        "K5: of two with ids of their own the version condition stops the second",
        &[
            ("set", "{}", META, &[], "new", 1),
            ("set", "{}", OTHER, &["conflict"], "version_conflict", 1),
            ("set", "{}", OTHER, &[], "version_conflict", 1),
        ],
    ),
    (
        "a model's id names a new operation",
        &[
            ("set", r#"{"request_id":"edit-1"}"#, NO, &[], "new", 1),
            ("set", r#"{"request_id":"edit-1"}"#, NO, &[], "replayed", 1),
            ("set", r#"{"request_id":"edit-2"}"#, NO, &[], "new", 2),
            ("set", r#"{"request_id":"edit-1","n":2}"#, NO, &[], "request_id_reused", 2),
        ],
    ),
    (
        "a transport sends again what a model asked once",
        &[
            ("set", "{}", SOURCE, &[], "new", 1),
            ("set", "{}", SOURCE, &[], "replayed", 1),
            ("set", "{}", NEXT, &[], "new", 2),
            ("set", r#"{"n":1}"#, SOURCE, &[], "new", 3),
            ("write", "{}", SOURCE, &[], "new", 4),
            ("write", "{}", SOURCE, &[], "replayed", 4),
        ],
    ),
    (
        "told by the proxy's own configuration, by an argument of the upstream's",
        &[
            ("pay", r#"{"sum":1.50}"#, NO, &["die before"], "new", 1),
            ("pay", r#"{"sum":1.50,"key":"edit-1"}"#, NO, &[], "new", 2),
            ("pay", r#"{"sum":1.50,"key":"edit-1"}"#, NO, &[], "replayed", 2),
        ],
    ),
];

/// Every table has a scene of its own. Fates are those of the calls that reach the upstream.
#[tokio::test(flavor = "multi_thread")]
async fn one_call_after_the_other() {
    for (name, steps) in TABLES {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene::new(folder.path()).await;
        for (at, (tool, arguments, more, fates, expected, effects)) in steps.iter().enumerate() {
            scene.folder.fates(fates);
            let answer = scene.agent.call(tool, arguments, more).await;
            let got = Answered { word: word(&answer), effects: scene.folder.effects() };
            assert_eq!(
                got,
                Answered { word: (*expected).into(), effects: *effects },
                "{name}, {at}: {answer}"
            );
        }
    }
}

/// More than the journal takes passes, once.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_passes_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
    for (fate, expected, effects) in [("", "new", 1), ("die after", "outcome_unknown", 2)] {
        scene.folder.fates(&[fate]);
        let answer = scene.agent.call("write", &long, NO).await;
        assert_eq!((&*word(&answer), scene.folder.effects()), (expected, effects), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_answer_is_the_upstreams_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let answer = scene.agent.call("write", "{}", "").await;
    assert_eq!(
        answer,
        r#"{"jsonrpc":"2.0","id":101,"result":{"content":[{"type":"text","text":"effect 1"}],"exact":1.50}}"#
    );
    let answer = scene.agent.call("set", r#"{"n": 1e0, "request_id":"edit-1"}"#, "").await;
    assert!(
        answer.contains(r#""structuredContent":{"result":{"n":2.0},"request_id":"edit-1","replayed":false"#),
        "{answer}"
    );
    let heard = scene.folder.heard();
    assert!(
        heard.last().unwrap().contains(r#""arguments":{"n":1e0}"#),
        "the numbers as they are spelled: {heard:?}"
    );
    scene.agent.call("pay", r#"{"sum":1.50}"#, "").await;
    let heard = scene.folder.heard();
    let key = at(heard.last().unwrap(), "params.arguments.key");
    assert_eq!(key.len(), 38, "a request id where this upstream wants it: {heard:?}");
}

/// K4: the outcome is not delivered, because the caller gave up, or left.
#[tokio::test(flavor = "multi_thread")]
async fn until_it_is_delivered_the_same_call_is_the_same_operation() {
    for (tool, after) in [("set", "replayed"), ("write", "outcome_unknown")] {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene::new(folder.path()).await;
        scene.folder.fates(&["hold"]);
        let id = scene.agent.start(tool, r#"{"n":1}"#, "").await;
        until(|| scene.folder.lines("fates").is_empty() && !scene.folder.heard().is_empty()).await;
        scene
            .agent
            .say(&format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#))
            .await;
        if tool == "write" {
            // What is sent once may be given up, and is unknown then: told once, and new after that.
            let answer = scene.agent.call(tool, r#"{"n":1}"#, "").await;
            assert_eq!((&*word(&answer), scene.folder.effects()), (after, 0), "{answer}");
            assert!(answer.contains("Read the current state"), "{answer}");
            let answer = scene.agent.call(tool, r#"{"n":1}"#, "").await;
            assert_eq!((&*word(&answer), scene.folder.effects()), ("new", 1), "{answer}");
            continue;
        }
        // What can be asked for again is under way still: a same call joins it, whatever id a model gives it.
        let id = scene.agent.start(tool, r#"{"n":1,"request_id":"model-2"}"#, "").await;
        let entries = scene.journal.list(&Filter::default(), None, 10).unwrap().entries;
        assert_eq!(entries.len(), 1, "one operation");
        assert!(matches!(entries[0].state, State::Sent { .. }), "{entries:?}");
        // The upstream dies, and answers the next try.
        kill_upstream(&scene.folder);
        let answer = scene.agent.wait(&id).await;
        assert_eq!((&*word(&answer), scene.folder.effects()), (after, 1), "{answer}");
        assert!(answer.contains(&format!("This is the operation {}", entries[0].operation.id)), "{answer}");
        let answer = scene.agent.call(tool, r#"{"n":1}"#, "").await;
        assert_eq!((&*word(&answer), scene.folder.effects()), ("new", 2), "{answer}");
    }
}

/// The caller leaves before it is told; the next caller of the same proxy makes the same call.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_left_behind_is_told_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    for tool in ["set", "write"] {
        let before = scene.folder.effects();
        scene.folder.fates(&["hold"]);
        scene.agent.start(tool, "{}", "").await;
        until(|| scene.folder.lines("fates").is_empty()).await;
        let proxy = Arc::clone(&scene.proxy);
        let left = std::mem::replace(&mut scene.agent, Agent::of(&proxy));
        // The upstream dies with its caller; what was begun is found out.
        let (gone, killed) = (left.leave(), kill_when_alone(&scene.folder));
        tokio::join!(gone, killed);
        scene.agent.greet().await;
        let answer = scene.agent.call(tool, "{}", "").await;
        let (expected, effects) = if tool == "set" { ("replayed", 1) } else { ("outcome_unknown", 0) };
        assert_eq!((&*word(&answer), scene.folder.effects() - before), (expected, effects), "{answer}");
    }
}

/// K5: dispatched twice within milliseconds: with ids of a runtime two operations, without one.
#[tokio::test(flavor = "multi_thread")]
async fn dispatched_twice_at_once() {
    for (more, effects, words) in [
        (["", ""], 1, ["new", "replayed"]),
        ([r#""idempotencyKey":"a""#, r#""idempotencyKey":"b""#], 2, ["new", "new"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut scene = Scene::new(folder.path()).await;
        // The first is on its way while the second comes.
        scene.folder.fates(&["hold"]);
        let first = scene.agent.start("set", "{}", more[0]).await;
        until(|| scene.folder.lines("fates").is_empty()).await;
        let second = scene.agent.start("set", "{}", more[1]).await;
        if effects == 2 {
            until(|| scene.folder.effects() == 1).await;
        }
        kill_upstream(&scene.folder);
        let mut got = Vec::new();
        for _ in 0..2 {
            let line = scene.agent.hear().await;
            got.push((at(&line, "id"), word(&line)));
        }
        got.sort();
        let expected = [(first, words[0].to_owned()), (second, words[1].to_owned())];
        assert_eq!((got.as_slice(), scene.folder.effects()), (expected.as_slice(), effects));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_dies_is_started_again_and_told_how_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    for _ in 0..3 {
        kill_upstream(&scene.folder);
        let answer = scene.agent.ask(r#"{"id":5,"method":"resources/list"}"#).await;
        assert!(answer.contains("echo"), "{answer}");
    }
    assert_eq!(scene.folder.lines("lives").len(), 4);
    let heard = scene.folder.heard();
    let greetings: Vec<String> =
        heard.iter().filter(|line| line.contains("\"initialize\"")).map(|line| at(line, "params")).collect();
    assert_eq!(greetings.len(), 4);
    assert!(greetings.iter().all(|params| *params == at(HELLO, "params")), "{greetings:?}");
}

/// Rubbish is passed over, a flood and a frame without end end the upstream; the caller is told each time.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_misbehaves_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    for (fate, expected) in [("rubbish", "new"), ("huge", "outcome_unknown"), ("", "new")] {
        scene.folder.fates(&[fate]);
        let answer = scene.agent.call("write", "{}", "").await;
        assert_eq!(word(&answer), expected, "{fate}: {answer}");
    }
    // One that does not start, one that says nothing, one that only speaks rubbish.
    for command in [&["/nonexistent"][..], &["false"], &["yes"]] {
        let words: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
        let folder = tempfile::tempdir().unwrap();
        let server = ServerUrl::of_command(&words, folder.path()).unwrap();
        let (proxy, journal) = proxy(folder.path(), Upstream::Command(words, server));
        let mut agent = Agent::of(&proxy);
        let answer = agent.ask(HELLO).await;
        assert!(answer.contains("\"error\"") && answer.contains("upstream"), "{command:?}: {answer}");
        let answer = agent.call("write", "{}", "").await;
        assert!(answer.contains("nothing was sent"), "{command:?}: {answer}");
        assert!(journal.list(&Filter::default(), None, 1).unwrap().entries.is_empty());
    }
}

/// A flood of notifications goes no faster than its caller reads, and the answer behind it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_waits_for_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    scene.folder.fates(&["flood"]);
    let id = scene.agent.start("write", "{}", NO).await;
    let mut read = 0;
    loop {
        let line = scene.agent.hear().await;
        if at(&line, "id") == id {
            break;
        }
        assert_eq!(at(&line, "params.n"), read.to_string(), "in order, and whole");
        read += 1;
        if read % 500 == 0 {
            let said: usize = scene.folder.lines("flood").last().unwrap().parse().unwrap();
            // What a channel, two pipes and their buffers hold is well below this.
            assert!(said <= read + 2_000, "{said} were taken, and {read} read");
        }
    }
    assert_eq!((read, scene.folder.effects()), (upstream::FLOOD, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_misbehaves_gets_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let too_long = format!(r#"{{"id":1,"method":"{}"}}"#, "x".repeat(17 << 20));
    for (line, code) in [
        ("rubbish", "-32700"),
        (r#"[{"id":1,"method":"ping"}]"#, "-32600"),
        (r#"{"id":1,"id":2,"method":"ping"}"#, "-32600"),
        (r#"{"id":1,"method":"tools/call","params":{},"params":{}}"#, "-32600"),
        (r#"{"id":true,"method":"ping"}"#, "-32600"),
        (&*too_long, "-32600"),
    ] {
        let before = scene.folder.heard().len();
        scene.agent.say(line).await;
        let answer = scene.agent.hear().await;
        assert_eq!((at(&answer, "id"), at(&answer, "error.code")), ("null".into(), code.into()), "{answer}");
        assert_eq!(scene.folder.heard().len(), before, "nothing of it passes");
    }
    assert!(scene.agent.ask(r#"{"id":1,"method":"ping"}"#).await.contains("echo"));
}

/// A journal that cannot be written to: the call is not sent, and its caller is told so.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_journal_nothing_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    scene.agent.call("set", "{}", "").await;
    scene.journal.limit_pages(1).unwrap();
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(400_000));
    for tool in ["set", "write"] {
        let answer = scene.agent.call(tool, &long, "").await;
        assert!(answer.contains("nothing was sent") && answer.contains("no space left"), "{answer}");
    }
    assert_eq!(scene.folder.effects(), 1);
    assert!(scene.agent.call("read", "{}", "").await.contains("\"read\""), "reads need no journal");
}

/// Waits for what another process does.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
}

/// The upstream's process ends, as if it were killed.
fn kill_upstream(folder: &Folder) {
    let pid = folder.lines("pids").last().unwrap().clone();
    let status = std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert!(status.success(), "{pid}");
}

/// Kills the upstream that still holds an answer, once its caller has gone.
async fn kill_when_alone(folder: &Folder) {
    kill_upstream(folder);
}

const KILLED_AT: &str = "COUNTERFOIL_TEST_KILLED_AT";

/// The proxy, when this program is run as one: it dies at the boundary that it is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_proxy() {
    let Ok(told) = std::env::var(KILLED_AT) else { return };
    let (point, folder) = told.split_once('\n').unwrap();
    let (point, folder) = (point.to_owned(), std::path::PathBuf::from(folder));
    let watch = move |word: &'static str, edge| {
        let side = if edge == counterfoil_client::journal::Edge::Before { "before" } else { "after" };
        if point == format!("{side} {word}") {
            std::process::abort();
        }
    };
    let command = Folder(folder.clone()).command();
    let server = ServerUrl::of_command(&command, &folder).unwrap();
    let proxy = upstream::watched(&folder, Upstream::Command(command, server), Arc::new(watch)).0;
    proxy.serve_stdio(tokio::io::stdin(), tokio::io::stdout(), std::future::pending()).await.unwrap();
}

/// The proxy is killed at every boundary of a call, and the next one gets the same call: what that is told, and how
/// many effects there are.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_every_boundary_the_same_call_is_done_once() {
    let table = [
        ("before sent", ("new", 1), ("new", 1)),
        ("after sent", ("new", 1), ("outcome_unknown", 0)),
        ("before replied", ("replayed", 1), ("outcome_unknown", 1)),
        ("after replied", ("replayed", 1), ("replayed", 1)),
        ("before delivered", ("replayed", 1), ("replayed", 1)),
        ("after delivered", ("new", 2), ("new", 2)),
    ];
    for (point, set, write) in table {
        for (tool, (expected, effects)) in [("set", set), ("write", write)] {
            let folder = tempfile::tempdir().unwrap();
            killed(folder.path(), point, tool).await;
            let mut scene = Scene::new(folder.path()).await;
            let answer = scene.agent.call(tool, "{}", "").await;
            assert_eq!(
                (&*word(&answer), scene.folder.effects()),
                (expected, effects),
                "{point}, {tool}: {answer}"
            );
            let answer = scene.agent.call(tool, "{}", "").await;
            let got = (&*word(&answer), scene.folder.effects());
            assert_eq!(got, ("new", effects + 1), "{point}, {tool}: what was told is told once");
        }
    }
}

async fn killed(folder: &std::path::Path, point: &str, tool: &str) {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["the_proxy", "--exact", "--nocapture", "--test-threads=1"])
        .env(KILLED_AT, format!("{point}\n{}", folder.display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let initialized = r#"{"method":"notifications/initialized"}"#;
    let call = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{}}}}}}"#);
    stdin.write_all(format!("{HELLO}\n").as_bytes()).await.unwrap();
    // Who we are to the upstream stands in its answer.
    while !stdout.next_line().await.unwrap().unwrap().contains("\"hello\"") {}
    stdin.write_all(format!("{initialized}\n{call}\n").as_bytes()).await.unwrap();
    assert!(!child.wait().await.unwrap().success(), "{point}: it was not killed");
}
