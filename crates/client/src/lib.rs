//! The client half: an operation is on disk before it is sent, is sent again with the same id and the same bytes,
//! and ends in one of three answers: done, not done, unknown.
//!
//! Read it in this order: [`operation`] (what is intended), [`state`] (what is known of it, purely), [`journal`] (on
//! disk first).

pub mod journal;
pub mod limits;
pub mod operation;
pub mod state;
pub mod words;
