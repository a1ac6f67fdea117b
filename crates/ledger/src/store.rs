//! One room a database. What they share is the contract, and the suite that holds every one of them to it.

pub mod postgres;
pub mod sqlite;
