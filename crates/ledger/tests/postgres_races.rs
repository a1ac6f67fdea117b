//! PostgreSQL, where a loser has looked before its rival committed and writes after it: what the write then meets
//! (its own receipt, a unique key, a trigger, a class 22 error, no row) is not the answer. The rival's receipt is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use counterfoil::core::{Call, Windows};
use counterfoil::postgres::{Options, Receipts, Turn, Void, commit};
use counterfoil::{Fault, Key};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::{Scripted, World};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Gate, Who, set_interval};

/// A call of alice's. Its arguments matter to the fingerprint alone; what it does is in the statements.
fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

/// One way for a late loser to fail.
struct Late {
    name: &'static str,
    /// Beside the reference application.
    schema: &'static str,
    write: &'static str,
    /// What the error, or the empty result, would say by itself.
    naive: &'static str,
}

const LATE: [Late; 7] = [
    Late {
        name: "an unversioned UPDATE meets the rival's receipt",
        schema: "",
        write: "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version",
        // Ignoring the conflict would be a second effect: under another id it is one.
        naive: "done",
    },
    Late {
        name: "an INSERT meets its own unique key",
        schema: "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, name text UNIQUE)",
        write: "INSERT INTO orders (name) VALUES ('milk') RETURNING id",
        naive: "constraint_violated",
    },
    Late {
        name: "a versioned UPDATE finds no row",
        schema: "",
        write: "UPDATE automations SET version = 2 WHERE id = 1 AND version = 1 RETURNING version",
        naive: "version_conflict",
    },
    Late {
        name: "a trigger of the application's own says no",
        schema: "CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF old.version > 1 THEN RAISE EXCEPTION 'only once'; END IF; RETURN new; END $$;
                 CREATE TRIGGER once BEFORE UPDATE ON automations FOR EACH ROW EXECUTE FUNCTION once()",
        write: "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version",
        naive: "constraint_violated",
    },
    Late {
        name: "the division is by zero now",
        schema: "",
        write: "UPDATE automations SET version = 1 + 1 / (2 - version) WHERE id = 1 RETURNING version",
        naive: "invalid_arguments",
    },
    Late {
        name: "a CHECK of the application's refuses what it would become",
        schema: "",
        write: "UPDATE automations SET interval_minutes = interval_minutes * 50 WHERE id = 1 RETURNING version",
        naive: "constraint_violated",
    },
    Late {
        name: "the permission has gone",
        schema: "CREATE FUNCTION once() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                   IF (SELECT version FROM automations WHERE id = 1 FOR UPDATE) > 1
                   THEN RAISE EXCEPTION USING ERRCODE = '42501'; END IF;
                   UPDATE automations SET version = 2 WHERE id = 1; RETURN 2; END $$",
        write: "SELECT once()",
        naive: "resource_unavailable",
    },
];

fn code(answer: &Answer) -> &str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Refused(refused) => &refused.code,
    }
}

#[test]
fn a_late_loser_gets_the_winners_reply() {
    for late in LATE {
        let world = World::fresh(late.schema, Options::default());
        let (gate, script) = (Gate::default(), Scripted::new(&[late.write]));
        let loser = world.start(alice("edit-42"), script.clone().waiting_at(&gate));
        gate.arrived();
        let won = world.call(alice("edit-42"), script.clone()).done();
        assert!(!won.replayed, "{}", late.name);
        gate.open();
        let lost = world.finish(loser).done();
        assert!(lost.replayed, "{}: {lost:?}", late.name);
        assert_eq!((&lost.result, &lost.committed_at), (&won.result, &won.committed_at), "{}", late.name);
        assert_eq!((world.database.receipts(), script.count()), (1, 2), "{}", late.name);
        // What the loser met is what the same write meets under an id that has no receipt.
        let naive = world.call(alice("edit-43"), script);
        assert_eq!(code(&naive), late.naive, "{}: {naive:?}", late.name);
    }
}

/// The same in transactions of the caller's: nothing is an answer until [`Receipts::judge`] has looked again.
#[test]
fn a_late_loser_that_owns_its_transaction_gets_the_winners_reply() {
    for late in LATE {
        let world = World::fresh(late.schema, Options::default());
        let call = alice("edit-42");
        let won = world.wait(late_in_own_transaction(&world, &late, &call));
        assert_eq!(world.database.receipts(), 1, "{}: {won}", late.name);
    }
}

async fn late_in_own_transaction(world: &World, late: &Late, call: &Call) -> String {
    let receipts = world.ledger.receipts();
    let mut client = world.database.connect().await;
    let tx = client.transaction().await.unwrap();
    let Turn::Fresh(permit) = receipts.begin_tx(&tx, call).await.unwrap() else { panic!("{}", late.name) };
    let script = Scripted::new(&[late.write]);
    let won = world.ledger.perform(Arc::new(call.clone()), script).await.unwrap();
    let answer = match tx.query_opt(late.write, &[]).await {
        Ok(Some(row)) => permit.record(&row.get::<_, i64>(0)).await,
        Ok(None) => permit.refuse(counterfoil::core::Refusal::version_conflict(None)).await,
        Err(error) => Err(Fault::from(error)),
    };
    let _rolled_back = tx.rollback().await;
    let reply = match answer {
        Ok(reply) => reply,
        Err(fault) => receipts.judge(&client, call, fault).await.unwrap(),
    };
    assert!(reply.replayed, "{}", late.name);
    assert_eq!((&reply.result, reply.committed_at), (&won.result, won.committed_at), "{}", late.name);
    reply.body()
}

/// A late loser with another payload learns that the id is taken, and not what its write met.
#[test]
fn a_late_loser_with_another_payload_learns_that_the_id_is_taken() {
    for late in LATE {
        let world = World::fresh(late.schema, Options::default());
        let (gate, script) = (Gate::default(), Scripted::new(&[late.write]));
        let other = call(Who::Alice, &set_interval("edit-42", 1, 1, 45));
        let loser = world.start(other, script.clone().waiting_at(&gate));
        gate.arrived();
        let _won = world.call(alice("edit-42"), script).done();
        gate.open();
        assert_eq!(world.finish(loser).refused().code, "request_id_reused", "{}", late.name);
        assert_eq!(world.database.receipts(), 1, "{}", late.name);
    }
}

/// A tool whose own success takes access away: the loser is asked the replay's rule, though when it looked there was
/// no receipt.
#[test]
fn a_late_loser_of_a_delete_gets_the_winners_reply() {
    let world = World::fresh("", Options::default());
    let gate = Gate::default();
    let script = Scripted {
        access: "SELECT 1 FROM automations WHERE id = 1 AND workspace_id = 'team-a'".into(),
        ..Scripted::new(&["DELETE FROM automations WHERE id = 1 RETURNING id"])
    };
    let loser = world.start(alice("delete-1"), script.clone().waiting_at(&gate));
    gate.arrived();
    let won = world.call(alice("delete-1"), script.clone()).done();
    gate.open();
    let lost = world.finish(loser).done();
    assert_eq!((lost.replayed, lost.result), (true, won.result));
    assert_eq!(world.call(alice("delete-2"), script).refused().code, "resource_unavailable");
}

/// Two identical calls at the same instant, 200 times, with writes that nothing but the receipt keeps from running
/// twice. With `ON CONFLICT DO NOTHING` on the receipt the version would end near 401.
#[test]
fn identical_calls_at_once_write_once() {
    let schema = "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, name text UNIQUE)";
    let world = World::fresh(schema, Options::default());
    for round in 0..200 {
        let order = format!("INSERT INTO orders (name) VALUES ('order-{round}')");
        let update = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";
        let script = Scripted::new(&[&order, update]);
        let calls = [(); 2].map(|()| world.start(alice(&format!("edit-{round}")), script.clone()));
        let [left, right] = calls.map(|call| world.finish(call).done());
        assert_ne!(left.replayed, right.replayed, "round {round}");
        assert_eq!((left.result, left.committed_at), (right.result, right.committed_at), "round {round}");
    }
    assert_eq!(world.database.row(1).unwrap().version, 201);
    assert_eq!(world.database.count("SELECT count(*) FROM orders"), 200);
    assert_eq!(world.database.receipts(), 200);
}

/// C10: a call and its void at the same instant, 200 times: exactly one of the two holds, and both say the same.
#[test]
fn a_call_and_its_void_agree() {
    let world = World::fresh("", Options::default());
    let mut commits = 0;
    for round in 0..200 {
        let call = Arc::new(alice(&format!("edit-{round}")));
        let script =
            Scripted::new(&["UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version"]);
        let ledger = world.ledger.clone();
        let voided = {
            let call = Arc::clone(&call);
            world.runtime.spawn(async move { ledger.void(Key::from(&*call), Windows::default()).await })
        };
        let done = world.call((*call).clone(), script);
        match (world.wait(voided).unwrap().unwrap(), done) {
            (Void::Committed(at), Answer::Done(done)) => {
                assert_eq!(at.to_string(), done.committed_at, "round {round}");
                commits += 1;
            }
            (Void::Voided, Answer::Refused(refused)) => assert_eq!(refused.code, "request_id_voided"),
            (void, done) => panic!("round {round}: {void:?} and {done:?}"),
        }
    }
    assert_eq!(world.database.row(1).unwrap().version, 1 + commits);
    assert_eq!(world.database.receipts(), 200);
}

/// C10: "is it in?" while the original is on its way is answered "not so far"; after a void it never commits.
#[test]
fn what_was_voided_on_its_way_never_commits() {
    let world = World::fresh("", Options::default());
    let gate = Gate::default();
    let update =
        Scripted::new(&["UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version"]);
    let original = world.start(alice("edit-42"), update.waiting_at(&gate));
    gate.arrived();
    let call = alice("edit-42");
    let key = Key::from(&call);
    assert_eq!(world.wait(world.ledger.find_record(key)).unwrap(), None);
    assert_eq!(world.wait(world.ledger.void(key, Windows::default())).unwrap(), Void::Voided);
    gate.open();
    let refused = world.finish(original).refused();
    assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("request_id_voided", Some("voided")));
    assert_eq!(world.wait(world.ledger.void(key, Windows::default())).unwrap(), Void::Voided);
    assert_eq!(world.database.row(1).unwrap().version, 1);
}

const MINE: &str = "SELECT 1 FROM automations WHERE id = 1 AND workspace_id = 'team-a'";
const MOVE: &str = "UPDATE automations SET workspace_id = 'team-b' WHERE id = 1";

/// A row that moves between reading and writing: an access rule that ends in FOR SHARE holds it. Without that, a
/// write that does not repeat the condition lands in another tenant.
#[test]
fn a_row_cannot_move_between_access_and_write() {
    for (lock, moved) in [("", true), (" FOR SHARE", false)] {
        let world = World::fresh("", Options::default());
        let gate = Gate::default();
        let update = "UPDATE automations SET interval_minutes = 30 WHERE id = 1 RETURNING id";
        let script = Scripted::new(&[update]).for_whom(&format!("{MINE}{lock}")).waiting_at(&gate);
        let call = world.start(alice("edit-42"), script);
        gate.arrived();
        let sql = format!("SET lock_timeout = '50ms'; {MOVE}");
        let mover = world.wait(async { world.database.connect().await.batch_execute(&sql).await });
        assert_eq!(mover.is_ok(), moved, "{lock:?}");
        gate.open();
        let _done = world.finish(call).done();
        let row = world.database.row(1).unwrap();
        assert_eq!((row.workspace.as_str(), row.interval), (if moved { "team-b" } else { "team-a" }, 30));
    }
}

/// A handler that hides an error has no transaction any more, and PostgreSQL's COMMIT of that says no error.
#[test]
fn a_hidden_error_is_no_success() {
    let world = World::fresh("", Options::default());
    let hiding = |hide: bool| {
        let write: &'static str = "UPDATE automations SET version = version + 1 WHERE id = 1";
        let reply = world.ledger.run(
            alice("edit-42"),
            |_| Box::pin(async { Ok(true) }),
            move |tx| {
                Box::pin(async move {
                    tx.execute(write, &[]).await?;
                    if hide {
                        assert!(tx.execute("SELECT 1 / 0", &[]).await.is_err());
                    }
                    Ok(1)
                })
            },
        );
        Answer::from(world.wait(reply))
    };
    assert_eq!(hiding(true).refused().code, "internal");
    assert_eq!((world.database.row(1).unwrap().version, world.database.receipts()), (1, 0));
    assert!(!hiding(false).done().replayed);
    world.wait(async {
        let mut client = world.database.connect().await;
        for sure in [false, true] {
            let tx = client.transaction().await.unwrap();
            assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
            let committed = if sure { commit(tx).await.is_ok() } else { tx.commit().await.is_ok() };
            assert_eq!(committed, !sure, "the driver's own commit tells a success that was none");
        }
    });
}

/// A handler that ends the ledger's transaction gets no receipt for what it wrote, and no success.
#[test]
fn a_transaction_that_ended_has_no_receipt() {
    for ending in ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "ROLLBACK; BEGIN"] {
        let world = World::fresh("", Options::default());
        let reply = world.ledger.run(
            alice("edit-42"),
            |_| Box::pin(async { Ok(true) }),
            move |tx| {
                Box::pin(async move {
                    tx.batch_execute(ending).await?;
                    Ok(1)
                })
            },
        );
        assert_eq!(Answer::from(world.wait(reply)).refused().code, "internal", "{ending}");
        assert_eq!(world.database.receipts(), 0, "{ending}");
        // The connection is as good as before.
        let script = Scripted::new(&["SELECT 1::bigint"]);
        assert!(!world.call(alice("edit-42"), script).done().replayed, "{ending}");
    }
}

/// [`Receipts`] on a caller's connection: a receipt lives and dies with its transaction.
#[test]
fn a_receipt_lives_and_dies_with_its_transaction() {
    let world = World::fresh("", Options::default());
    world.wait(async {
        let mut client = world.database.connect().await;
        let receipts = Receipts::open(&client).await.unwrap();
        for (keep, replayed) in [(false, false), (true, false), (true, true)] {
            let tx = client.transaction().await.unwrap();
            let call = alice("edit-42");
            let reply = match receipts.begin_tx(&tx, &call).await.unwrap() {
                Turn::Replay(reply) => reply,
                Turn::Fresh(permit) => permit.record(&keep).await.unwrap(),
            };
            assert_eq!(reply.replayed, replayed);
            if keep { commit(tx).await.unwrap() } else { tx.rollback().await.unwrap() }
        }
    });
    assert_eq!(world.database.receipts(), 1);
}
