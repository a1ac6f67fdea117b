//! What the story is played on: a folder of its own, the example's files in it, and a server process over them.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tempfile::TempDir;

/// The files of `examples/automations`, compiled in, so that the demo runs from anywhere.
pub(super) const CONFIG: &str = include_str!("../../example/counterfoil.toml");
pub(super) const SCHEMA: &str = include_str!("../../example/schema.sql");
/// The database that the example's config names.
pub(super) const DATABASE: &str = "automations.db";

/// How long the server may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the server says when it is ready, before its URL.
const READY: &str = "listening on http://";
/// Of a server that did not start, so much is shown.
const LAST_WORDS: u64 = 16 << 10;

/// Where the story finds its server and its database.
#[derive(Debug)]
pub(super) struct Scene {
    pub address: SocketAddr,
    pub database: PathBuf,
    /// Whose server it is, as the first lines of the story tell it.
    pub server: String,
}

/// The folder and the server process. Dropped, both are gone.
pub(super) struct Stage {
    server: Child,
    ready: Option<Receiver<anyhow::Result<SocketAddr>>>,
    folder: TempDir,
}

impl Stage {
    pub(super) fn raise() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("counterfoil-demo-").tempdir()?;
        let config = folder.path().join("counterfoil.toml");
        std::fs::write(&config, CONFIG)?;
        std::fs::write(folder.path().join("schema.sql"), SCHEMA)?;
        let server = start(&config)?;
        // From here on, whatever happens takes the server along.
        let mut stage = Self { server, ready: None, folder };
        let output = stage.server.stderr.take().context("the server has no output")?;
        let (tell, ready) = sync_channel(1);
        std::thread::Builder::new().name("server output".into()).spawn(move || listen(output, &tell))?;
        stage.ready = Some(ready);
        Ok(stage)
    }

    /// Waits for the server, when it is asked where it is. Does not keep the stage.
    pub(super) fn scene(&mut self) -> Lazy {
        Lazy {
            ready: self.ready.take(),
            database: self.folder.path().join(DATABASE),
            process: self.server.id(),
        }
    }
}

/// A scene whose server may still be starting.
pub(super) struct Lazy {
    ready: Option<Receiver<anyhow::Result<SocketAddr>>>,
    database: PathBuf,
    process: u32,
}

impl Lazy {
    pub(super) fn wait(self) -> anyhow::Result<Scene> {
        let ready = self.ready.context("the server was asked for twice")?;
        let address = ready.recv_timeout(PATIENCE).context("the server did not start in time")??;
        let server = format!("process {}, port {}", self.process, address.port());
        Ok(Scene { address, database: self.database, server })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Its database goes with it: there is nothing that a gentler end would save.
        let _gone = self.server.kill();
        let _ended = self.server.wait();
    }
}

fn start(config: &Path) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    Command::new(program)
        .arg("serve")
        .arg(config)
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("the server cannot be started")
}

/// Finds the address in the server's output, and reads on so that the server never waits for a reader.
fn listen(output: ChildStderr, tell: &SyncSender<anyhow::Result<SocketAddr>>) {
    let mut output = BufReader::new(output);
    // If nobody is there to hear it, the story is over.
    let _told = tell.send(address(&mut output));
    let _end = std::io::copy(&mut output, &mut std::io::sink());
}

fn address(output: &mut BufReader<ChildStderr>) -> anyhow::Result<SocketAddr> {
    let mut said = String::new();
    for line in output.by_ref().take(LAST_WORDS).lines() {
        let line = line?;
        if let Some(url) = line.strip_prefix(READY) {
            let address = url.split('/').next().unwrap_or_default();
            return address.parse().with_context(|| format!("the server listens on {url}"));
        }
        said.push_str(&line);
        said.push('\n');
    }
    bail!("the server did not start:\n{said}")
}
