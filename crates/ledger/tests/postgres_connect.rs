//! PostgreSQL: how connections are made. TLS and who must prove what, a pooler that lends sessions, a database that is
//! not there yet, servers that are not to be served, and what is said about each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::core::{Call, Windows};
use counterfoil::postgres::{Filter, Ledger, Options, Tls, Void};
use counterfoil::tokio_postgres::Config;
use counterfoil::tokio_postgres::config::{ChannelBinding, SslMode};
use counterfoil::{Key, OpenError};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::{SetInterval, Single, declaration};
use counterfoil_testkit::postgres::{
    AUTOMATIONS, Authority, Bouncer, Cluster, Database, Proxy, Scripted, World, encrypted, guarded, runtime,
};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Who, set_interval};

fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

/// As whom, by which name of the host, with which mode, who must prove what; and what comes of it.
struct Handshake {
    user: &'static str,
    host: &'static str,
    mode: SslMode,
    proven: Proven,
    opens: Result<bool, &'static str>,
}

#[derive(Clone, Copy)]
enum Proven {
    No,
    Yes,
    ByAnother,
}

use SslMode::{Disable, Prefer, Require};

const HANDSHAKES: [Handshake; 9] = [
    Handshake { user: "postgres", host: "localhost", mode: Disable, proven: Proven::No, opens: Ok(false) },
    Handshake { user: "postgres", host: "localhost", mode: Prefer, proven: Proven::No, opens: Ok(true) },
    Handshake {
        user: "secure",
        host: "localhost",
        mode: Disable,
        proven: Proven::No,
        opens: Err("does not let this role in"),
    },
    Handshake { user: "secure", host: "localhost", mode: Prefer, proven: Proven::No, opens: Ok(true) },
    Handshake { user: "secure", host: "elsewhere", mode: Require, proven: Proven::No, opens: Ok(true) },
    Handshake { user: "secure", host: "localhost", mode: Disable, proven: Proven::Yes, opens: Ok(true) },
    Handshake { user: "secure", host: "localhost", mode: Require, proven: Proven::Yes, opens: Ok(true) },
    Handshake {
        user: "secure",
        host: "elsewhere",
        mode: Require,
        proven: Proven::Yes,
        opens: Err("for this host"),
    },
    Handshake {
        user: "secure",
        host: "localhost",
        mode: Require,
        proven: Proven::ByAnother,
        opens: Err("by these authorities"),
    },
];

#[test]
fn connections_are_as_secret_as_they_are_asked_to_be() {
    let [authority, another] = [Authority::fresh(), Authority::fresh()];
    let (cluster, runtime) = (encrypted(&authority), runtime());
    let sql = "CREATE ROLE secure LOGIN SUPERUSER PASSWORD 'correct horse'";
    runtime.block_on(async {
        let (client, connection) =
            cluster.config("postgres").connect(counterfoil::tokio_postgres::NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        client.batch_execute(sql).await.unwrap();
    });
    for (at, case) in HANDSHAKES.iter().enumerate() {
        let mut config = cluster.config("postgres");
        config = over(&config, case.host);
        config.user(case.user).password("correct horse").ssl_mode(case.mode);
        if case.user == "secure" && case.mode != Disable {
            config.channel_binding(ChannelBinding::Require);
        }
        let tls = match case.proven {
            Proven::No => Tls::default(),
            Proven::Yes => Tls::proven_by(authority.file.path()).unwrap(),
            Proven::ByAnother => Tls::proven_by(another.file.path()).unwrap(),
        };
        let opened = runtime.block_on(Ledger::open(config, Options { tls, ..Options::default() }));
        match (opened, case.opens) {
            (Ok(ledger), Ok(secret)) => {
                let seen = runtime.block_on(ledger.read(|tx| {
                    Box::pin(async move {
                        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                        Ok(tx.query_one(sql, &[]).await?.get::<_, bool>(0))
                    })
                }));
                assert_eq!(seen.unwrap(), secret, "{at}");
            }
            (Err(error), Err(says)) => {
                assert!(error.to_string().contains(says) && !error.passing(), "{at}: {error}");
            }
            (opened, _) => panic!("{at}: {opened:?}"),
        }
    }
}

/// `config`, where the host is called `name`, and is not looked up.
fn over(config: &Config, name: &str) -> Config {
    let mut over = Config::new();
    over.host(name).hostaddr([127, 0, 0, 1].into()).port(config.get_ports()[0]);
    over.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
    over
}

/// What stands in the way, what is said about it, and whether waiting may help.
#[test]
fn what_stands_in_the_way_is_said() {
    let (cluster, runtime) = (guarded(), runtime());
    let database = Database::fresh();
    // An old server, as far as anybody can tell.
    database.execute(
        "CREATE FUNCTION public.current_setting(name text) RETURNS text LANGUAGE sql AS
         $$ SELECT CASE name WHEN 'server_version_num' THEN '130014' ELSE pg_catalog.current_setting(name) END $$",
    );
    let old = database.config();
    database.set("search_path = public, pg_catalog");
    let mut nowhere = old.clone();
    nowhere = over(&nowhere, "localhost");
    let nowhere = {
        nowhere = port(&nowhere, 1);
        nowhere
    };
    let mut password = over(&cluster.config("postgres"), "localhost");
    password.user("secure").password("wrong");
    let unknown = over(&cluster.config("nothing"), "localhost");
    // Longer than the name of any host: nobody is asked for it.
    let mut unnamed = Config::new();
    unnamed.host(format!("{}.example", "x".repeat(64))).user("postgres");
    let mut plain = over(&database.config(), "localhost");
    plain.ssl_mode(SslMode::Require);
    let cases = [
        (old, "PostgreSQL 13 and 14 or newer is needed", false),
        (nowhere, "are host and port right, and is it running", true),
        (unnamed, "are host and port right, and is it running", true),
        (password, "refused the password", false),
        (unknown, "does not exist", false),
        (plain, "does the server speak it", false),
    ];
    for (config, says, passing) in cases {
        let error = runtime.block_on(Ledger::open(config, Options::default())).unwrap_err();
        let told = format!("{error} {}", error.source().map(ToString::to_string).unwrap_or_default());
        assert!(told.contains(says) && !told.contains("wrong"), "{told}");
        assert_eq!(error.passing(), passing, "{told}");
    }
    let file = Tls::proven_by(Path::new("/nowhere/ca.pem")).unwrap_err().to_string();
    assert!(file.contains("/nowhere/ca.pem"), "{file}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty = Tls::proven_by(empty.path()).unwrap_err().to_string();
    assert!(empty.contains("no certificate"), "{empty}");
}

fn port(config: &Config, port: u16) -> Config {
    let mut other = Config::new();
    other.host("localhost").hostaddr([127, 0, 0, 1].into()).port(port);
    other.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
    other
}

/// A database that is not there yet is waited for, and what is waited for is told; what waiting cannot mend is not
/// waited for.
#[test]
fn opening_waits_for_a_database_that_is_not_there_yet() {
    let (database, runtime) = (Database::fresh(), runtime());
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    runtime.block_on(async {
        let config = port(&database.config(), free);
        let long = Duration::from_secs(60);
        let opening = Ledger::open_within(config, Options::default(), long, move |error: &OpenError| {
            let _full = tell.try_send(error.to_string());
        });
        let opening = tokio::spawn(opening);
        let said = told.recv().await.unwrap();
        assert!(said.contains("cannot be reached"), "{said}");
        let _proxy = Proxy::at(free, Cluster::shared().port()).await;
        assert!(opening.await.unwrap().is_ok());
    });
    let hopeless = Config::new();
    let quick = Ledger::open_within(hopeless, Options::default(), Duration::from_secs(3600), |_| {});
    assert!(!runtime.block_on(quick).unwrap_err().passing());
}

/// What breaks, by SQL or by hand, and what mends it.
struct Outage {
    name: &'static str,
    begins: fn(&Guarded),
    ends: fn(&Guarded),
}

/// A cluster that asks for a password, and the hand of its operator.
struct Guarded {
    cluster: Cluster,
    runtime: tokio::runtime::Runtime,
}

impl Guarded {
    fn execute(&self, sql: &str) {
        self.runtime.block_on(async {
            let config = self.cluster.config("postgres");
            let (client, connection) = config.connect(counterfoil::tokio_postgres::NoTls).await.unwrap();
            drop(tokio::spawn(connection));
            client.batch_execute(sql).await.unwrap();
        });
    }

    fn part(&self) {
        self.execute(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'secure'",
        );
    }
}

const OUTAGES: [Outage; 3] = [
    Outage {
        name: "the password is another",
        begins: |site| {
            site.execute("ALTER ROLE secure PASSWORD 'wrong horse'");
            site.part();
        },
        ends: |site| site.execute("ALTER ROLE secure PASSWORD 'correct horse'"),
    },
    Outage {
        name: "the role may not log in",
        begins: |site| {
            site.execute("ALTER ROLE secure NOLOGIN");
            site.part();
        },
        ends: |site| site.execute("ALTER ROLE secure LOGIN"),
    },
    Outage {
        name: "the server is down",
        begins: |site| site.cluster.stop(),
        ends: |site| site.cluster.restart(),
    },
];

/// While it lasts, calls are told to come again with the same id; when it is over, they are done, by the same ledger.
#[test]
fn a_ledger_recovers_without_being_opened_again() {
    let site = Guarded { cluster: guarded(), runtime: runtime() };
    site.execute(&format!("CREATE ROLE secure LOGIN SUPERUSER PASSWORD 'correct horse'; {AUTOMATIONS}"));
    let mut config = site.cluster.config("postgres");
    config.user("secure").password("correct horse");
    // An outcome that is in doubt is asked for to the end of the call.
    let options = Options { pool: 2, tries: 2, call_wait: Duration::from_secs(2), ..Options::default() };
    let ledger = site.runtime.block_on(Ledger::open(config, options)).unwrap();
    let declared = Arc::new(site.runtime.block_on(ledger.declare(&declaration())).unwrap());
    let edit = |version: i64| {
        let ask = set_interval(&format!("edit-{version}"), 1, version, 30);
        let handler = Single::new(call(Who::Alice, &ask), &declared);
        let call = Arc::clone(&handler.steps.call);
        Answer::from(site.runtime.block_on(ledger.perform(call, handler)))
    };
    assert!(!edit(1).done().replayed);
    for (outage, version) in OUTAGES.iter().zip(2..) {
        (outage.begins)(&site);
        for _ in 0..2 {
            let refused = edit(version).refused();
            let open = ["busy", "outcome_unknown"].contains(&&*refused.code) && refused.retry == "same_id";
            assert!(open, "{}: {refused:?}", outage.name);
        }
        (outage.ends)(&site);
        assert!(!edit(version).done().replayed, "{}", outage.name);
        assert!(edit(version - 1).done().replayed, "{}", outage.name);
    }
}

/// PgBouncer 1.18 in transaction mode, two server sessions for sixteen connections of ours: everything works that
/// works without it, and no setting or statement is left behind in a session that others will get.
#[test]
fn a_pooler_that_lends_sessions_is_served() {
    let world = World::fresh("", Options::default());
    let bouncer = Bouncer::start(Cluster::shared().port(), 2);
    let options = Options { prepare: false, ..Options::default() };
    let ledger = world.wait(Ledger::open(bouncer.through(&world.database.config()), options)).unwrap();
    let declared = Arc::new(world.wait(ledger.declare(&declaration())).unwrap());
    let asks: Vec<_> =
        (0..200).map(|round| set_interval(&format!("edit-{}", round / 2), 1, 1 + round / 2, 30)).collect();
    // Each version waits for the one before it: in order, and each twice at once.
    for pair in asks.chunks(2) {
        let calls: Vec<_> = pair
            .iter()
            .map(|ask| {
                let (ledger, handler) = (ledger.clone(), Single::new(call(Who::Alice, ask), &declared));
                let call = Arc::clone(&handler.steps.call);
                world.runtime.spawn(async move { ledger.perform(call, handler).await })
            })
            .collect();
        let done: Vec<_> = calls.into_iter().map(|call| world.finish(call).done()).collect();
        assert_ne!(done[0].replayed, done[1].replayed);
        assert_eq!(done[0].committed_at, done[1].committed_at);
    }
    assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (100, 101));
    // A storm over sessions that others use at the same time.
    let storm: Vec<_> = (0..200)
        .map(|round| {
            let ask = set_interval(&format!("storm-{}", round % 100), 2, 1, 30);
            let (ledger, handler) = (ledger.clone(), Single::new(call(Who::Alice, &ask), &declared));
            let call = Arc::clone(&handler.steps.call);
            world.runtime.spawn(async move { ledger.perform(call, handler).await })
        })
        .collect();
    let answers: Vec<_> = storm.into_iter().map(|call| world.finish(call)).collect();
    let fresh =
        answers.iter().filter(|answer| matches!(answer, Answer::Done(done) if !done.replayed)).count();
    assert_eq!((fresh, world.database.row(2).unwrap().version), (1, 2), "{answers:?}");
    // The other ways in.
    let key = alice("void-1");
    assert_eq!(world.wait(ledger.void(Key::from(&key), Windows::default())).unwrap(), Void::Voided);
    assert_eq!(world.wait(ledger.pin_contract("t", "v1", "one")).unwrap(), "one");
    assert_eq!(world.wait(ledger.pin_contract("t", "v1", "two")).unwrap(), "one");
    assert_eq!(world.wait(ledger.list(&Filter { limit: 500, ..Filter::default() })).unwrap().len(), 102);
    assert!(world.wait(ledger.find_record(Key::from(&key))).unwrap().is_some());
    // Nothing is left behind: neither statements nor settings.
    let config = bouncer.through(&world.database.config());
    let left = world.wait(async {
        let (client, connection) = config.connect(counterfoil::tokio_postgres::NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        let sql = "SELECT (SELECT count(*) FROM pg_prepared_statements) || ' ' || current_setting('lock_timeout') || ' '
                          || current_setting('statement_timeout') || ' ' || current_setting('enable_seqscan')";
        client.simple_query(sql).await.unwrap()
    });
    let left = format!("{left:?}");
    assert!(left.contains("0 0 0 on"), "{left}");
}

/// Step by step, too; and a handler that asks can tell how to run its statements.
#[test]
fn a_pooler_that_lends_sessions_serves_handlers() {
    let world = World::fresh("", Options::default());
    let bouncer = Bouncer::start(Cluster::shared().port(), 2);
    let options = Options { prepare: false, ..Options::default() };
    let ledger = world.wait(Ledger::open(bouncer.through(&world.database.config()), options)).unwrap();
    let run = || {
        let reply = ledger.run(
            alice("edit-42"),
            |_| Box::pin(async { Ok(true) }),
            |tx| {
                Box::pin(async move {
                    assert!(!tx.keeps_statements());
                    let sql = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";
                    Ok(tx.query_typed_one(sql, &[]).await?.get::<_, i64>(0))
                })
            },
        );
        Answer::from(world.wait(reply)).done()
    };
    let (fresh, replay) = (run(), run());
    assert_eq!((fresh.replayed, replay.replayed, &fresh.result), (false, true, &replay.result));
    assert_eq!(fresh.committed_at, replay.committed_at);
}

/// Without it, connections are kept with their statements, and the handlers' own.
#[test]
fn connections_of_our_own_keep_statements() {
    let world = World::fresh("", Options { pool: 1, ..Options::default() });
    let handler = SetInterval::new(alice("edit-42"));
    let done = world.call(alice("edit-42"), handler).done();
    assert!(!done.replayed);
    assert!(!world.call(alice("edit-43"), Scripted::new(&["SELECT 1::bigint"])).done().replayed);
    let kept = world.wait(world.ledger.read(|tx| {
        Box::pin(async move {
            let sql =
                "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%counterfoil_receipts%'";
            Ok(tx.query_one(sql, &[]).await?.get::<_, i64>(0))
        })
    }));
    assert!(kept.unwrap() >= 2);
}
