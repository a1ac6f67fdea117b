//! The cases of the wire: a real server process, calls over real connections, every answer judged by one function.
//! Each table is a file in `wire/`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod wire;

use std::collections::BTreeSet;

use counterfoil_core::Code;
use wire::{Case, change, check_all, check_on_postgres, crash, postgres, same, sql, who};

#[test]
fn what_counts_as_the_same_call() {
    check_all(same::CASES);
}

#[test]
fn crashes_and_unknown_outcomes() {
    check_all(crash::CASES);
}

#[test]
fn who_may_see_what() {
    check_all(who::CASES);
}

#[test]
fn time_windows_and_change() {
    check_all(change::CASES);
}

#[test]
fn declared_sql_and_results() {
    check_all(sql::CASES);
}

#[test]
fn the_same_on_postgresql() {
    check_on_postgres(same::CASES);
    check_on_postgres(who::CASES);
}

#[test]
fn crashes_and_unknown_outcomes_on_postgresql() {
    check_on_postgres(crash::CASES);
}

#[test]
fn time_windows_and_change_on_postgresql() {
    check_on_postgres(change::CASES);
}

#[test]
fn declared_sql_and_results_on_postgresql() {
    check_on_postgres(sql::CASES);
    check_on_postgres(postgres::CASES);
}

/// Each case meets exactly the codes it names, so the tables together show which codes are met over the wire.
#[test]
fn every_code_is_met() {
    let tables: [&[Case]; 5] = [same::CASES, crash::CASES, who::CASES, change::CASES, sql::CASES];
    let met: BTreeSet<&str> = tables
        .iter()
        .flat_map(|table| table.iter())
        .flat_map(|case| case.codes)
        .map(|code| code.as_str())
        .collect();
    // Limits on a caller's rate are still to come.
    let all = Code::ALL.iter().filter(|code| **code != Code::RateLimited).map(|code| code.as_str());
    assert_eq!(met, all.collect());
}
