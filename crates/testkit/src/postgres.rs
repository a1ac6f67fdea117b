//! PostgreSQL for tests: a cluster of our own, a fresh database for each test, the library's subject, and a wire that
//! can be cut.

mod bouncer;
mod cluster;
mod database;
mod encrypted;
pub mod library;
mod proxy;
mod trace;
mod world;

pub use bouncer::Bouncer;
pub use cluster::{Cluster, server_programs};
pub use database::{AUTOMATIONS, Database};
pub use encrypted::{Authority, encrypted, guarded};
pub use proxy::{Cut, Proxy};
pub use trace::traced;
pub use world::{Once, Scripted, World};

use std::future::Future;

/// A runtime with a few threads, on which a ledger's connections live.
#[must_use]
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// Waits for `future` on this thread, with what sockets need.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
