//! PgBouncer in front of a cluster, in transaction mode: a server session is lent for one transaction.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use tokio_postgres::Config;

use super::cluster::{command, room, unprivileged, write_private};

/// Runs PgBouncer until its input ends, whatever becomes of the process that holds the other end.
const KEEPER: &str = r#"
trap '' INT TERM HUP
"$1" -q "$2/pgbouncer.ini" </dev/null >/dev/null 2>&1 &
read -r _
kill $!
wait
rm -rf "$2"
"#;

const MISSING: &str = "PgBouncer is missing: install it (Debian and Ubuntu: `apt-get install pgbouncer`)";

/// A running PgBouncer.
#[derive(Debug)]
pub struct Bouncer {
    port: u16,
    keeper: Child,
}

impl Bouncer {
    /// In front of the server at `port`, with so many sessions on it for each database and role.
    #[must_use]
    pub fn start(port: u16, sessions: usize) -> Self {
        let (folder, owner) = room();
        let own = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={port} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {own}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {sessions}\n\
             max_client_conn = 200\n"
        );
        write_private(&folder.join("pgbouncer.ini"), &config, owner);
        let mut keeper = command("sh", unprivileged());
        keeper.args(["-c", KEEPER, "keeper"]).arg(program()).arg(&folder);
        let keeper = keeper.stdin(Stdio::piped()).spawn().unwrap();
        // Until it listens.
        while TcpStream::connect(("127.0.0.1", own)).is_err() {}
        Self { port: own, keeper }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `config`, but through PgBouncer.
    #[must_use]
    pub fn through(&self, config: &Config) -> Config {
        let mut through = Config::new();
        through.host("127.0.0.1").port(self.port);
        through.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
        through
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([Path::new("/usr/sbin").to_owned()]).collect::<Vec<_>>();
    places.into_iter().map(|place| place.join("pgbouncer")).find(|program| program.is_file()).expect(MISSING)
}
