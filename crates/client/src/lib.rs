//! The client half: an operation is on disk before it is sent, is sent again with the same id and the same bytes,
//! and ends in one of three answers: done, not done, unknown.
//!
//! Read it in this order: [`operation`] (what is intended), [`state`] (what is known of it, purely), [`journal`] (on
//! disk first), [`answer`] (what a server said, purely), [`client`] (the order of a call), [`session`] and
//! [`transport`] (the way to a server), [`proxy`] (all of it for callers that know nothing of it).

pub mod answer;
pub mod arguments;
pub mod client;
pub mod history;
pub mod http;
pub mod journal;
pub mod limits;
pub mod operation;
pub mod proxy;
pub mod retry;
pub mod session;
mod sse;
pub mod state;
pub mod time;
pub mod token;
pub mod transport;
pub mod words;

pub use client::{Client, Outcome, Report};
pub use journal::Journal;
pub use operation::Operation;
