//! `tidy`: the house rules that no compiler knows. Every problem is told at once, each with its reason and its
//! replacement.
//!
//! Each rule is a pure function from a [`Tree`] (the files as text) or a [`Graph`] (who depends on whom) to
//! problems, so that all of them are tested by one table through [`check`].

mod arrows;
mod docs;
mod invariants;
mod manifests;
mod sources;
mod tree;

#[cfg(test)]
mod tests;

use anyhow::{Result, bail};

use arrows::Graph;
use sources::Function;
use tree::Tree;

/// One thing that is not tidy: where, what, why it matters, and what to do instead.
#[derive(Debug)]
struct Problem {
    place: String,
    what: String,
    why: &'static str,
    instead: String,
}

/// Everything tidy has to say about one tree.
struct Report {
    problems: Vec<Problem>,
    functions: Vec<Function>,
}

pub(crate) fn run() -> Result<()> {
    let report = check(&Tree::tracked()?, &Graph::of_workspace()?);
    for problem in &report.problems {
        println!("{}: {}", problem.place, problem.what);
        println!("  why:     {}", problem.why);
        println!("  instead: {}", problem.instead);
    }
    println!("{}", lengths(report.functions));
    match report.problems.len() {
        0 => Ok(()),
        1 => bail!("tidy found 1 problem"),
        many => bail!("tidy found {many} problems"),
    }
}

fn check(tree: &Tree, graph: &Graph) -> Report {
    let (mut problems, functions) = sources::check(tree);
    problems.extend(arrows::check(graph));
    problems.extend(manifests::check(tree));
    problems.extend(docs::check(tree));
    problems.extend(invariants::check(tree));
    problems.sort_by(|one, other| one.place.cmp(&other.place));
    Report { problems, functions }
}

/// The median is the house's aim (a handful of lines), the longest is the next to split.
fn lengths(mut functions: Vec<Function>) -> String {
    functions.sort_by_key(|function| function.lines);
    let (Some(median), Some(longest)) = (functions.get(functions.len() / 2), functions.last()) else {
        return "no functions".into();
    };
    format!(
        "{} functions: median {} lines, longest {} (`{}` in {})",
        functions.len(),
        median.lines,
        longest.lines,
        longest.name,
        longest.file
    )
}
