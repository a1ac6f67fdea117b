//! Documents name files and functions, never lines: line numbers rot with the next edit.

use super::{Problem, tree::Tree};

/// How a path of source ends. A config is not among them: an error that shows the user's own file has a line.
const SOURCES: &[&str] = &[".rs:", ".sql:", ".py:", ".ts:", ".mjs:", ".sh:"];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    tree.ending(".md").flat_map(|(path, text)| one(path, text)).collect()
}

fn one<'tree>(path: &'tree str, text: &'tree str) -> impl Iterator<Item = Problem> + 'tree {
    let lines = (1..).zip(text.lines());
    lines.filter(|(_, line)| holds_line_number(line)).map(move |(number, _)| Problem {
        place: format!("{path}:{number}"),
        what: "holds a line number of source".into(),
        why: "the next edit makes it wrong, and nothing notices",
        instead: "name the file and the function, test or constant".into(),
    })
}

/// `store.rs:12` or a link that ends in `#L12`.
fn holds_line_number(line: &str) -> bool {
    SOURCES.iter().chain(&["#L"]).any(|mark| {
        line.match_indices(mark)
            .any(|(at, _)| line[at + mark.len()..].starts_with(|c: char| c.is_ascii_digit()))
    })
}
