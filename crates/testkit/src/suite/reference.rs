//! R1 to R12.

use serde_json::json;

use super::scene::refused_with;
use super::{Case, Change, Scene};
use crate::{Answer, Ask, Who, set_interval};

use Who::{Alice, AliceInB, AliceReading, Bob};

/// The reference behaviours. "Once" means one effect in the table and one receipt.
pub const REFERENCE: [Case; 12] = [
    Case { name: "R1", what: "the bare guarded UPDATE twice: the conflict cannot tell who won", steps: r1 },
    Case { name: "R2", what: "committed, reply lost, same call again: the stored result", steps: r2 },
    Case {
        name: "R3",
        what: "an older call again after a later edit: its own result, row untouched",
        steps: r3,
    },
    Case { name: "R4", what: "same id, other value, version or target: reused, nothing written", steps: r4 },
    Case { name: "R5", what: "new id, old version: conflict", steps: r5 },
    Case { name: "R6", what: "same id text, other principal or workspace: independent", steps: r6 },
    Case { name: "R7", what: "scope removed after the commit: forbidden, no receipt shown", steps: r7 },
    Case { name: "R8", what: "row moved, then deleted: unavailable, receipt kept", steps: r8 },
    Case { name: "R9", what: "receipt cannot be inserted: neither remains; mended, it is fresh", steps: r9 },
    Case { name: "R10", what: "two identical calls at once: one fresh, one replayed", steps: r10 },
    Case { name: "R11", what: "same id, two payloads at once: one accepted, one reused", steps: r11 },
    Case {
        name: "R12",
        what: "wrong arguments, ids and targets: the right code, nothing written",
        steps: r12,
    },
];

/// Row 1 of team-a, from version 1 to 2.
fn edit_42() -> Ask {
    set_interval("edit-42", 1, 1, 30)
}

fn r1(scene: &Scene<'_>) {
    assert_eq!(scene.stage().bare_update(1, 1, 30), 1);
    assert_eq!(scene.stage().bare_update(1, 1, 30), 0);
    scene.row(1, "team-a", 30, 2);
    scene.receipts(0);
}

fn r2(scene: &Scene<'_>) {
    scene.lost(Alice, &edit_42());
    scene.row(1, "team-a", 30, 2);
    let done = scene.call(Alice, &edit_42()).done();
    assert!(done.replayed, "{done:?}");
    assert_eq!(done.request_id, "edit-42");
    assert_eq!(done.result, r#"{"id":1,"interval_minutes":30,"version":2}"#);
    scene.row(1, "team-a", 30, 2);
    scene.receipts(1);
}

fn r3(scene: &Scene<'_>) {
    let first = scene.fresh(Alice, &edit_42());
    let _second = scene.fresh(Alice, &set_interval("edit-43", 1, 2, 60));
    scene.replayed(Alice, &edit_42(), &first);
    scene.row(1, "team-a", 60, 3);
    scene.receipts(2);
}

fn r4(scene: &Scene<'_>) {
    let first = scene.fresh(Alice, &edit_42());
    let others = [("edit-42", 1, 1, 45), ("edit-42", 1, 2, 30), ("edit-42", 2, 1, 30)];
    for (request_id, id, version, interval) in others {
        scene.refused(Alice, &set_interval(request_id, id, version, interval), "request_id_reused");
    }
    scene.replayed(Alice, &edit_42(), &first);
    scene.row(1, "team-a", 30, 2);
    scene.row(2, "team-a", 15, 1);
    scene.receipts(1);
}

fn r5(scene: &Scene<'_>) {
    let _first = scene.fresh(Alice, &edit_42());
    scene.refused(Alice, &set_interval("edit-43", 1, 1, 45), "version_conflict");
    scene.row(1, "team-a", 30, 2);
    scene.receipts(1);
}

fn r6(scene: &Scene<'_>) {
    let _alice = scene.fresh(Alice, &edit_42());
    let _bob = scene.fresh(Bob, &set_interval("edit-42", 2, 1, 45));
    let _alice_in_b = scene.fresh(AliceInB, &set_interval("edit-42", 20, 1, 60));
    scene.row(1, "team-a", 30, 2);
    scene.row(2, "team-a", 45, 2);
    scene.row(20, "team-b", 60, 2);
    scene.receipts(3);
    // Bob learns nothing of alice's operation: to him its payload under its id is his own operation's.
    scene.refused(Bob, &edit_42(), "request_id_reused");
}

fn r7(scene: &Scene<'_>) {
    let first = scene.fresh(Alice, &edit_42());
    scene.refused(AliceReading, &edit_42(), "forbidden");
    scene.refused(AliceReading, &set_interval("edit-43", 1, 2, 60), "forbidden");
    scene.replayed(Alice, &edit_42(), &first);
    scene.receipts(1);
}

fn r8(scene: &Scene<'_>) {
    let _first = scene.fresh(Alice, &edit_42());
    scene.stage().change(Change::Move { id: 1, workspace: "team-b" });
    scene.refused(Alice, &edit_42(), "resource_unavailable");
    scene.row(1, "team-b", 30, 2);
    scene.stage().change(Change::Delete { id: 1 });
    scene.refused(Alice, &edit_42(), "resource_unavailable");
    assert_eq!(scene.stage().row(1), None);
    scene.receipts(1);
}

fn r9(scene: &Scene<'_>) {
    scene.stage().change(Change::BreakReceipts);
    scene.refused(Alice, &edit_42(), "internal");
    scene.row(1, "team-a", 15, 1);
    scene.receipts(0);
    scene.stage().change(Change::MendReceipts);
    let _now = scene.fresh(Alice, &edit_42());
    scene.row(1, "team-a", 30, 2);
    scene.receipts(1);
}

/// Round `n` edits row 1 from version `n + 1`.
fn edit(round: usize, interval: i64) -> Ask {
    set_interval(&format!("edit-{round}"), 1, version(round), interval)
}

fn version(round: usize) -> i64 {
    i64::try_from(round).unwrap() + 1
}

fn r10(scene: &Scene<'_>) {
    let twice = |round| (edit(round, 30), edit(round, 30));
    scene.race(Alice, twice, |round, left, right| {
        let (left, right) = (left.done(), right.done());
        assert_ne!(left.replayed, right.replayed, "round {round}: {left:?} {right:?}");
        assert_eq!((left.result, left.committed_at), (right.result, right.committed_at), "round {round}");
    });
    scene.row(1, "team-a", 30, version(scene.races));
    scene.receipts(version(scene.races) - 1);
}

fn r11(scene: &Scene<'_>) {
    let rivals = |round| (edit(round, 30), edit(round, 45));
    scene.race(Alice, rivals, |round, left, right| {
        let (loser, lost, won, interval) = match (&left, &right) {
            (Answer::Done(_), _) => (edit(round, 45), right, left, 30),
            _ => (edit(round, 30), left, right, 45),
        };
        let won = won.done();
        assert!(!won.replayed, "round {round}: {won:?}");
        let result = format!(r#"{{"id":1,"interval_minutes":{interval},"version":{}}}"#, version(round) + 1);
        assert_eq!(won.result, result, "round {round}");
        refused_with(lost, "request_id_reused", &loser);
    });
    assert_eq!(scene.stage().row(1).unwrap().version, version(scene.races));
    scene.receipts(version(scene.races) - 1);
}

fn r12(scene: &Scene<'_>) {
    let with = |name: &str, value| edit_42().with(name, value);
    let wrong = [
        (with("id", json!(true)), "invalid_arguments"),
        (with("id", json!("1 OR 1=1")), "invalid_arguments"),
        (with("expected_version", json!(0)), "invalid_arguments"),
        (with("interval_minutes", json!(1)), "invalid_arguments"),
        (with("interval_minutes", json!(true)), "invalid_arguments"),
        (with("interval_minutes", json!(30.5)), "invalid_arguments"),
        (with("workspace", json!("team-b")), "invalid_arguments"),
        (edit_42().without("id"), "invalid_arguments"),
        (edit_42().without("request_id"), "request_id_required"),
        (with("request_id", json!("")), "invalid_request_id"),
        (with("request_id", json!("x".repeat(65))), "invalid_request_id"),
        (with("request_id", json!(null)), "invalid_request_id"),
        (with("request_id", json!("edit 42")), "invalid_request_id"),
        (with("id", json!(20)), "resource_unavailable"),
        (with("id", json!(999)), "resource_unavailable"),
    ];
    for (ask, code) in &wrong {
        scene.refused(Alice, ask, code);
    }
    for (id, workspace) in [(1, "team-a"), (2, "team-a"), (20, "team-b")] {
        scene.row(id, workspace, 15, 1);
    }
    scene.receipts(0);
    // None of them has used up the id.
    let _fresh = scene.fresh(Alice, &edit_42());
}
