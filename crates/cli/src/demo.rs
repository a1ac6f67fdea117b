//! `counterfoil demo`: the story of a lost answer, with a real server, a real cut and a real retry.

mod client;
mod cut;
mod page;
mod stage;
mod story;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

use crate::output;
use page::{Broken, Page};
use stage::Stage;

/// Something that the demo claims did not happen.
const BROKEN: u8 = 1;
/// As shells tell of a program that was interrupted.
const INTERRUPTED: u8 = 130;

pub(crate) fn demo() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(play());
    // An interrupted story may still be waiting for an answer; nobody waits for it.
    runtime.shutdown_background();
    verdict(outcome)
}

/// The exit code of what was played: a claim that does not hold has its own.
fn verdict(outcome: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match outcome {
        Err(error) if error.is::<Broken>() => {
            eprintln!("counterfoil: a claim of the demo does not hold: {error}");
            Ok(ExitCode::from(BROKEN))
        }
        outcome => outcome,
    }
}

/// Raises the stage, plays on it, and strikes it whatever happens.
async fn play() -> anyhow::Result<ExitCode> {
    let interrupted = interrupted()?;
    let mut stage = Stage::raise()?;
    let scene = stage.scene();
    let colour = output::coloured(&std::io::stdout());
    let telling = tokio::task::spawn_blocking(move || {
        story::tell(&mut Page::new(std::io::stdout(), colour), &scene.wait()?)
    });
    let outcome = tokio::select! {
        told = telling => told.context("the demo broke off").flatten().map(|()| ExitCode::SUCCESS),
        () = interrupted => Ok(ExitCode::from(INTERRUPTED)),
    };
    drop(stage);
    outcome
}

/// Resolves when the user, or the terminal's end, asks to stop.
fn interrupted() -> anyhow::Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).context("signals cannot be listened for");
    let (mut int, mut term, mut hup) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    Ok(async move {
        tokio::select! {
            _ = int.recv() => {}
            _ = term.recv() => {}
            _ = hup.recv() => {}
        }
    })
}
