//! T8 on PostgreSQL: a history that lost its newest part is noticed at start and by the next connection, and a new
//! epoch begins once for the same loss.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::time::Duration;

use counterfoil::postgres::{Ledger, Options, begin_epoch};
use counterfoil::witness::Keep;
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::SetInterval;
use counterfoil_testkit::postgres::{Database, World};
use counterfoil_testkit::{Answer, Who, set_interval};

/// A server with a state folder of its own.
fn serve(database: Database, file: &Path) -> World {
    World::over(database, options(file))
}

fn options(file: &Path) -> Options {
    let keep = Keep { every: Duration::ZERO, ..Keep::at(file.to_owned()) };
    Options { witness: Some(keep), pool: 2, ..Options::default() }
}

fn edit(world: &World, number: i64) -> Answer {
    let call = call(Who::Alice, &set_interval(&format!("edit-{number}"), 1, number, 30));
    world.call(call.clone(), SetInterval::new(call))
}

fn epoch_of(answer: Answer) -> String {
    match answer {
        Answer::Done(done) => done.epoch,
        Answer::Refused(refused) => panic!("{refused:?}"),
    }
}

/// The newest operation is gone, row and receipt, as after a restore; and nobody is connected any more.
const LOSS: &str = "
    DELETE FROM counterfoil_receipts WHERE request_id = 'edit-2';
    UPDATE automations SET version = 2 WHERE id = 1;
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// The same, without a loss: a failover that kept everything.
const FAILOVER: &str = "
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()";

#[test]
fn t8_a_loss_is_noticed_by_the_next_connection_and_a_failover_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let world = serve(Database::fresh(), &folder.path().join("one"));
    let first = epoch_of(edit(&world, 1));
    assert_eq!(epoch_of(edit(&world, 2)), first);
    world.database.execute(FAILOVER);
    assert_eq!(epoch_of(edit(&world, 2)), first, "nothing is missing");
    world.database.execute(LOSS);
    let second = epoch_of(edit(&world, 2));
    assert_ne!(second, first, "the reply that finds the loss names the new epoch");
    assert_eq!(world.ledger.epoch().as_str(), second);
    world.database.execute(FAILOVER);
    assert_eq!(epoch_of(edit(&world, 3)), second, "begun once");
}

#[test]
fn t8_servers_that_find_the_same_loss_begin_one_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let one = serve(Database::fresh(), &folder.path().join("one"));
    let other = one.wait(Ledger::open(one.database.config(), options(&folder.path().join("two")))).unwrap();
    let first = epoch_of(edit(&one, 1));
    let call = call(Who::Alice, &set_interval("edit-2", 1, 2, 30));
    let handler = SetInterval::new(call.clone());
    let reply = one.wait(other.perform(std::sync::Arc::new(call), handler)).unwrap();
    assert_eq!(reply.epoch.as_str(), first);
    assert_eq!(epoch_of(edit(&one, 3)), first);
    [&one.ledger, &other].into_iter().for_each(Ledger::close);
    one.database.execute(LOSS);
    one.database.execute("DELETE FROM counterfoil_receipts WHERE request_id = 'edit-3'");
    let reopen = |name: &str| {
        let opened = Ledger::open(one.database.config(), options(&folder.path().join(name)));
        one.wait(opened).unwrap().epoch()
    };
    let (second, third) = (reopen("one"), reopen("two"));
    assert_ne!(second.as_str(), first);
    assert_eq!(second, third, "one loss, one epoch");
    assert_eq!(one.database.count("SELECT count(*) FROM counterfoil_epochs"), 1);
    let begun = one.wait(async { begin_epoch(&one.database.connect().await).await.unwrap() });
    assert_ne!(begun, second, "and one that an operator begins");
    assert_eq!(reopen("one"), begun);
}
