//! Thousands of lives of the client library before the real engine, over a network that delays, cuts, repeats and
//! reorders, with crashes between any two events of the journal. However it goes, every operation has committed once,
//! or was refused, or is unknown with its id; and what anybody was told is so.
//!
//! It prints its seed; `COUNTERFOIL_SEED=<seed>` lives the life of that seed again, alone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod simulated;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use simulated::life::{Life, word};
use simulated::truth::Truth;
use simulated::{FIRST_ROW, Server};
use tempfile::TempDir;
use tokio::task::JoinSet;

const LIVES: u64 = 2_500;
/// Lives that are lived at once.
const AT_ONCE: u64 = 4;

/// A folder in memory where there is one: what a loss of power does is not asked here.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

async fn live(server: &Arc<Server>, seeds: &[u64]) -> Vec<Life> {
    let (mut lives, mut living) = (Vec::new(), JoinSet::new());
    for (seed, row) in seeds.iter().zip(FIRST_ROW..) {
        if living.len() as u64 == AT_ONCE {
            lives.push(living.join_next().await.unwrap().unwrap());
        }
        living.spawn(Life::live(Arc::clone(server), *seed, row));
    }
    lives.extend(living.join_all().await);
    lives
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_ends_and_is_done_once() {
    let again = std::env::var("COUNTERFOIL_SEED").ok().map(|seed| seed.parse().unwrap());
    let first: u64 = again.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("COUNTERFOIL_SEED={first}");
    let seeds: Vec<u64> = (first..).take(if again.is_some() { 1 } else { LIVES as usize }).collect();
    let folder = folder();
    let server = Arc::new(Server::start(folder.path(), seeds.len() as u64).await);
    let lives = live(&server, &seeds).await;
    server.stop().await;
    let truth = Truth::read(&server.database);
    lives.iter().for_each(|life| truth.check(life));
    if again.is_none() {
        everything_happened(&lives);
    }
}

/// A simulation in which nothing goes wrong shows nothing.
fn everything_happened(lives: &[Life]) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for life in lives {
        *seen.entry("crash").or_default() += life.crashes;
        *seen.entry("late").or_default() += life.network.world().late as usize;
        life.told.iter().for_each(|report| *seen.entry(word(&report.outcome)).or_default() += 1);
    }
    println!("{seen:?}");
    for kind in ["crash", "late", "fresh", "replayed", "refused", "voided", "unknown"] {
        assert!(seen.get(kind).is_some_and(|count| *count > 20), "{kind}: {seen:?}");
    }
}
