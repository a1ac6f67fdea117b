//! `[tools.NAME]`: what a tool takes, may touch and does, as written.

use counterfoil_core::words::InvalidWord;
use counterfoil_core::{Revision, Scope, ToolName};

use super::fragment::{self, Input};
use super::names::{Names, TOOL_KEYS, parameter_name};
use super::reader::{Node, Table, boolean, choice, count, every, list, nearest, parsed, text};
use super::{Receipts, Spanned, WrittenWindows, auth, bounds, maybe};
use crate::diagnostics::{Diagnostic, Report, Span};

/// A statement as written; parameters are bound, never spliced.
pub type Sql = Spanned<String>;

/// `[tools.NAME]`
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name it is listed under.
    pub name: Spanned<ToolName>,
    /// Where the tool's table stands.
    pub span: Span,
    /// Names it had before, the oldest first.
    pub was: Vec<Spanned<ToolName>>,
    /// A title for people.
    pub title: Option<Spanned<String>>,
    /// What the model is told.
    pub description: Option<Spanned<String>>,
    /// What the principal must hold.
    pub scope: Spanned<Scope>,
    /// SQL that must find a row for the principal to touch the resource now.
    pub access: Option<Sql>,
    /// `shared = true`: a read or an INSERT need not bind `:workspace`.
    pub shared: Option<Spanned<bool>>,
    /// What it takes.
    pub input: Input,
    /// Types of result columns that the database cannot tell.
    pub output: Vec<(Spanned<String>, Spanned<OutputType>)>,
    /// What it does.
    pub kind: Kind,
}

impl Tool {
    /// The name that stands in receipts and never changes: the oldest the tool has had.
    pub fn ledger_name(&self) -> &ToolName {
        self.was.first().map_or(&self.name.value, |oldest| &oldest.value)
    }
}

/// What a tool does.
#[derive(Clone, Debug)]
pub enum Kind {
    /// It looks.
    Read(Box<Read>),
    /// It changes something, and leaves a receipt.
    Write(Box<Write>),
}

/// A tool that looks.
#[derive(Clone, Debug)]
pub struct Read {
    /// The query.
    pub sql: Sql,
    /// What it answers with.
    pub returns: ReadReturns,
    /// The revision, if it has one.
    pub revision: Option<Spanned<Revision>>,
}

/// What a read answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReturns {
    /// One row; none is a refusal.
    Row,
    /// At most so many rows.
    Rows(u32),
}

/// A tool that changes something.
#[derive(Clone, Debug)]
pub struct Write {
    /// The live revision.
    pub revision: Spanned<Revision>,
    /// The statements, in the order they run. Never empty.
    pub statements: Vec<Statement>,
    /// Where `write` stands.
    pub span: Span,
    /// What it answers with.
    pub returns: WriteReturns,
    /// The version condition.
    pub version: Version,
    /// A query that reads the row as it is now.
    pub current: Option<Sql>,
    /// Asked instead of `access` when a receipt with the same fingerprint exists.
    pub replay_access: Option<Sql>,
    /// Earlier revisions, which serve replays only.
    pub retired: Vec<Retired>,
    /// How long this tool's receipts last, if it says so itself.
    pub windows: WrittenWindows,
    /// Whether this tool's receipts keep the arguments, if it says so itself.
    pub store_intent: Option<Spanned<bool>>,
}

/// One statement of a write.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The statement.
    pub sql: Sql,
    /// What later statements call its row: `:NAME.column`.
    pub name: Option<Spanned<String>>,
    /// Whether it may change nothing without undoing the call.
    pub may_change_nothing: Option<Spanned<bool>>,
}

/// What a write answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteReturns {
    /// One row; a second one undoes the call.
    Row,
    /// All rows.
    Rows,
    /// No row.
    Nothing,
}

/// `version = { argument, column }`, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The argument that says which version the caller saw.
    pub argument: String,
    /// The column it is compared with.
    pub column: String,
    /// Where it was written, if it was.
    pub span: Option<Span>,
}

impl Default for Version {
    fn default() -> Self {
        Version { argument: "expected_version".to_owned(), column: "version".to_owned(), span: None }
    }
}

/// `[[tools.NAME.retired]]`
#[derive(Clone, Debug)]
pub struct Retired {
    /// Which revision it was.
    pub revision: Spanned<Revision>,
    /// What it took.
    pub input: Input,
    /// Asked instead of the tool's access rules when a receipt of this revision is replayed.
    pub replay_access: Option<Sql>,
}

/// The type of a result column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputType {
    /// `true` or `false`, from 1 or 0.
    Boolean,
    /// A 64-bit integer.
    Integer,
    /// A double.
    Number,
    /// Text.
    String,
    /// Any JSON value, from JSON text.
    Json,
    /// Bytes, as base64 text.
    Bytes,
}

const OUTPUT_TYPES: [(&str, OutputType); 6] = [
    ("boolean", OutputType::Boolean),
    ("integer", OutputType::Integer),
    ("number", OutputType::Number),
    ("string", OutputType::String),
    ("json", OutputType::Json),
    ("bytes", OutputType::Bytes),
];

/// Reads `[tools]`, those that can be understood; `receipts` are the windows that tools share, if they could be read.
pub(super) fn tools(report: &mut Report, node: &Node<'_>, receipts: Option<&Receipts>) -> Option<Vec<Tool>> {
    let table = Table::open(report, node, "`[tools]`")?;
    let nodes = table.into_entries();
    if nodes.is_empty() {
        report.push(
            Diagnostic::error("there is no tool").at(node.key.clone(), "").help("add a table `[tools.NAME]`"),
        );
        return None;
    }
    let mut names = Names::default();
    // Live names first: between a tool and a former name of another, the former name is the mistake.
    for node in &nodes {
        add_name(report, &mut names, &node.name, &node.key);
    }
    let mut read = |node| tool(report, node, &mut names, receipts);
    let tools: Vec<Option<Tool>> = nodes.iter().map(&mut read).collect();
    Some(tools.into_iter().flatten().collect())
}

fn add_name(report: &mut Report, names: &mut Names, name: &str, span: &Span) {
    names.add(report, name, span, || format!("the tool name `{name}` is taken twice"));
}

fn tool(
    report: &mut Report,
    node: &Node<'_>,
    names: &mut Names,
    receipts: Option<&Receipts>,
) -> Option<Tool> {
    let name = tool_name(report, &node.name, &node.key);
    let mut table = Table::open(report, node, format!("`[tools.{}]`", node.name))?;
    let was = table.optional("was");
    let was = maybe(report, was, |report, node| {
        every(report, node, |report, node| former_name(report, node, names))
    });
    let title = table.optional("title");
    let title = maybe(report, title, text);
    let description = table.optional("description");
    let description = maybe(report, description, text);
    let scope = table.required("scope", "say what a caller must hold: `scope = \"automation:write\"`");
    let scope = scope.and_then(|node| parsed(report, &node, auth::scope));
    let access = table.optional("access");
    let access = maybe(report, access, text);
    let shared = table.optional("shared");
    let shared = maybe(report, shared, boolean);
    let input = table.optional("input");
    let input = maybe(report, input, fragment::input).map(Option::unwrap_or_default);
    let output = table.optional("output");
    let output = maybe(report, output, self::output);
    let kind = kind(report, &mut table, input.as_ref(), receipts);
    misplaced_inputs(report, &mut table);
    table.finish(report);
    Some(Tool {
        name: Spanned::new(name?, node.key.clone()),
        span: node.span(),
        was: was?.unwrap_or_default(),
        title: title?,
        description: description?,
        scope: scope?,
        access: access?,
        shared: shared?,
        input: input?,
        output: output?.unwrap_or_default(),
        kind: kind?,
    })
}

fn former_name(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Spanned<ToolName>> {
    let text = text(report, node)?;
    add_name(report, names, &text, &text.span);
    tool_name(report, &text, &text.span).map(|name| Spanned::new(name, text.span))
}

fn tool_name(report: &mut Report, name: &str, span: &Span) -> Option<ToolName> {
    if bounds::BUILT_IN_TOOLS.contains(&name) {
        report.push(
            Diagnostic::error(format!("`{name}` is a built-in tool"))
                .at(span.clone(), "")
                .help("choose another name"),
        );
        return None;
    }
    match ToolName::parse(name) {
        Ok(name) => Some(name),
        Err(invalid) => {
            report.push(bad_name(name, &invalid).at(span.clone(), ""));
            None
        }
    }
}

fn bad_name(name: &str, invalid: &InvalidWord) -> Diagnostic {
    let diagnostic = Diagnostic::error(invalid.to_string());
    if name.contains('.') {
        return diagnostic.help("a dot pins a revision in calls, as in `set_interval.v1`; write `_` instead");
    }
    diagnostic
}

fn revision(report: &mut Report, node: &Node<'_>) -> Option<Spanned<Revision>> {
    parsed(report, node, |text| {
        Revision::parse(text).map_err(|invalid| {
            Diagnostic::error(invalid.to_string()).help("write a short word such as \"v1\"")
        })
    })
}

fn output(report: &mut Report, node: &Node<'_>) -> Option<Vec<(Spanned<String>, Spanned<OutputType>)>> {
    let columns = Table::open(report, node, "`output`")?.into_entries();
    let column = |node: &Node<'_>| {
        let kind = choice(report, node, &OUTPUT_TYPES)?;
        Some((Spanned::new(node.name.clone(), node.key.clone()), kind))
    };
    let read: Vec<Option<_>> = columns.iter().map(column).collect();
    read.into_iter().collect()
}

/// A schema fragment beside the tool's own keys is an input in the wrong place.
fn misplaced_inputs(report: &mut Report, table: &mut Table<'_>) {
    for node in table.unread() {
        if node.value().as_table().is_some_and(|table| table.contains_key("type")) {
            let message = format!("unknown key `{}` in {}", node.name, table.what());
            let help = format!("an input is declared as `input.{}`", node.name);
            table.forget(&node);
            report.push(Diagnostic::error(message).at(node.key.clone(), "").help(help));
        }
    }
}

fn kind(
    report: &mut Report,
    table: &mut Table<'_>,
    input: Option<&Input>,
    receipts: Option<&Receipts>,
) -> Option<Kind> {
    match (table.optional("read"), table.optional("write")) {
        (Some(sql), None) => read(report, table, &sql).map(|read| Kind::Read(Box::new(read))),
        (None, Some(sql)) => {
            write(report, table, &sql, input, receipts).map(|write| Kind::Write(Box::new(write)))
        }
        (Some(read), Some(write)) => {
            let message = format!("{} has both `read` and `write`", table.what());
            report.push(
                Diagnostic::error(message)
                    .at(write.key, "it writes")
                    .at(read.key, "it reads")
                    .help("make two tools of it; a write answers with the rows of its last `RETURNING`"),
            );
            table.know(&TOOL_KEYS);
            None
        }
        (None, None) => {
            table.require(
                vec!["read", "write"],
                "say what it does: `read = \"SELECT …\"` or `write = \"UPDATE …\"`",
            );
            table.know(&TOOL_KEYS);
            None
        }
    }
}

fn read(report: &mut Report, table: &mut Table<'_>, node: &Node<'_>) -> Option<Read> {
    for key in ["current", "replay_access", "version", "retired", "keep", "remember", "store_intent"] {
        table.refuse(report, key, |node| {
            Diagnostic::error(format!("`{key}` has no meaning for a read"))
                .at(node.key.clone(), "")
                .help("a read leaves no receipt; remove it, or `write`")
        });
    }
    let sql = text(report, node);
    let returns = table.optional("returns");
    let words = [("row", Some(ReadReturns::Row)), ("rows", None)];
    let returns = maybe(report, returns, |report, node| choice(report, node, &words));
    let limit = table.optional("limit");
    let limit = maybe(report, limit, |report, node| count(report, node, bounds::ROWS));
    let revision = table.optional("revision");
    let revision = maybe(report, revision, self::revision);
    let (returns, limit) = (returns?, limit?);
    let row = returns.as_ref().is_some_and(|returns| returns.is_some());
    if let Some(limit) = limit.as_ref().filter(|_| row) {
        let message = "`limit` has no meaning for a read that returns one row";
        report.push(
            Diagnostic::error(message)
                .at(limit.span.clone(), "")
                .help("remove it, or write `returns = \"rows\"`"),
        );
    }
    let rows = ReadReturns::Rows(limit.map_or(bounds::DEFAULT_ROWS, |limit| limit.value));
    let returns = returns.and_then(|returns| returns.value).unwrap_or(rows);
    Some(Read { sql: sql?, returns, revision: revision? })
}

fn write(
    report: &mut Report,
    table: &mut Table<'_>,
    node: &Node<'_>,
    input: Option<&Input>,
    receipts: Option<&Receipts>,
) -> Option<Write> {
    table.refuse(report, "limit", |node| {
        Diagnostic::error("`limit` has no meaning for a write")
            .at(node.key.clone(), "")
            .help("a write answers with all its rows, or is undone; remove it")
    });
    let statements = statements(report, node);
    let revision = table.required("revision", "name this contract: `revision = \"v1\"`");
    let mut revisions = Names::default();
    let revision = revision.and_then(|node| new_revision(report, &node, &mut revisions));
    let returns = table.optional("returns");
    let words =
        [("row", WriteReturns::Row), ("rows", WriteReturns::Rows), ("nothing", WriteReturns::Nothing)];
    let returns = maybe(report, returns, |report, node| choice(report, node, &words));
    let version = table.optional("version");
    let version = maybe(report, version, |report, node| self::version(report, node, input));
    let current = table.optional("current");
    let current = maybe(report, current, text);
    let replay_access = table.optional("replay_access");
    let replay_access = maybe(report, replay_access, text);
    let retired = table.optional("retired");
    let retired = maybe(report, retired, |report, node| {
        every(report, node, |report, node| self::retired(report, node, &mut revisions))
    });
    let windows = WrittenWindows::read(report, table, receipts.map(|receipts| &receipts.windows));
    let store_intent = table.optional("store_intent");
    let store_intent = maybe(report, store_intent, boolean);
    Some(Write {
        revision: revision?,
        statements: statements?,
        span: node.span(),
        returns: returns?.map_or(WriteReturns::Row, |returns| returns.value),
        version: version?.unwrap_or_default(),
        current: current?,
        replay_access: replay_access?,
        retired: retired?.unwrap_or_default(),
        windows: windows?,
        store_intent: store_intent?,
    })
}

/// Reads a revision that no other declaration of the tool may have.
fn new_revision(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Spanned<Revision>> {
    let revision = revision(report, node)?;
    let message = || format!("revision `{}` is declared twice", revision.value);
    names.add(report, revision.as_str(), &revision.span, message);
    Some(revision)
}

const LIST_HELP: &str = "write one statement, or a list of statements and of `{ sql = \"…\", name = \"…\" }`";

fn statements(report: &mut Report, node: &Node<'_>) -> Option<Vec<Statement>> {
    if node.value().is_str() {
        let sql = text(report, node)?;
        return Some(vec![Statement { sql, name: None, may_change_nothing: None }]);
    }
    if !node.value().is_array() {
        report.push(node.mismatch("a string or a list").help(LIST_HELP));
        return None;
    }
    if list(report, node)?.is_empty() {
        report.push(node.fault("`write` has no statement", "").help(LIST_HELP));
        return None;
    }
    let mut names = Names::default();
    every(report, node, |report, node| statement(report, node, &mut names))
}

fn statement(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Statement> {
    if node.value().is_str() {
        return text(report, node).map(|sql| Statement { sql, name: None, may_change_nothing: None });
    }
    let Some(mut table) = node.value().is_table().then(|| Table::open(report, node, "a statement")).flatten()
    else {
        report.push(node.mismatch("a statement").help(LIST_HELP));
        return None;
    };
    let sql = table.required("sql", LIST_HELP);
    let sql = sql.and_then(|node| text(report, &node));
    let name = table.optional("name");
    let name = maybe(report, name, |report, node| statement_name(report, node, names));
    let may_change_nothing = table.optional("may_change_nothing");
    let may_change_nothing = maybe(report, may_change_nothing, boolean);
    table.finish(report);
    Some(Statement { sql: sql?, name: name?, may_change_nothing: may_change_nothing? })
}

fn statement_name(report: &mut Report, node: &Node<'_>, names: &mut Names) -> Option<Spanned<String>> {
    let name = parsed(report, node, |text| {
        parameter_name(text).map_err(|problem| {
            Diagnostic::error(format!("the statement name {problem}"))
                .help("later statements bind `:NAME.column`; write a word such as \"job\"")
        })?;
        Ok(text.to_owned())
    })?;
    names.add(report, &name, &name.span, || format!("two statements are called `{}`", name.value));
    Some(name)
}

fn version(report: &mut Report, node: &Node<'_>, input: Option<&Input>) -> Option<Version> {
    let mut table = Table::open(report, node, "`version`")?;
    let argument = table.optional("argument");
    let argument = maybe(report, argument, text);
    let column = table.optional("column");
    let column = maybe(report, column, text);
    table.finish(report);
    let (argument, column, default) = (argument?, column?, Version::default());
    if let (Some(argument), Some(input)) = (&argument, input) {
        argument_exists(report, argument, input);
    }
    Some(Version {
        argument: argument.map_or(default.argument, |argument| argument.value),
        column: column.map_or(default.column, |column| column.value),
        span: Some(node.span()),
    })
}

fn argument_exists(report: &mut Report, argument: &Spanned<String>, input: &Input) {
    let names: Vec<&str> = input.members.iter().map(|member| member.name.as_str()).collect();
    if names.contains(&argument.as_str()) {
        return;
    }
    let message = format!("there is no input `{}`", argument.value);
    let diagnostic = Diagnostic::error(message).at(argument.span.clone(), "");
    report.push(match nearest(argument, &names) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help("`version.argument` names the input that says which version the caller saw"),
    });
}

fn retired(report: &mut Report, node: &Node<'_>, revisions: &mut Names) -> Option<Retired> {
    let mut table = Table::open(report, node, "this `retired`")?;
    let revision = table.required("revision", "say which revision it was: `revision = \"v1\"`");
    let revision = revision.and_then(|node| new_revision(report, &node, revisions));
    let input = table.optional("input");
    let input = maybe(report, input, fragment::input);
    let replay_access = table.optional("replay_access");
    let replay_access = maybe(report, replay_access, text);
    for key in ["write", "read", "access"] {
        table.refuse(report, key, |node| {
            Diagnostic::error(format!("`{key}` has no meaning in a retired revision"))
                .at(node.key.clone(), "")
                .help("a retired revision serves replays and never runs again; remove it")
        });
    }
    table.finish(report);
    Some(Retired { revision: revision?, input: input?.unwrap_or_default(), replay_access: replay_access? })
}
