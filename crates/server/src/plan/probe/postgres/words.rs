//! What the words of a statement tell before the database is asked, and where its plan is silent.

use std::collections::BTreeSet;

use super::super::Unfit;
use crate::plan::sql::Scanned;

/// Functions whose answer belongs to a session and not to a call, or that change it.
const OF_A_SESSION: [&str; 8] = [
    "lastval",
    "currval",
    "set_config",
    "setseed",
    "pg_backend_pid",
    "pg_my_temp_schema",
    "pg_export_snapshot",
    "txid_current",
];
/// Beginnings of functions that reach out of the database, into the server, or into other sessions.
const OUTSIDE: [&str; 20] = [
    "dblink",
    "lo_",
    "pg_advisory_",
    "pg_try_advisory_",
    "pg_read_",
    "pg_ls_",
    "pg_stat_file",
    "pg_file_",
    "pg_terminate_",
    "pg_cancel_",
    "pg_reload_",
    "pg_rotate_",
    "pg_promote",
    "pg_switch_",
    "pg_logical_",
    "pg_replication_",
    "pg_create_",
    "pg_drop_",
    "query_to_xml",
    "cursor_to_xml",
];

/// Refuses what the read-only transaction of a check would let pass.
pub(super) fn fit(scanned: &Scanned) -> Result<(), Unfit> {
    let words: Vec<&str> = scanned.tokens().collect();
    for (at, word) in words.iter().enumerate() {
        let unfit = |message: String, help: &str| {
            Err(Unfit {
                message,
                at: Some(scanned.place(at).start),
                help: Some(help.into()),
                ..Unfit::default()
            })
        };
        let before = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
        if word.eq_ignore_ascii_case("INTO") && !before.eq_ignore_ascii_case("INSERT") {
            return unfit("SELECT INTO makes a table".into(), "a statement only reads and changes tables");
        }
        if word.eq_ignore_ascii_case("U") && escaped(scanned, at, &words) {
            return unfit("a name in escapes hides what it says".into(), "write it in plain characters");
        }
        let name = word.trim_matches('"').to_ascii_lowercase();
        if name.starts_with("counterfoil_") {
            return unfit(
                format!("`{name}` is the ledger's own: no tool may touch it"),
                "name the application's tables otherwise",
            );
        }
        if words.get(at + 1) != Some(&"(") {
            continue;
        }
        if OUTSIDE.iter().any(|outside| name.starts_with(outside)) {
            return unfit(format!("`{name}()` reaches out of the database"), "no tool may call it");
        }
        if OF_A_SESSION.contains(&name.as_str()) {
            let help = "use RETURNING; a later statement of a list binds `:NAME.column` of an earlier one";
            return unfit(format!("`{name}()` tells of a session and not of a call"), help);
        }
    }
    Ok(())
}

/// Is this the beginning of `U&"…"`?
fn escaped(scanned: &Scanned, at: usize, words: &[&str]) -> bool {
    let next = |by: usize| words.get(at + by).copied().unwrap_or_default();
    let joined = scanned.place(at).end == scanned.place(at + 1).start;
    joined && next(1) == "&" && next(2).starts_with('"')
}

/// Every word that may name a column.
pub(super) fn names(scanned: &Scanned) -> BTreeSet<String> {
    let plain = |word: &str| word.starts_with(|first: char| first == '_' || first.is_alphabetic());
    let words = scanned.tokens().filter_map(|word| match word.strip_prefix('"') {
        Some(quoted) => Some(quoted.trim_end_matches('"').to_owned()),
        None => plain(word).then(|| word.to_lowercase()),
    });
    words.collect()
}

/// The columns that UPDATE sets.
pub(super) fn sets(scanned: &Scanned) -> BTreeSet<String> {
    let words: Vec<String> = scanned.tokens().map(|word| word.trim_matches('"').to_lowercase()).collect();
    let mut found = BTreeSet::new();
    let (mut depth, mut set) = (0_i32, None);
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "set" => set = Some(depth),
            "from" | "where" | "returning" => set = None,
            _ => {}
        }
        let begins = set == Some(depth) && matches!(word.as_str(), "set" | ",");
        if let (true, Some(column), Some("=")) =
            (begins, words.get(at + 1), words.get(at + 2).map(String::as_str))
        {
            found.insert(column.clone());
        }
    }
    found
}

/// The row locks at the end of a statement, as `FOR SHARE OF members`.
pub(in crate::plan) fn locks(scanned: &Scanned) -> Option<&str> {
    const OF_LOCKS: [&str; 10] =
        ["FOR", "NO", "KEY", "UPDATE", "SHARE", "OF", "NOWAIT", "SKIP", "LOCKED", ","];
    let words: Vec<String> = scanned.tokens().map(str::to_ascii_uppercase).collect();
    let mut depth = 0_i32;
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            "FOR" if depth == 0 => {
                let locks = words.get(at + 1).is_some_and(|next| OF_LOCKS[1..5].contains(&next.as_str()));
                let rest = &words[at..];
                let plain = |word: &String| !matches!(word.as_str(), "(" | ")" | "=" | ":");
                if locks && rest.iter().all(plain) {
                    let end = scanned.whole().end;
                    return Some(
                        scanned.sql[scanned.place(at).start..end].trim_end_matches([';', ' ', '\n']),
                    );
                }
            }
            _ => {}
        }
    }
    None
}

/// `numbered` without the row locks at its end, which a transaction that only reads cannot take.
pub(super) fn unlocked(scanned: &Scanned, numbered: &str) -> Option<String> {
    let rest = numbered.trim_end().strip_suffix(locks(scanned)?)?;
    Some(rest.trim_end().to_owned())
}
