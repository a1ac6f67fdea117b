//! A cluster in a temporary folder, on a free port, that ends with the process that started it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use tokio_postgres::Config;

use super::database::{connect, execute};
use super::wait;

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
    folder: PathBuf,
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
        Self::equipped(settings, &[])
    }

    /// A server of its own, with `settings` and files beside its data: a setting names a file by `FOLDER/name`.
    #[must_use]
    pub fn equipped(settings: &[&str], files: &[(&str, &str)]) -> Self {
        let (folder, owner) = room();
        for (name, content) in files {
            write_private(&folder.join(name), content, owner);
        }
        initialise(&server_programs(), &folder, owner);
        Self::launched(folder, settings, owner)
    }

    /// A standby that follows this server, with `settings` of its own.
    #[must_use]
    pub fn standby(&self, settings: &[&str]) -> Self {
        let (folder, owner) = room();
        let mut copy = command(server_programs().join("pg_basebackup"), owner);
        let primary = format!("host=127.0.0.1 port={} user=postgres application_name=standby", self.port);
        copy.args(["-R", "-X", "stream", "--checkpoint=fast", "--no-sync", "-d"]).arg(primary);
        let copied = copy.arg("-D").arg(folder.join("data")).output().unwrap();
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        Self::launched(folder, settings, owner)
    }

    /// A primary on which `sql` has run, and a standby that it waits for with every commit.
    #[must_use]
    pub fn pair(sql: &str) -> (Self, Self) {
        let primary = Self::start(&["fsync=off", "wal_level=replica"]);
        primary.execute("postgres", sql);
        let standby = primary.standby(&["fsync=off", "hot_standby=on"]);
        primary.execute("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        primary.execute("postgres", "SELECT pg_reload_conf()");
        primary.until("SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
        (primary, standby)
    }

    fn launched(folder: PathBuf, settings: &[&str], owner: Owner) -> Self {
        // Another program may take the port between our look and the server's start: then look again.
        let started = (0..5).find_map(|_| launch(&server_programs(), &folder, settings, owner));
        started.expect("a PostgreSQL server could not be started")
    }

    /// Kills the server and every process of its, as a power cut does to a machine: nothing is written any more.
    pub fn kill(&self) {
        let pid = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let all = std::iter::once(pid.as_str()).chain(children.split_whitespace());
        let killed = Command::new("kill").arg("-9").args(all).status().unwrap();
        assert!(killed.success() || !children.is_empty(), "the server could not be killed");
    }

    /// Stops it; [`Cluster::restart`] brings it back where it was.
    pub fn stop(&self) {
        self.control(&["-m", "immediate", "stop"]);
    }

    /// Starts it again as it was started, whether it runs or not.
    pub fn restart(&self) {
        self.control(&["-m", "immediate", "restart"]);
    }

    fn control(&self, order: &[&str]) {
        let mut control = command(server_programs().join("pg_ctl"), unprivileged());
        control.args(["-w", "-t", "120", "-D"]).arg(self.folder.join("data"));
        control.arg("-l").arg(self.folder.join("log")).args(order);
        // A server that is started keeps what it inherits.
        control.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(control.status().unwrap().success(), "pg_ctl {order:?} failed");
    }

    /// How to reach `database` on it, as its superuser.
    #[must_use]
    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("postgres").dbname(database);
        config
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap()).into_owned()
    }

    /// How to reach `database` on it as `role`, as a URL.
    #[must_use]
    pub fn url(&self, role: &str, database: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs `sql` in `database`, as its superuser.
    pub fn execute(&self, database: &str, sql: &str) {
        execute(&self.config(database), sql);
    }

    /// Asks until the answer is yes, as its superuser.
    pub fn until(&self, sql: &str) {
        wait(async {
            let client = connect(&self.config("postgres")).await;
            while !client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0) {}
        });
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

pub(super) type Owner = Option<(u32, u32)>;

fn launch(bin: &Path, folder: &Path, settings: &[&str], owner: Owner) -> Option<Cluster> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let always = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        format!("unix_socket_directories={}", folder.display()),
        "max_connections=400".to_owned(),
        "shared_buffers=64MB".to_owned(),
    ];
    let own = |setting: &&str| setting.replace("FOLDER", &folder.display().to_string());
    let settings = always.into_iter().chain(settings.iter().map(own));
    let options: String = settings.map(|setting| format!("-c {setting} ")).collect();
    let mut keeper = command("sh", owner);
    keeper.args(["-c", KEEPER, "keeper"]).arg(bin).arg(folder).arg(options);
    let mut keeper = keeper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said.trim() == "ready" {
        return Some(Cluster { port, folder: folder.to_owned(), keeper });
    }
    // Not through the keeper, which would remove the folder.
    eprintln!("PostgreSQL did not start: {said}");
    keeper.kill().unwrap();
    let _ended = keeper.wait();
    None
}

/// A folder of its own, for whoever runs the server.
pub(super) fn room() -> (PathBuf, Owner) {
    let owner = unprivileged();
    let folder = tempfile::Builder::new().prefix("counterfoil-pg-").tempdir().unwrap().keep();
    if let Some((user, group)) = owner {
        chown(&folder, Some(user), Some(group)).unwrap();
    }
    (folder, owner)
}

/// A file that only its owner may read, as the server wants its key.
pub(super) fn write_private(path: &Path, content: &str, owner: Owner) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if let Some((user, group)) = owner {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

fn initialise(bin: &Path, folder: &Path, owner: Owner) {
    let mut initdb = command(bin.join("initdb"), owner);
    initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]);
    let made = initdb.arg(folder.join("data")).output().unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}

/// A command run as `owner`, from a folder that every user may be in.
pub(super) fn command(program: impl Into<OsString>, owner: Owner) -> Command {
    let mut command = Command::new(program.into());
    command.current_dir("/");
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// Where the server's programs are.
#[must_use]
pub fn server_programs() -> PathBuf {
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
pub(super) fn unprivileged() -> Owner {
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
