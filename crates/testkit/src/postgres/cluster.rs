//! A cluster in a temporary folder, on a free port, that ends with the process that started it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tokio_postgres::Config;

/// Starts the server, says so, waits until its input ends, stops the server and removes the folder.
///
/// The input ends when the process that holds its other end is gone, however it went: nothing is left behind.
const KEEPER: &str = r#"
trap '' INT TERM HUP
bin=$1 folder=$2 options=$3
if "$bin/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 120 -o "$options" start >/dev/null </dev/null
then echo ready
else tail -n 20 "$folder/log" | tr '\n' ' '; echo
fi
read -r _
"$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1
rm -rf "$folder"
"#;

const MISSING: &str = "PostgreSQL's server programs are missing: install them (Debian and Ubuntu: `apt-get install \
                       postgresql-15`), or name their folder in POSTGRES_BIN";

/// A running server.
#[derive(Debug)]
pub struct Cluster {
    port: u16,
    keeper: Child,
}

impl Cluster {
    /// The one that the tests of this process share. It does not wait for the disk; and it does not wait for its
    /// synchronous standby, which does not exist, except in a database that is told to.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let disk = ["fsync=off", "full_page_writes=off"];
            Self::start(&[disk[0], disk[1], "synchronous_commit=local", "synchronous_standby_names=nobody"])
        })
    }

    /// A server of its own, with `settings`.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        let bin = programs();
        let owner = unprivileged();
        let folder = tempfile::Builder::new().prefix("counterfoil-pg-").tempdir().unwrap().keep();
        if let Some((user, group)) = owner {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        initialise(&bin, &folder, owner);
        // Another program may take the port between our look and the server's start: then look again.
        let started = (0..5).find_map(|_| launch(&bin, &folder, settings, owner));
        started.expect("a PostgreSQL server could not be started")
    }

    /// How to reach `database` on it, as its superuser.
    #[must_use]
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("postgres").dbname(database);
        config
    }

    /// Where it listens, on the loopback interface.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}

type Owner = Option<(u32, u32)>;

fn launch(bin: &Path, folder: &Path, settings: &[&str], owner: Owner) -> Option<Cluster> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let always = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        format!("unix_socket_directories={}", folder.display()),
        "max_connections=400".to_owned(),
        "shared_buffers=64MB".to_owned(),
    ];
    let settings = always.into_iter().chain(settings.iter().map(|&setting| setting.to_owned()));
    let options: String = settings.map(|setting| format!("-c {setting} ")).collect();
    let mut keeper = command("sh", owner);
    keeper.args(["-c", KEEPER, "keeper"]).arg(bin).arg(folder).arg(options);
    let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said.trim() == "ready" {
        return Some(Cluster { port, keeper });
    }
    // Not through the keeper, which would remove the folder.
    eprintln!("PostgreSQL did not start: {said}");
    keeper.kill().unwrap();
    let _ended = keeper.wait();
    None
}

fn initialise(bin: &Path, folder: &Path, owner: Owner) {
    let mut initdb = command(bin.join("initdb"), owner);
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]);
    let made = initdb.arg(folder.join("data")).output().unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}

/// A command run as `owner`, from a folder that every user may be in.
fn command(program: impl Into<OsString>, owner: Owner) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir("/");
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// Where the server's programs are.
fn programs() -> PathBuf {
    let named = std::env::var_os("POSTGRES_BIN").map(PathBuf::from);
    let packaged =
        [15, 18, 17, 16, 14].map(|major| PathBuf::from(format!("/usr/lib/postgresql/{major}/bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = named.into_iter().chain(packaged).chain(std::env::split_paths(&path).collect::<Vec<_>>());
    let whole =
        |bin: &PathBuf| ["initdb", "postgres", "pg_ctl"].iter().all(|program| bin.join(program).is_file());
    places.into_iter().find(whole).expect(MISSING)
}

/// The server refuses to be root. If we are, it is somebody else: user and group of `postgres`, or else of `nobody`.
fn unprivileged() -> Owner {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let fields: Vec<_> = line.split(':').collect();
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("a user that is not root, to run PostgreSQL as"))
}
