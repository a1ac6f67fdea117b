//! `mcp_fresh` and `mcp_replay`: what receipts cost over the wire.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use memchr::memmem;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::figure::{Round, per_second, rounds};
use crate::server::{LISTENING, NOOP};
use crate::store::{Edit, TOOL, create, request_id, runtime};

/// Connections, and thereby callers, at once.
const CALLERS: i64 = 64;
/// Calls that each caller replays, over and over.
const PAST: u32 = 32;

/// The reference tool as `examples/automations` declares it; the hash is that of the client's token.
const CONFIG: &str = include_str!("../counterfoil.toml");

/// Ours: 64 connections, each with a row of its own, send one fresh `set_interval` after the other: token, strict
/// reading, schema, access, write, receipt, commit, answer.
///
/// Baseline: the same connections send the same bodies to the same server, addressed to a tool that answers
/// `{"result":null}` at once. It passes the same doors, and reads no schema.
pub(crate) fn fresh(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let mut bench = Bench::start(room)?;
    let (runtime, address) = (runtime()?, bench.address);
    let mut callers = runtime.block_on(connect(address))?;
    let mut idle = runtime.block_on(connect(address))?;
    let ours = || drive(&runtime, &mut callers, slice, Kind::Fresh);
    let baseline = || drive(&runtime, &mut idle, slice, Kind::Noop);
    let rounds = rounds(ours, baseline);
    bench.alive()?;
    rounds
}

/// Ours: 64 connections replay calls that have committed, and get the recorded result with the row as it is now.
///
/// Baseline: as in [`fresh`].
pub(crate) fn replay(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let mut bench = Bench::start(room)?;
    let (runtime, address) = (runtime()?, bench.address);
    let mut callers = runtime.block_on(connect(address))?;
    let mut idle = runtime.block_on(connect(address))?;
    while callers.iter().any(|caller| caller.past.len() < PAST as usize) {
        drive(&runtime, &mut callers, Duration::ZERO, Kind::Fresh)?;
    }
    let ours = || drive(&runtime, &mut callers, slice, Kind::Replay);
    let baseline = || drive(&runtime, &mut idle, slice, Kind::Noop);
    let rounds = rounds(ours, baseline);
    bench.alive()?;
    rounds
}

/// A server process, killed when this is dropped.
struct Bench {
    child: Child,
    address: SocketAddr,
}

impl Bench {
    fn start(room: &Path) -> anyhow::Result<Self> {
        create(room, "automations.db", CALLERS)?;
        let config = room.join("counterfoil.toml");
        std::fs::write(&config, CONFIG)?;
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("serve").arg(&config).stdout(Stdio::piped()).spawn()?;
        let address = listening(&mut child);
        if address.is_err() {
            let _gone = child.kill();
        }
        Ok(Self { address: address?, child })
    }

    /// A server that fell over made its last figures quickly.
    fn alive(&mut self) -> anyhow::Result<()> {
        ensure!(self.child.try_wait()?.is_none(), "the server ended before it was told to");
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn listening(child: &mut Child) -> anyhow::Result<SocketAddr> {
    let output = child.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let address = line.trim().strip_prefix(LISTENING).context("the server did not start")?;
    Ok(address.parse()?)
}

/// One caller: a connection, the edit that is next, and calls that have committed.
struct Caller {
    connection: Connection,
    next: Edit,
    past: Vec<(String, Edit)>,
    turn: usize,
}

async fn connect(address: SocketAddr) -> anyhow::Result<Vec<Caller>> {
    let mut callers = Vec::new();
    for row in 1..=CALLERS {
        let connection = Connection::open(address).await?;
        callers.push(Caller { connection, next: Edit::first(row), past: Vec::new(), turn: 0 });
    }
    Ok(callers)
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Fresh,
    Replay,
    Noop,
}

impl Caller {
    async fn call(&mut self, kind: Kind) -> anyhow::Result<()> {
        match kind {
            Kind::Fresh => self.fresh().await,
            Kind::Replay => self.replay().await,
            Kind::Noop => self.connection.call(NOOP, &request_id(), &self.next).await.map(drop),
        }
    }

    async fn fresh(&mut self) -> anyhow::Result<()> {
        let id = request_id();
        let body = self.connection.call(TOOL, &id, &self.next).await?;
        ensure!(memmem::find(body, b"\"replayed\":false").is_some(), "a fresh call was replayed");
        if self.past.len() < PAST as usize {
            self.past.push((id, self.next));
        }
        self.next = self.next.next();
        Ok(())
    }

    async fn replay(&mut self) -> anyhow::Result<()> {
        self.turn = (self.turn + 1) % self.past.len();
        let (id, edit) = self.past.get(self.turn).context("there is nothing to replay")?;
        let body = self.connection.call(TOOL, id, edit).await?;
        ensure!(memmem::find(body, b"\"replayed\":true").is_some(), "a replay was fresh");
        Ok(())
    }

    async fn until(mut self, end: Instant, kind: Kind) -> anyhow::Result<(Self, u32)> {
        let mut made = 0;
        while made == 0 || Instant::now() < end {
            self.call(kind).await?;
            made += 1;
        }
        Ok((self, made))
    }
}

/// Calls a second of all callers together; the client is one thread, so that the server has the rest of the machine.
fn drive(runtime: &Runtime, callers: &mut Vec<Caller>, slice: Duration, kind: Kind) -> anyhow::Result<f64> {
    runtime.block_on(async {
        let (start, mut made) = (Instant::now(), 0);
        let mut running = JoinSet::new();
        for caller in callers.drain(..) {
            running.spawn(caller.until(start + slice, kind));
        }
        while let Some(ended) = running.join_next().await {
            let (caller, calls) = ended??;
            callers.push(caller);
            made += calls;
        }
        Ok(per_second(made, start))
    })
}
