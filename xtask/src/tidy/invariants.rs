//! Every numbered invariant of ARCHITECTURE.md names the tests that hold it, and those tests exist.
//!
//! The format is one paragraph or list item an invariant, numbered from 1 without gaps:
//!
//! ```text
//! **I7.** A refusal leaves no receipt. *(test: `refusals::leave_nothing` in `crates/ledger/tests/suite.rs`)*
//! ```
//!
//! Several tests stand in one pair of parentheses: `` *(test: `a` in `x.rs`; `b` in `y.rs`)* ``. The last part of a
//! name is a function of that file (`fn leave_nothing`, in Python `def leave_nothing`) or the name of a case of a
//! table, which stands there in double quotes.

use super::{Problem, tree::Tree};

const MAP: &str = "ARCHITECTURE.md";
const WHY: &str = "an invariant without a test is a wish";
const FORMAT: &str = "**I7.** text *(test: `name` in `path/to/file.rs`)*";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(text) = tree.get(MAP) else {
        return vec![problem(
            "is missing".into(),
            "draw the map: code map, numbered invariants, what is absent",
        )];
    };
    let found = invariants(text);
    if found.is_empty() {
        return vec![problem("has no numbered invariant".into(), FORMAT)];
    }
    let numbered = (1..).zip(&found);
    numbered.flat_map(|(number, (written, text))| one(tree, number, written, text)).collect()
}

/// The number as written and the text of each invariant, which ends where the next, or a heading, begins.
fn invariants(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("**I").skip(1);
    let numbered = parts.filter_map(|part| part.split_once(".**"));
    let real =
        numbered.filter(|(number, _)| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()));
    real.map(|(number, text)| (number, text.split("\n#").next().unwrap_or(text))).collect()
}

fn one(tree: &Tree, number: usize, written: &str, text: &str) -> Vec<Problem> {
    if written != number.to_string() {
        return vec![problem(
            format!("I{written} stands where I{number} should"),
            "number from 1, without gaps",
        )];
    }
    let tests = tests(text);
    if tests.is_empty() {
        return vec![problem(format!("I{number} names no test"), FORMAT)];
    }
    let missing = tests.into_iter().filter(|(name, file)| !exists(tree, name, file));
    missing.map(|(name, file)| absent(number, name, file)).collect()
}

/// The pairs of name and file in `(test: …)`. An odd one out makes a pair with no file, which does not exist.
fn tests(text: &str) -> Vec<(&str, &str)> {
    let named = text.split("*(test:").skip(1).filter_map(|part| part.split(")*").next());
    named.flat_map(pairs).collect()
}

fn pairs(part: &str) -> Vec<(&str, &str)> {
    let mut quoted = part.split('`').skip(1).step_by(2);
    let next = || quoted.next().map(|name| (name, quoted.next().unwrap_or_default()));
    std::iter::from_fn(next).collect()
}

fn exists(tree: &Tree, name: &str, file: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    let forms = [format!("fn {last}("), format!("def {last}("), format!("\"{last}\"")];
    tree.get(file).is_some_and(|text| forms.iter().any(|form| text.contains(form)))
}

fn absent(number: usize, name: &str, file: &str) -> Problem {
    let what = format!("I{number} names the test `{name}` in `{file}`, which is not there");
    problem(what, "name a function of that file, or a case of its table in double quotes")
}

fn problem(what: String, instead: &str) -> Problem {
    Problem { place: MAP.into(), what, why: WHY, instead: instead.into() }
}
