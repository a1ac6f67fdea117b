//! The primitives under the writer's queue, in one place so that a test can run the queue on a scheduler of its own.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
