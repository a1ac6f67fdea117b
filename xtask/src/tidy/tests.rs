//! Small trees through the one `check`: each rule has what it must catch and what it must let pass.

use super::arrows::Graph;
use super::tree::Tree;

/// A tree and a graph with nothing to say about.
fn tidy() -> (Tree, Graph) {
    let files = [
        ("ARCHITECTURE.md", "# Map\n\n**I1.** One. *(test: `a::one` in `crates/core/src/lib.rs`)*\n"),
        ("Cargo.toml", "[workspace]\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"),
        ("crates/core/Cargo.toml", "[package]\nname = \"counterfoil-core\"\n[lints]\nworkspace = true\n"),
        ("crates/core/src/lib.rs", "//! Core.\n#[test]\nfn one() {}\n"),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    (Tree(files.into()), Graph([("counterfoil-core".to_owned(), vec!["serde".to_owned()])].into()))
}

/// Replace or add one file of a tidy tree; the problems are exactly those that hold the expected words.
fn check(path: &str, text: &str, expected: &[&str]) {
    let (mut tree, graph) = tidy();
    tree.0.insert(path.into(), text.into());
    compare(&tree, &graph, expected);
}

/// Add one crate and what it ships with.
fn check_arrow(from: &str, to: &str, expected: &[&str]) {
    let (tree, mut graph) = tidy();
    graph.0.entry(to.into()).or_insert_with(Vec::new);
    graph.0.insert(from.into(), vec![to.into()]);
    // Only crates of the workspace are members of the graph.
    graph.0.retain(|name, _| name.starts_with("counterfoil") || name == "xtask" || name == from);
    compare(&tree, &graph, expected);
}

fn compare(tree: &Tree, graph: &Graph, expected: &[&str]) {
    let found = super::check(tree, graph).problems;
    let told: Vec<String> =
        found.iter().map(|problem| format!("{}: {}", problem.place, problem.what)).collect();
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, words) in told.iter().zip(expected) {
        assert!(told.contains(words), "{told} should hold {words}");
    }
    for problem in found {
        assert!(
            !problem.why.is_empty() && !problem.instead.is_empty(),
            "{problem:?} gives reason and replacement"
        );
    }
}

/// A source whose one function has this many lines.
fn function_of(lines: usize) -> String {
    format!("//! Long.\npub async fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
}

#[test]
fn a_tidy_tree_has_no_problem() {
    let (tree, graph) = tidy();
    compare(&tree, &graph, &[]);
}

#[test]
fn arrows() {
    check_arrow("counterfoil", "counterfoil-core", &[]);
    check_arrow("counterfoil-core", "counterfoil", &["counterfoil-core: depends on `counterfoil`"]);
    check_arrow("counterfoil-client", "counterfoil-server", &["depends on `counterfoil-server`"]);
    check_arrow("counterfoil-testkit", "counterfoil-server", &[]);
    check_arrow("counterfoil-cli", "counterfoil-testkit", &["depends on `counterfoil-testkit`"]);
    check_arrow("counterfoil-server", "rmcp", &[]);
    check_arrow("counterfoil-client", "rmcp", &["depends on `rmcp`"]);
    check_arrow("counterfoil-core", "tokio", &["depends on `tokio`"]);
    check_arrow("counterfoil", "tokio", &[]);
    check_arrow("xtask", "counterfoil", &["xtask: depends on"]);
    check_arrow("newcomer", "counterfoil-core", &["newcomer: this crate has no row"]);
}

#[test]
fn openings() {
    check("crates/core/src/id.rs", "//! Ids.\nstruct Id;\n", &[]);
    check(
        "crates/core/src/id.rs",
        "/// An id.\nstruct Id;\n",
        &["crates/core/src/id.rs:1: does not open with"],
    );
    check("crates/core/src/id.rs", "", &["does not open with"]);
    check("crates/core/src/id.rs", "//! Ids.\nstruct {\n", &["not a Rust file"]);
}

#[test]
fn lengths() {
    check("a.rs", &function_of(70), &[]);
    check("a.rs", &function_of(71), &["a.rs:2: function `long` is 71 lines long; 70 is the most"]);
    let inner = function_of(71).replace("//! Long.", "").replace("pub ", "");
    check("a.rs", &format!("//! A method.\nimpl A {{ {inner} }}\n"), &["function `long` is 71"]);
    check("a.rs", &format!("//! A default.\ntrait A {{ {inner} }}\n"), &["function `long` is 71"]);
    check("a.rs", &format!("//! In a macro.\nitems! {{ {inner} }}\n"), &["function `long` is 71"]);
    check("a.rs", &format!("//! In a module.\nmod a {{ {inner} }}\n"), &["function `long` is 71"]);
}

#[test]
fn the_sdk_behind_one_file() {
    check("crates/server/src/mcp.rs", "//! MCP.\nuse rmcp::model::Tool;\n", &[]);
    check("crates/server/src/run.rs", "//! Run.\n// rmcp is behind mcp.rs\nconst A: &str = \"rmcp\";\n", &[]);
    check("crates/server/src/run.rs", "//! Run.\n\nuse rmcp::model::Tool;\n", &["run.rs:3: mentions rmcp"]);
    check("crates/cli/src/a.rs", "//! A.\nfn a() { b!(rmcp::C) }\n", &["a.rs:2: mentions rmcp"]);
}

#[test]
fn unfinished_work() {
    check("a.rs", "//! A.\nfn a() { todo!() }\n", &["a.rs:2: calls `todo!`"]);
    check(
        "a.rs",
        "//! A.\nfn a() { b!(dbg!(1)); unimplemented!() }\n",
        &["calls `dbg!`", "calls `unimplemented!`"],
    );
    check("a.rs", "//! A.\n// todo!()\nfn a(todo: u8) -> bool { todo != 1 && \"dbg!\".is_empty() }\n", &[]);
}

#[test]
fn line_numbers_in_documents() {
    check("docs/a.md", "See `decide` in `decide.rs`, and automations.toml:14:3.\n", &[]);
    check("docs/a.md", "One.\nSee decide.rs:12.\n", &["docs/a.md:2: holds a line number"]);
    check("README.md", "[here](src/decide.rs#L12)\n", &["README.md:1: holds a line number"]);
}

#[test]
fn invariants_name_their_tests() {
    let map = "ARCHITECTURE.md";
    let held = "*(test: `one` in `crates/core/src/lib.rs`)*";
    let map_with = |text: &str| format!("# Map\n{text}\n## Next\nNot **I** nor **In.** nor a `b`.\n");
    check(map, &map_with(&format!("- **I1.** Two\n  lines.\n  {held}\n- **I2.** {held}")), &[]);
    check(map, &map_with("**I1.** A wish."), &["I1 names no test"]);
    check(map, &map_with(&format!("**I1.** {held}\n**I3.** {held}")), &["I3 stands where I2 should"]);
    check(
        map,
        &map_with("**I1.** *(test: `two` in `crates/core/src/lib.rs`)*"),
        &["I1 names the test `two`"],
    );
    check(map, &map_with("**I1.** *(test: `one` in `gone.rs`)*"), &["in `gone.rs`, which is not there"]);
    check(map, &map_with("**I1.** *(test: `one`)*"), &["I1 names the test `one` in ``"]);
    check(map, "# Map\n", &["has no numbered invariant"]);
}

#[test]
fn invariants_may_name_cases_and_several_tests() {
    let (mut tree, graph) = tidy();
    tree.0.insert("t.rs".into(), "//! T.\nconst CASES: &[&str] = &[\"a lost reply\"];\n".into());
    let tests = "`a lost reply` in `t.rs`; `a::one` in `crates/core/src/lib.rs`";
    tree.0.insert("ARCHITECTURE.md".into(), format!("**I1.** Both. *(test: {tests})*\n"));
    compare(&tree, &graph, &[]);
    tree.0.remove("ARCHITECTURE.md");
    compare(&tree, &graph, &["ARCHITECTURE.md: is missing"]);
}

#[test]
fn manifests() {
    check("crates/vfs/Cargo.toml", "[package]\nname = \"v\"\nlints.workspace = true\n", &["does not take"]);
    check("crates/vfs/Cargo.toml", "lints.workspace = true\n[package]\nname = \"v\"\n", &[]);
    check("crates/vfs/Cargo.toml", "[package]\nname = \"v\"\n", &["crates/vfs/Cargo.toml: does not take"]);
    check("crates/vfs/Cargo.toml", "[package\n", &["is not TOML"]);
    check("Cargo.toml", "[workspace]\n[workspace.lints.rust]\n", &["do not forbid unsafe code"]);
}

#[test]
fn the_median_is_told() {
    let (mut tree, graph) = tidy();
    tree.0.insert("a.rs".into(), function_of(9));
    tree.0.insert("b.rs".into(), function_of(5));
    let told = super::lengths(super::check(&tree, &graph).functions);
    assert_eq!(told, "3 functions: median 5 lines, longest 9 (`long` in a.rs)");
    assert_eq!(super::lengths(Vec::new()), "no functions");
}
