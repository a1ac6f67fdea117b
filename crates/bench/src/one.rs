//! `sqlite_one`: what a receipt costs a lone caller.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;

use crate::figure::{Round, rate, rounds};
use crate::store::{Edit, Service, UPDATE, connect, create, open, request_id, runtime, update};

/// Ours: one caller, one receipted call after the other, each its own commit and answered after it.
///
/// Baseline: the bare versioned `UPDATE … RETURNING`, prepared once, on the caller's own thread, in autocommit. Same
/// durability (WAL, `synchronous=FULL`), same disk, a file of its own. It asks for no access and keeps no receipt.
pub(crate) fn measure(room: &Path, slice: Duration) -> anyhow::Result<Vec<Round>> {
    let service = Service::new(open(&create(room, "ours.db", 1)?)?)?;
    let bare = connect(&create(room, "bare.db", 1)?)?;
    let mut statement = bare.prepare(UPDATE)?;
    let runtime = runtime()?;
    let (mut receipted, mut plain) = (Edit::first(1), Edit::first(1));
    let ours = || {
        rate(slice, || {
            let replayed = runtime.block_on(service.call(&request_id(), receipted))?;
            ensure!(!replayed, "a fresh call was replayed");
            receipted = receipted.next();
            Ok(1)
        })
    };
    let baseline = || {
        rate(slice, || {
            ensure!(update(&mut statement, &plain)?.is_some(), "the bare update found no row");
            plain = plain.next();
            Ok(1)
        })
    };
    rounds(ours, baseline)
}
