//! The server on PostgreSQL as a process: databases that will not have it, that are not there yet, that go and come
//! back; and a role that only serves.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use counterfoil_testkit::postgres::Database;
use counterfoil_testkit::site::{Data, EXAMPLE, Kind, for_everybody};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Send, Server, Site, Who, set_interval};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

fn database(site: &Site) -> &Database {
    match &site.database {
        Data::Postgres(_, database) => database,
        Data::Sqlite(_) => unreachable!(),
    }
}

fn config(site: &Site, url: &str, more: &str) -> PathBuf {
    site.elsewhere("other.toml", url, more)
}

fn counterfoil(arguments: &[&str], config: &Path) -> Output {
    Command::new(PROGRAM).args(arguments).arg(config).output().unwrap()
}

fn edit(id: &str, version: i64) -> Send {
    Send::from(&set_interval(id, 1, version, 30))
}

/// Each is said clearly, without a secret, and nothing is left behind.
#[test]
fn databases_that_cannot_be_served_from() {
    let site = Site::automations_on(Kind::Postgres);
    let url = database(&site).url();
    let (host, name) = url.trim_start_matches("postgres://postgres@").split_once('/').unwrap();
    let cases = [
        (format!("postgres://nobody:hunter2@{host}/{name}"), "", "does not let this role in"),
        (format!("postgres://postgres:hunter2@{host}/nowhere"), "", "the database does not exist: create it"),
        (
            format!("postgres://postgres:hunter2@127.0.0.1:1/{name}"),
            "start_wait = \"2s\"",
            "cannot be reached",
        ),
        (url.clone(), "password_env = \"COUNTERFOIL_NO_SUCH_VARIABLE\"", "this variable is not set"),
        (url.clone(), "password_env = \"COUNTERFOIL_NO_SUCH_VARIABLE\"", "\"COUNTERFOIL_NO_SUCH_VARIABLE\""),
        (url.clone(), "password_file = \"nowhere\"", "the password cannot be read"),
        (url.clone(), "password_file = \"nowhere\"", "password_file = \"nowhere\""),
        (format!("{url}?sslmode=require"), "", "TLS"),
        (format!("{url}?sslmode=verify-full&sslrootcert=nowhere.pem"), "", "nowhere.pem"),
    ];
    for (url, more, said) in cases {
        let config = config(&site, &url, more);
        for command in ["check", "serve"] {
            let output = counterfoil(&[command], &config);
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8(told).unwrap();
            assert_eq!(output.status.code(), Some(1), "{command} {url}: {told}");
            assert!(told.contains(said), "{command} {url}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
            // Only what may pass by itself is waited for, only by a server, and it says so.
            let waited = command == "serve" && more.starts_with("start_wait");
            assert_eq!(told.contains("waiting for the database: "), waited, "{command} {url}: {told}");
        }
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'counterfoil%'";
    assert_eq!(site.database.count(tables), 0);
}

/// The role that serves owns nothing: another makes the tables and grants what is needed, and no more.
#[test]
fn a_role_that_only_serves() {
    let site = Site::automations_on(Kind::Postgres);
    let (database, role) = (database(&site), "app_that_serves");
    database.execute(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
    let config = config(&site, &database.url().replace("postgres@", &format!("{role}@")), "");
    let denied = Server::try_start(Path::new(PROGRAM), &config).unwrap_err();
    assert_eq!(denied.code, Some(1), "{denied:?}");
    assert!(denied.log.contains("permission denied for table automations"), "{denied:?}");
    assert!(denied.log.contains("GRANT"), "{denied:?}");
    database.execute(&format!("GRANT SELECT, UPDATE ON automations TO {role}"));
    let denied = Server::try_start(Path::new(PROGRAM), &config).unwrap_err();
    assert_eq!(denied.code, Some(3), "{denied:?}");
    assert!(denied.log.contains("permission denied for schema public"), "{denied:?}");
    let migrated = counterfoil(&["migrate", "--owner", "postgres", "--grant-to", role], &config);
    assert!(migrated.status.success(), "{migrated:?}");
    let server = Server::start(Path::new(PROGRAM), &config);
    let done = server.connect(Who::Alice).call(&edit("edit-42", 1)).answer().done();
    let void = r#"{"tool":"set_interval","operation":"edit-43"}"#;
    let void = server.connect(Who::Alice).call(&Send::new("void_operation", void)).value();
    assert_eq!(void["state"], "voided", "{void}");
    let listed = counterfoil(&["receipts", "list"], &config);
    assert!(String::from_utf8(listed.stdout).unwrap().contains(&done.request_id));
    let shown =
        Command::new(PROGRAM).args(["receipts", "show"]).arg(&config).arg("edit-42").output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("interval_minutes"));
    let may = |right: &str| {
        let asked = format!("has_table_privilege('{role}', 'counterfoil_receipts', '{right}')::int");
        site.database.count(&format!("SELECT {asked}")) == 1
    };
    assert_eq!(["INSERT", "UPDATE", "DELETE", "TRUNCATE"].map(may), [true, false, false, false]);
    drop(server);
    database.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

/// Every connection is cut: the next call finds a new one, and what was known is known.
#[test]
fn it_recovers_without_a_restart() {
    let site = Site::automations_on(Kind::Postgres);
    let server = Server::start(Path::new(PROGRAM), &site.main());
    let done = server.connect(Who::Alice).call(&edit("edit-42", 1)).answer().done();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert!(site.database.count(cut) >= 1);
    let again = server.connect(Who::Alice).call(&edit("edit-42", 1)).answer().done();
    assert_eq!((again.result, again.replayed), (done.result, true));
    // The tables are gone, and come back.
    site.database.execute("ALTER TABLE automations RENAME TO elsewhere");
    let lost = server.connect(Who::Alice).call(&edit("edit-43", 2)).answer().refused();
    assert_eq!(lost.code, "internal");
    site.database.execute("ALTER TABLE elsewhere RENAME TO automations");
    let back = server.connect(Who::Alice).call(&edit("edit-43", 2)).answer().done();
    assert!(!back.replayed);
    assert_eq!(site.database.row(1).unwrap().version, 3);
}

/// A ledger of a newer program is left alone.
#[test]
fn a_newer_ledger_is_refused() {
    let site = Site::automations_on(Kind::Postgres);
    drop(Server::start(Path::new(PROGRAM), &site.main()));
    site.database.execute("UPDATE counterfoil_meta SET value = '999' WHERE name = 'schema'");
    let refused = Server::try_start(Path::new(PROGRAM), &site.main()).unwrap_err();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.log.contains("999"), "{refused:?}");
    let other = site.config("same.toml", &for_everybody(EXAMPLE));
    assert_eq!(counterfoil(&["check"], &other).status.code(), Some(1));
}
