//! Statements that mean one thing to whoever reads them and another to SQLite: what is bound is what SQLite binds, or
//! the config is refused.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a failed step is a failed test")]

use counterfoil::rusqlite::Connection;
use counterfoil_server::diagnostics::Report;
use counterfoil_server::plan::{self, Plan};

/// Texts that hide a parameter, or look as if they held one. Each binds `:a` and then `:b`.
const ACCEPTED: &[&str] = &[
    "SELECT :a, :b",
    "SELECT ':x' || :a || \":b\" FROM (SELECT :b AS \":b\")",
    "SELECT [x:a] AS c, `x:a` AS d, \"x:a\", :a, :b FROM t",
    "SELECT :a /* :x /* :y */, :b",
    "SELECT :a -- :x\n, :b",
    "SELECT :a --\r:x\n, :b",
    "SELECT 'it''s :x', :a, \":\"\":\", :b FROM (SELECT 1 AS \":\"\":\")",
    "SELECT 'back\\', :a, ' slash\\', :b",
    "SELECT X'3a61', x'', :a, :b",
    "SELECT 1e5, 1.e5, .5, 0x1F, 1_000, :a, :b",
    "SELECT -:a, +:b",
    "SELECT:a,:b",
    "SELECT(:a)IS(:b)",
    "SELECT :a||:b",
    "SELECT :a->:b",
    "SELECT :a->>:b",
    "SELECT :a<>:b",
    "SELECT :a<<:b",
    "SELECT :a==:b",
    "SELECT :a!=:b",
    "SELECT :a&:b",
    "SELECT :a|:b",
    "SELECT ~:a, :b",
    "SELECT :a%:b",
    "SELECT :a*:b",
    "SELECT :a/:b",
    "SELECT CASE :a WHEN :b THEN 1 END",
    "SELECT [select], :a FROM t WHERE w = :b",
    "SELECT :a AS \u{e4}\u{1f600}, :b",
    "SELECT N':x', :a, :b FROM (SELECT 1 AS n)",
    "SELECT e':x', :a, :b FROM (SELECT 1 AS e)",
    "\u{feff}SELECT :a, :b",
    "SELECT :a\u{c}, :b",
    "SELECT :a, :b;",
    "SELECT :a, :b;;; -- end",
    "SELECT :a, :b, 'NUL'",
    "SELECT a, b FROM (SELECT :a AS a, :b AS b)",
];

/// Texts in which something that looks like a parameter is none, or the other way round; and what no tool may reach.
const REFUSED: &[&str] = &[
    "SELECT :a, :b, ?",
    "SELECT :a, :b, ?1",
    "SELECT :a, :b, :1",
    "SELECT :a, :b, :a:b",
    "SELECT :a, :b, :a::b",
    "SELECT :a, :b, ::a",
    "SELECT :a, :b, :a(b)",
    "SELECT :a, :b, :a::b(c)",
    "SELECT :a, :b, $a",
    "SELECT :a, :b, $a::b(c)",
    "SELECT :a, :b, @a",
    "SELECT :a, :b, #a",
    "SELECT :a, :b, #1",
    "SELECT :a, :b, : a",
    "SELECT :a, :b, :\"a\"",
    "SELECT :a, :b, :[a]",
    "SELECT :a, :b, :a\u{e4}",
    "SELECT :a, :b, :a\u{1f600}",
    "SELECT :a, :b, :a\u{a0}",
    "SELECT :a, :b, :a\u{200b}",
    "SELECT :a, :b, :a$b",
    "SELECT :a, :b, :A",
    "SELECT :a, :b, :a.b",
    "SELECT :a, 1:b",
    "SELECT :a, 1e5:b",
    "SELECT :a, x':b'",
    "SELECT :a, x'0':b",
    "SELECT :a, /* :b",
    "SELECT :a, /* /* */ :b */",
    "SELECT :a -- :b",
    "SELECT :a, ':b",
    "SELECT :a, \":b",
    "SELECT :a, `:b",
    "SELECT :a, [:b",
    "SELECT :a, ':b'",
    "SELECT :a, '\\':b'",
    "SELECT :a, \":b\"",
    "SELECT :a\0, :b",
    "SELECT :a, $tag$ :b $tag$",
    "SELECT :a, :b; SELECT 1",
    "SELECT :a, :b; -- \n SELECT 1",
    "SELECT :a, :b # comment",
    "SELECT :a, :b // comment",
    "SELECT :a, \u{2018}:b\u{2019}",
    "/* SELECT */ PRAGMA user_version",
    "WITH x AS (SELECT :a, :b) DROP TABLE t",
    "SELECT :a, :b FROM sqlite_schema",
    "SELECT :a, :b FROM main.sqlite_master",
    "SELECT :a, :b FROM \"SQLITE_SCHEMA\"",
    "SELECT :a, :b FROM sqlite_temp_schema",
    "SELECT :a, :b FROM sqlite_temp_master",
    "SELECT :a, :b FROM pragma_table_info('t')",
    "SELECT :a, :b FROM pragma_database_list()",
    "SELECT :a, :b FROM pragma_user_version",
    "SELECT :a, :b FROM dbstat",
    "SELECT :a, :b FROM sqlite_dbpage",
    "SELECT :a, :b FROM sqlite_stmt",
    "SELECT :a, (SELECT count(*) FROM sqlite_schema), :b",
    "SELECT :a, EXISTS (SELECT 1 FROM \"counterfoil_meta\"), :b",
    "SELECT :a, load_extension('x'), :b",
    "SELECT :a, \"load_extension\"(:b)",
    "SELECT :a, [load_extension](:b)",
    "SELECT :a, fts3_tokenizer(:b)",
    "SELECT :a, fts3_tokenizer('x', :b)",
    "SELECT :a, readfile(:b)",
    "SELECT :a, writefile('x', :b)",
    "SELECT :a, edit(:b)",
    "SELECT :a, Changes(), :b",
    "SELECT :a, total_changes(), :b",
    "SELECT :a, last_insert_rowid(), :b",
];

/// A statement of a tool with the inputs `a` and `b`, in a database with a table `t`.
fn plan_of(sql: &str) -> (Option<Plan>, Report) {
    let schema = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&schema, "CREATE TABLE t (id INTEGER PRIMARY KEY, w TEXT, \"x:a\" TEXT, [select] TEXT);")
        .unwrap();
    let quoted = |text: &str| serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    let text = format!(
        "[database]\nurl = 'sqlite:none.db'\nschema = {}\n[auth.stdio]\nsubject = 's'\nworkspace = 'w'\nscopes = ['s']\n\
         [tools.t]\nscope = 's'\nshared = true\nread = {}\ninput.a = {{ type = 'string' }}\ninput.b = {{ type = 'string' }}\n",
        quoted(schema.path().to_str().unwrap()),
        quoted(sql),
    );
    plan::check("c.toml", &text)
}

/// What SQLite itself takes for the parameters of `sql`.
fn parameters(sql: &str) -> Option<Vec<String>> {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, w TEXT, \"x:a\" TEXT, [select] TEXT);")
        .unwrap();
    let statement = connection.prepare(sql).ok()?;
    let name = |at| statement.parameter_name(at).unwrap_or("?").to_owned();
    Some((1..=statement.parameter_count()).map(name).collect())
}

/// Texts that hide a parameter, or look as if they held one: what is bound is what SQLite binds, or the config is
/// refused. Each binds `:a` and then `:b` if it is accepted.
#[test]
fn what_is_bound_is_what_sqlite_binds() {
    for sql in ACCEPTED {
        let (plan, report) = plan_of(sql);
        let Some(plan) = plan else {
            assert!(MAY_BE_REFUSED.contains(sql), "{sql}\n{report}");
            continue;
        };
        let plan::Kind::Read(read) = &plan.tools[0].kind else { panic!("not a read") };
        let bound: Vec<String> = read
            .query
            .binds
            .iter()
            .map(|bind| match bind {
                plan::Bind::Argument(name) => format!(":{name}"),
                other => panic!("{sql} binds {other:?}"),
            })
            .collect();
        assert_eq!(Some(&bound), parameters(&read.query.sql).as_ref(), "{sql}");
        assert_eq!(bound, [":a", ":b"], "{sql}");
    }
}

/// Right, and refused all the same: each can be written in another way.
const MAY_BE_REFUSED: [&str; 2] = ["\u{feff}SELECT :a, :b", "SELECT :a, :b;;; -- end"];

#[test]
fn what_sqlite_reads_otherwise_is_refused() {
    for sql in REFUSED {
        let (plan, report) = plan_of(sql);
        assert!(plan.is_none(), "{sql} was accepted");
        // The picture of the most twisted text can be drawn.
        assert!(report.coloured().contains("c.toml"), "{sql}");
    }
}
