//! T7: the examples of docs/hazards.md go wrong, or are prevented, as the page says; on the store that each names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use counterfoil_testkit::postgres::{Database, runtime};
use rusqlite::Connection;

const PAGE: &str = include_str!("../../../docs/hazards.md");

/// Store, what becomes of it, and the statements.
fn examples() -> Vec<(&'static str, &'static str, &'static str)> {
    let block = |text: &'static str| {
        let (words, rest) = text.split_once('\n')?;
        let (store, fate) = words.split_once(' ')?;
        Some((store, fate, rest.split("```").next()?))
    };
    PAGE.split("```sql ").skip(1).filter_map(block).collect()
}

/// The last line, and what its comment says.
fn last(sql: &str) -> (&str, &str, &str) {
    let (before, last) = sql.trim_end().rsplit_once('\n').unwrap();
    let (statement, told) = last.split_once(" -- ").unwrap();
    (before, statement, told)
}

fn check(fate: &str, told: &str, outcome: Result<i64, String>) {
    match outcome {
        Ok(number) => {
            assert_ne!(fate, "refused", "{told}");
            assert!(told.starts_with(&number.to_string()), "{number} is not {told}");
        }
        Err(error) => {
            let wanted = told.strip_prefix("refused: ").unwrap_or_else(|| panic!("{error}"));
            assert!(fate == "refused" && error.contains(wanted), "{error}");
        }
    }
}

fn on_sqlite(before: &str, statement: &str) -> Result<i64, String> {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(before).unwrap();
    let ran = if statement.starts_with("SELECT") {
        connection.query_row(statement, [], |row| row.get(0))
    } else {
        connection.execute(statement, []).map(|_| 0)
    };
    ran.map_err(|error| error.to_string())
}

fn on_postgresql(before: &str, statement: &str) -> Result<i64, String> {
    let database = Database::fresh();
    database.execute(before);
    runtime().block_on(async {
        let client = database.connect().await;
        let rows = client.query(statement, &[]).await;
        let told =
            |error: counterfoil::tokio_postgres::Error| error.as_db_error().unwrap().message().to_owned();
        Ok(rows.map_err(told)?.first().map_or(0, |row| row.get(0)))
    })
}

#[test]
fn t7_every_example_goes_as_the_page_says() {
    let examples = examples();
    assert_eq!(examples.len(), 7);
    for (store, fate, sql) in examples {
        let (before, statement, told) = last(sql);
        match store {
            "sqlite" => check(fate, told, on_sqlite(before, statement)),
            "postgresql" => check(fate, told, on_postgresql(before, statement)),
            other => panic!("no store {other}"),
        }
    }
}
