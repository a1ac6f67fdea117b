//! `journal_fsync`: what it costs a client to have an operation on disk before it is sent.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use counterfoil::{Clock as _, SystemClock};
use counterfoil_client::answer::Answer;
use counterfoil_client::journal::{Begun, Journal};
use counterfoil_client::operation::{Arguments, Operation, Sending};
use counterfoil_client::words::{Caller, ServerUrl, Tool};
use counterfoil_core::{Epoch, Reply, RequestId};

use crate::figure::{Round, rate, rounds};
use crate::store::request_id;

const ARGUMENTS: &str = "{\"id\":1,\"expected_version\":1,\"interval_minutes\":30}";
const RESULT: &str = "{\"id\":1,\"interval_minutes\":30,\"version\":2}";

/// Calls by which the baseline's bytes are measured: too few for a checkpoint.
const SAMPLE: usize = 32;
/// Calls after which the baseline begins at the front again, about as many as the log holds between checkpoints.
const ROUND: usize = 100;

/// Ours: all that the journal does for one call: the operation and its try, on disk before the call would leave, and
/// then the reply, which need not last. Its log is flushed once a call, and its checkpoints are in it.
///
/// Baseline: as many bytes as the journal's log takes for a call, written to a file in the same folder, and one
/// `fdatasync`. The file has its size already and is written round and round, as the log is; it finds nothing again.
pub(crate) fn measure(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let journal = Journal::open(&room.join("journal.db"))?;
    let bytes = vec![b'x'; log_of_one(room, &journal)?];
    let file = std::fs::File::create(room.join("bare"))?;
    file.write_all_at(&vec![b'-'; ROUND * bytes.len()], 0)?;
    file.sync_all()?;
    let mut at = 0;
    let ours = || rate(slice, || call(&journal).map(|()| 1));
    let baseline = || {
        rate(slice, || {
            file.write_all_at(&bytes, at * bytes.len() as u64)?;
            file.sync_data()?;
            at = (at + 1) % ROUND as u64;
            Ok(1)
        })
    };
    rounds(ours, baseline)
}

fn call(journal: &Journal) -> anyhow::Result<()> {
    let operation = operation()?;
    let Begun::Send(attempt) = journal.begin(SystemClock.now(), &operation)? else {
        anyhow::bail!("a fresh operation may not leave");
    };
    let told = Answer::Replied(reply(&operation)?).told();
    let state = journal.answered(SystemClock.now(), attempt, &told)?;
    ensure!(state.ended(), "a reply did not end the operation");
    Ok(())
}

/// Bytes that the log grows by for one call.
fn log_of_one(room: &Path, journal: &Journal) -> anyhow::Result<usize> {
    let log = || Ok::<_, anyhow::Error>(usize::try_from(room.join("journal.db-wal").metadata()?.len())?);
    let before = log()?;
    for _ in 0..SAMPLE {
        call(journal)?;
    }
    let grown = log()?.saturating_sub(before);
    ensure!(grown > 0, "the log did not grow");
    Ok(grown / SAMPLE)
}

fn operation() -> anyhow::Result<Operation> {
    Ok(Operation {
        id: RequestId::parse(&request_id())?,
        server: ServerUrl::parse("http://127.0.0.1:8080/mcp").map_err(anyhow::Error::msg)?,
        caller: Caller::of_server("alice")?,
        tool: Tool::parse("set_interval")?,
        arguments: Arguments::parse(ARGUMENTS)?,
        sending: Sending::Repeatable,
    })
}

fn reply(operation: &Operation) -> anyhow::Result<Reply> {
    Ok(Reply {
        result: RESULT.into(),
        request_id: operation.id.clone(),
        replayed: false,
        committed_at: SystemClock.now(),
        epoch: Epoch::parse("0193a1b2-7c00-7000-8000-000000000000")?,
        current: None,
    })
}
