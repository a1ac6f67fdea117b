//! The way from a server to its database: passwords, certificates, poolers, standbys, and databases that are
//! not there yet or are too old. What is in the way is said; when it goes, nobody has to restart.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use counterfoil_testkit::postgres::{AUTOMATIONS, Authority, Bouncer, Cluster, Proxy, encrypted, runtime};
use counterfoil_testkit::site::{Data, Kind};
use counterfoil_testkit::{Done, Send, Server, Site, Who, set_interval};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

fn edit(id: &str, row: i64, version: i64) -> Send {
    Send::from(&set_interval(id, row, version, 30))
}

/// A site whose config names `database` of a cluster of the test's own; the site's own database is a file that nobody
/// uses.
fn over(url: &str, more: &str) -> (Site, PathBuf) {
    let site = Site::automations();
    let config = site.elsewhere("over.toml", url, more);
    (site, config)
}

fn start(config: &Path) -> Server {
    Server::start(Path::new(PROGRAM), config)
}

/// What `command` says of a config that it does not take, and its exit code.
fn denied(command: &str, config: &Path) -> (Option<i32>, String) {
    let output = Command::new(PROGRAM).arg(command).arg(config).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// A cluster that asks `secure` for a password, and everybody else for nothing.
fn with_password(password: &str) -> Cluster {
    let rules = "host all app 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    let cluster = Cluster::equipped(&["hba_file=FOLDER/rules.conf", "fsync=off"], &[("rules.conf", rules)]);
    cluster.execute("postgres", AUTOMATIONS);
    cluster.execute("postgres", &format!("CREATE ROLE app SUPERUSER LOGIN PASSWORD '{password}'"));
    cluster
}

/// A wrong password is said, and ends a server that starts; one that serves takes its place again when the password is
/// as it was.
#[test]
fn a_wrong_password_is_told_and_passes() {
    let cluster = with_password("right");
    let (site, config) = over(&cluster.url("app", "postgres"), "password_file = \"password\"\npool = 1");
    std::fs::write(site.database.directory().join("password"), "hunter2\n").unwrap();
    for command in ["check", "serve"] {
        let (code, told) = denied(command, &config);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("refused the password") && !told.contains("hunter2"), "{told}");
    }
    cluster.execute("postgres", "ALTER ROLE app PASSWORD 'hunter2'");
    let server = start(&config);
    let done = server.connect(Who::Alice).call(&edit("edit-42", 1, 1)).answer().done();
    cluster.execute("postgres", "ALTER ROLE app PASSWORD 'another'");
    cluster
        .execute("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    cluster.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE usename = 'app'");
    let busy = server.connect(Who::Alice).call(&edit("edit-43", 2, 1)).answer().refused();
    assert_eq!((busy.code.as_str(), busy.operation.as_deref()), ("busy", Some("unknown")), "{busy:?}");
    server.says("no connection to the database");
    assert!(!server.log().contains("hunter2"), "{}", server.log());
    cluster.execute("postgres", "ALTER ROLE app PASSWORD 'hunter2'");
    let again = server.connect(Who::Alice).call(&edit("edit-42", 1, 1)).answer().done();
    assert_eq!(again, Done { replayed: true, ..done });
    assert!(!server.connect(Who::Alice).call(&edit("edit-43", 2, 1)).answer().done().replayed);
}

/// `verify-full`: served by whom the authority has certified, for the name that is in the URL, and by nobody else.
#[test]
fn certificates_are_verified() {
    let (authority, stranger) = (Authority::fresh(), Authority::fresh());
    let cluster = encrypted(&authority);
    cluster.execute("postgres", AUTOMATIONS);
    let url = |host: &str, authority: &Authority| {
        let file = authority.file.path().display();
        format!(
            "postgres://postgres@{host}:{}/postgres?sslmode=verify-full&sslrootcert={file}",
            cluster.port()
        )
    };
    for url in [url("localhost", &stranger), url("127.0.0.1", &authority)] {
        let (_site, config) = over(&url, "");
        for command in ["check", "serve"] {
            let (code, told) = denied(command, &config);
            assert_eq!(code, Some(1), "{told}");
            assert!(told.contains("certificate"), "{command} {url}: {told}");
        }
    }
    let (_site, config) = over(&url("localhost", &authority), "");
    let server = start(&config);
    assert!(!server.connect(Who::Alice).call(&edit("edit-42", 1, 1)).answer().done().replayed);
    cluster.until("SELECT bool_or(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE backend_type = 'client backend'");
}

/// PgBouncer in transaction mode, with two sessions for all: `prepare = false`, and sixteen callers at once.
#[test]
fn a_pooler_that_lends_sessions() {
    let site = Site::automations_on(Kind::Postgres);
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    for row in 100..116 {
        database.execute(&format!("INSERT INTO automations VALUES ({row}, 'team-a', 15, 1)"));
    }
    let bouncer = Bouncer::start(Cluster::shared().port(), 2);
    let name = database.config().get_dbname().unwrap().to_owned();
    let url = format!("postgres://postgres@127.0.0.1:{}/{name}", bouncer.port());
    let server = start(&site.elsewhere("pooled.toml", &url, "prepare = false\npool = 16"));
    std::thread::scope(|scope| {
        for row in 100..116 {
            let server = &server;
            scope.spawn(move || {
                let mut alice = server.connect(Who::Alice);
                for version in 1..=10 {
                    let send = edit(&format!("edit-{row}-{version}"), row, version);
                    let done = alice.call(&send).answer().done();
                    assert!(!done.replayed, "{done:?}");
                    assert_eq!(alice.call(&send).answer().done(), Done { replayed: true, ..done });
                }
                let stale = alice.call(&edit(&format!("stale-{row}"), row, 1)).answer().refused();
                assert_eq!(stale.code, "version_conflict", "{stale:?}");
            });
        }
    });
    let get = server.connect(Who::Alice).call(&Send::new("get_automation", r#"{"id":100}"#));
    assert!(get.structured().contains("\"version\":11"), "{get:?}");
    assert_eq!(site.database.receipts(), 160);
    drop(server);
    drop(bouncer);
}

/// A server that starts before its database waits for it, says so, and serves when it is there.
#[test]
fn a_database_that_comes_later() {
    let site = Site::automations_on(Kind::Postgres);
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    let name = database.config().get_dbname().unwrap().to_owned();
    let early = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = early.local_addr().unwrap().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/{name}");
    let config = site.elsewhere("early.toml", &url, "start_wait = \"60s\"");
    let runtime = runtime();
    let (server, proxy) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| start(&config));
        // Its first try meets a host that hangs up at once.
        drop(early.accept().unwrap());
        drop(early);
        let proxy = runtime.block_on(Proxy::at(port, Cluster::shared().port()));
        (starting.join().unwrap(), proxy)
    });
    server.says("waiting for the database: ");
    assert!(!server.connect(Who::Alice).call(&edit("edit-42", 1, 1)).answer().done().replayed);
    drop((server, proxy));
}

/// What cannot be served from is said before anything is served, with what to do; and it is not waited for unless it may
/// pass by itself.
#[test]
fn servers_that_cannot_be_served_from() {
    let site = Site::automations_on(Kind::Postgres);
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    let name = database.config().get_dbname().unwrap().to_owned();
    // The server's word for its version, as an old one would say it.
    database.execute(
        "CREATE SCHEMA old; CREATE FUNCTION old.current_setting(name text) RETURNS text LANGUAGE sql AS \
         $$ SELECT CASE name WHEN 'server_version_num' THEN '130022' ELSE pg_catalog.current_setting(name) END $$",
    );
    let old = site.elsewhere("old.toml", &database.url(), "");
    database.set("search_path = old, pg_catalog, public");
    let host = format!("postgres://postgres@nowhere.invalid/{name}");
    let unknown = site.elsewhere("unknown.toml", &host, "start_wait = \"1s\"");
    let cases = [
        (&old, "the server is PostgreSQL 13 and 14 or newer is needed", false),
        (&unknown, "are host and port right", true),
    ];
    for (config, said, waits) in cases {
        for command in ["check", "serve"] {
            let (code, told) = denied(command, config);
            assert_eq!(code, Some(1), "{command}: {told}");
            assert!(told.contains(said), "{command}: {told}");
            assert_eq!(told.contains("waiting for"), waits && command == "serve", "{command}: {told}");
        }
    }
    database.set("search_path = public");
    assert_eq!(database.count("SELECT count(*) FROM pg_class WHERE relname LIKE 'counterfoil%'"), 0);
    // A standby, which may be promoted.
    let primary = Cluster::start(&["fsync=off", "wal_level=replica"]);
    primary.execute("postgres", AUTOMATIONS);
    let standby = primary.standby(&["fsync=off", "hot_standby=on"]);
    let replica = site.elsewhere("replica.toml", &standby.url("postgres", "postgres"), "start_wait = \"1s\"");
    for command in ["check", "serve"] {
        let (code, told) = denied(command, &replica);
        assert_eq!(code, Some(1), "{command}: {told}");
        assert!(told.contains("read-only standby"), "{command}: {told}");
        assert!(told.contains("target_session_attrs=read-write"), "{command}: {told}");
    }
    // Where a host that takes writes is asked for, one may come.
    let url = format!("{}?target_session_attrs=read-write", standby.url("postgres", "postgres"));
    let config = site.elsewhere("promoted.toml", &url, "start_wait = \"1s\"");
    let (code, told) = denied("serve", &config);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("waiting for the database: "), "{told}");
    let config = site.elsewhere("promoted.toml", &url, "start_wait = \"60s\"");
    standby.execute("postgres", "SELECT pg_promote()");
    let server = start(&config);
    assert!(!server.connect(Who::Alice).call(&edit("edit-42", 1, 1)).answer().done().replayed);
}
