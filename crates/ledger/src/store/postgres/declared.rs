//! Tools whose SQL is known before any call: the ledger makes one statement of access, write and receipt, so that a
//! call costs one round trip.
//!
//! A [`Declaration`] is composed once, by [`super::Ledger::declare`]; a call only brings values. A handler whose
//! write is declared answers [`super::Handler::declared`]. Its steps must be there all the same, and must do the
//! same: they are what runs where one statement is not enough (a call that retired schemas also fit, an error that
//! must be told apart).
//!
//! The statement is
//!
//! ```sql
//! WITH access AS MATERIALIZED (SELECT EXISTS (membership) AS member, EXISTS (access) AS allowed),
//!      written AS (the tool's write … RETURNING …)
//! INSERT INTO counterfoil_receipts (…)
//! SELECT …, CASE WHEN member AND allowed THEN clock_timestamp() END, …, result AS JSON
//!   FROM access LEFT JOIN written ON true
//! RETURNING committed_at, result
//! ```
//!
//! The receipt is the gate: where access is not given, nothing was changed, or the result is too large, a column of
//! the receipt that must not be NULL is, and the error undoes the write. A second row, and a rival's receipt, collide
//! in the receipts' unique index. Nothing of this is an answer yet: a second statement asks again for access and
//! receipt, and what it finds comes first.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::types::{ToSql, Type};

/// A piece of SQL with places for values.
///
/// ```
/// # use counterfoil::postgres::Part;
/// # use counterfoil::tokio_postgres::types::Type;
/// let access = Part::default()
///     .text("SELECT 1 FROM automations WHERE id = ")
///     .slot(0, Type::INT8)
///     .text(" AND workspace_id = ")
///     .slot(1, Type::TEXT);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Part(Vec<Piece>);

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Slot(usize, Type),
    Earlier(usize, usize, Type),
}

impl Part {
    /// SQL as it is: without placeholders, and without a semicolon at its end.
    #[must_use]
    pub fn text(mut self, sql: impl Into<String>) -> Self {
        self.0.push(Piece::Text(sql.into()));
        self
    }

    /// The call's value at `index`, as `kind`: the type that the server told for this place. The same value may stand
    /// in several places as several types.
    #[must_use]
    pub fn slot(mut self, index: usize, kind: Type) -> Self {
        self.0.push(Piece::Slot(index, kind));
        self
    }

    /// In a [`List`], the column at `column` of the first row of the statement at `statement`, which comes before this
    /// one and whose column is of type `kind`.
    #[must_use]
    pub fn earlier(mut self, statement: usize, column: usize, kind: Type) -> Self {
        self.0.push(Piece::Earlier(statement, column, kind));
        self
    }

    /// The statements whose rows this one needs.
    fn needs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Earlier(statement, column, _) => Some((*statement, *column)),
            Piece::Text(_) | Piece::Slot(..) => None,
        })
    }
}

impl From<&str> for Part {
    fn from(sql: &str) -> Self {
        Self::default().text(sql)
    }
}

/// A column of a query, as a member of a JSON object.
#[derive(Debug, Clone)]
pub struct Column {
    /// The member's name.
    pub name: String,
    /// SQL that makes JSON text of the column, which it calls `{}`: `"({})::text"` for an integer,
    /// `"to_json({})::text"` for a string. NULL becomes `null`.
    pub json: String,
}

/// A statement that returns rows.
#[derive(Debug, Clone)]
pub struct Query {
    /// The statement. A write ends in RETURNING, even where its rows are of no interest (`RETURNING true`).
    pub sql: Part,
    /// Every column that it returns, in order.
    pub columns: Vec<Column>,
}

/// What the result of a write is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// One row, as an object. A second one undoes the write.
    Row,
    /// An array of the rows.
    Rows,
    /// `null`.
    Nothing,
}

/// A tool of one statement.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Finds a row for a member.
    pub membership: Option<Part>,
    /// Finds a row if the caller may touch the resource now.
    pub access: Option<Part>,
    /// Asked instead of `access` when the same operation has committed.
    pub replay_access: Option<Part>,
    /// The write. It must hold no data-modifying WITH of its own, which cannot stand inside another.
    pub write: Query,
    /// What its result is.
    pub returns: Returns,
    /// A write that finds no row is no refusal. Only for [`Returns::Rows`] and [`Returns::Nothing`].
    pub may_change_nothing: bool,
    /// The row as it is now; its first row is shown, `null` if there is none.
    pub current: Option<Query>,
    /// Settings and the values they get in each transaction, as text: for row-level security.
    pub session: Vec<(String, usize)>,
}

/// A tool of several statements: all in one transaction, as many as possible in one flush.
#[derive(Debug, Clone)]
pub struct List {
    /// Finds a row for a member.
    pub membership: Option<Part>,
    /// Finds a row if the caller may touch the resource now.
    pub access: Option<Part>,
    /// Asked instead of `access` when the same operation has committed.
    pub replay_access: Option<Part>,
    /// The statements, in order. Each returns rows (`RETURNING true`, if they are of no interest) and holds no
    /// data-modifying WITH of its own.
    pub statements: Vec<ListStatement>,
    /// Whose rows are the result.
    pub result: usize,
    /// What it is.
    pub returns: Returns,
    /// The row as it is now.
    pub current: Option<Query>,
    /// Settings and the values they get in each transaction.
    pub session: Vec<(String, usize)>,
}

/// One statement of a [`List`].
#[derive(Debug, Clone)]
pub struct ListStatement {
    /// The statement.
    pub query: Query,
    /// Finding no row is no refusal.
    pub may_change_nothing: bool,
}

/// A declaration that is composed: made once, shared by all calls.
#[derive(Debug)]
pub struct Declared {
    pub(super) write: Form,
    pub(super) look: Composed,
    pub(super) session: Option<Composed>,
    pub(super) shows_current: bool,
}

/// What a handler hands over for one call.
#[derive(Debug)]
pub struct Values<'a> {
    /// What was declared.
    pub declared: &'a Declared,
    /// The call's values, by slot: none may be missing.
    pub values: Vec<&'a (dyn ToSql + Sync)>,
}

/// What a write is composed to.
#[derive(Debug)]
pub(super) enum Form {
    /// Access, write and receipt.
    Single(Composed),
    /// Access, and each statement by itself.
    List(Listed),
}

#[derive(Debug)]
pub(super) struct Listed {
    /// Two columns: is the caller a member, and allowed?
    pub(super) gate: Composed,
    pub(super) steps: Vec<Step>,
    pub(super) result: usize,
    pub(super) returns: Returns,
}

/// One statement of a list: it tells how many rows, the result as JSON, then the columns that later ones need.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) composed: Composed,
    pub(super) may_change_nothing: bool,
    /// Which of the columns it tells, in order.
    pub(super) told: Vec<usize>,
    /// Values of earlier rows, after those by slot: statement, and which of the columns that it tells.
    pub(super) earlier: Vec<(usize, usize)>,
}

/// A statement, the types of its parameters, and where their values come from: first the ledger's own, then slots.
#[derive(Debug)]
pub(super) struct Composed {
    /// Tells statements apart on a connection that keeps them.
    pub(super) id: u64,
    pub(super) sql: String,
    pub(super) types: Vec<Type>,
    pub(super) slots: Vec<usize>,
}

impl Composed {
    /// The values of one call: `own`, then by slot. `None` if one is missing.
    pub(super) fn values<'a>(
        &self,
        own: &[&'a (dyn ToSql + Sync)],
        values: &[&'a (dyn ToSql + Sync)],
    ) -> Option<Vec<&'a (dyn ToSql + Sync)>> {
        let slots = self.slots.iter().map(|&slot| values.get(slot).copied());
        own.iter().copied().map(Some).chain(slots).collect()
    }
}

impl Declared {
    /// Composes `declaration` for results of at most `limit` bytes.
    #[must_use]
    pub(super) fn new(declaration: &Declaration, limit: usize) -> Self {
        Self {
            write: Form::Single(write(declaration, limit)),
            look: look(&Asks::of(declaration)),
            session: session(&declaration.session),
            shows_current: declaration.current.is_some(),
        }
    }

    /// Composes `list`. `None` if a statement needs a row of one that does not come before it, or there are more than
    /// can be sent at once.
    pub(super) fn list(list: &List) -> Option<Self> {
        Some(Self {
            write: Form::List(listed(list)?),
            look: look(&Asks::of_list(list)),
            session: session(&list.session),
            shows_current: list.current.is_some(),
        })
    }

    /// Is a call one statement, with no transaction around it that could stay open?
    pub(super) fn alone(&self) -> bool {
        matches!(self.write, Form::Single(_)) && self.session.is_none()
    }

    /// Every statement that a call may send.
    pub(super) fn statements(&self) -> impl Iterator<Item = &Composed> {
        let write: Vec<_> = match &self.write {
            Form::Single(write) => vec![write],
            Form::List(list) => list.steps.iter().map(|step| &step.composed).chain([&list.gate]).collect(),
        };
        write.into_iter().chain([&self.look]).chain(&self.session)
    }
}

/// What is asked about access, and shown.
struct Asks<'a> {
    membership: Option<&'a Part>,
    access: Option<&'a Part>,
    /// Where it is not the rule for access, which is not asked twice.
    replay: Option<&'a Part>,
    current: Option<&'a Query>,
}

impl<'a> Asks<'a> {
    fn of(of: &'a Declaration) -> Self {
        Self {
            membership: of.membership.as_ref(),
            access: of.access.as_ref(),
            replay: of.replay_access.as_ref(),
            current: of.current.as_ref(),
        }
    }

    fn of_list(of: &'a List) -> Self {
        Self {
            membership: of.membership.as_ref(),
            access: of.access.as_ref(),
            replay: of.replay_access.as_ref(),
            current: of.current.as_ref(),
        }
    }
}

/// What a receipt's insertion is given by the ledger: the key's five words, revision, fingerprint, intent, and between
/// which instants an id that carries its own time may commit.
const OWN: [Type; 10] = [
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::BYTEA,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
];

/// In which column of the receipt a NULL tells what, and undoes the write.
pub(super) const NOT_GIVEN: &str = "committed_at";
pub(super) const UNCHANGED: &str = "state";
pub(super) const TOO_LARGE: &str = "request_id";

/// Writes SQL and numbers the parameters: one number for each slot and type, so that no two parts can disagree about
/// a parameter's type.
struct Composer {
    sql: String,
    own: Vec<Type>,
    /// Of a list, the columns of earlier statements: they come first, after the ledger's own.
    earlier: Vec<(usize, usize)>,
    slots: Vec<(usize, Type)>,
}

impl Composer {
    fn new(own: &[Type]) -> Self {
        Self { sql: String::new(), own: own.to_vec(), earlier: Vec::new(), slots: Vec::new() }
    }

    fn text(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    fn slot(&mut self, index: usize, kind: &Type) -> &mut Self {
        let known = self.slots.iter().position(|(slot, of)| *slot == index && of == kind);
        let at = known.unwrap_or_else(|| {
            self.slots.push((index, kind.clone()));
            self.slots.len() - 1
        });
        let number = self.own.len() + at + 1;
        self.text(&format!("${number}"))
    }

    /// Their types stand among the ledger's own from the beginning.
    fn earlier(&mut self, statement: usize, column: usize) -> &mut Self {
        let at = self.earlier.iter().position(|known| *known == (statement, column)).unwrap_or_default();
        self.text(&format!("${}", at + 1))
    }

    /// A part may end in a comment: what follows begins on a line of its own.
    fn part(&mut self, part: &Part) -> &mut Self {
        for piece in &part.0 {
            match piece {
                Piece::Text(sql) => self.text(sql),
                Piece::Slot(index, kind) => self.slot(*index, kind),
                Piece::Earlier(statement, column, _) => self.earlier(*statement, *column),
            };
        }
        self.text("\n")
    }

    fn exists(&mut self, part: Option<&Part>) -> &mut Self {
        match part {
            None => self.text("true"),
            Some(part) => self.text("EXISTS (").part(part).text(")"),
        }
    }

    /// `name (c0, c1, …)`, so that the columns' own names may be anything, and twice the same.
    fn named(&mut self, name: &str, query: &Query) -> &mut Self {
        let columns: Vec<_> = (0..query.columns.len()).map(|at| format!("c{at}")).collect();
        self.text(&format!("{name} ({})", columns.join(", ")))
    }

    fn done(self) -> Composed {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (slots, kinds): (Vec<_>, Vec<_>) = self.slots.into_iter().unzip();
        let types = self.own.into_iter().chain(kinds).collect();
        Composed { id: NEXT.fetch_add(1, Ordering::Relaxed), sql: self.sql, types, slots }
    }
}

/// SQL that makes one JSON object of a row of `table`.
fn object(table: &str, columns: &[Column]) -> String {
    let mut sql = "'{'".to_owned();
    for (at, column) in columns.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let name = serde_json::Value::from(column.name.as_str());
        let json = column.json.replace("{}", &format!("{table}.c{at}"));
        sql.push_str(&format!(" || {} || coalesce({json}, 'null')", literal(&format!("{comma}{name}:"))));
    }
    sql + " || '}'"
}

/// A string constant, whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// Membership and rule are both asked, whatever the first says, so that refusals look alike from outside. `access` is
/// the outer side of the join: it is read, and locked if it ends in FOR SHARE, before anything is written.
fn write(declaration: &Declaration, limit: usize) -> Composed {
    let object = object("counterfoil_written", &declaration.write.columns);
    let changed = if declaration.may_change_nothing { "true" } else { "count(*) > 0" };
    let made = match declaration.returns {
        Returns::Row => format!("true AS changed, {object} AS result"),
        Returns::Rows => {
            format!("{changed} AS changed, '[' || coalesce(string_agg({object}, ','), '') || ']' AS result")
        }
        Returns::Nothing => format!("{changed} AS changed, 'null' AS result"),
    };
    let mut composer = Composer::new(&OWN);
    composer.text("WITH counterfoil_access AS MATERIALIZED (SELECT ");
    composer.exists(declaration.membership.as_ref()).text(" AS member, ");
    composer.exists(declaration.access.as_ref()).text(" AS allowed),\n");
    composer.named("counterfoil_written", &declaration.write).text(" AS (").part(&declaration.write.sql);
    composer.text(&format!(
        ")\nINSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at, \
         revision, fingerprint, intent, result)\n\
         SELECT $1, $2, $3, $4, CASE WHEN octet_length(made.result) > {limit} THEN NULL ELSE $5 END, \
         CASE WHEN made.changed THEN 'committed' END, \
         CASE WHEN access.member AND access.allowed AND clock_timestamp() BETWEEN $9 AND $10 \
         THEN clock_timestamp() END, $6, $7, $8, made.result\n\
         FROM counterfoil_access AS access LEFT JOIN (SELECT {made} FROM counterfoil_written OFFSET 0) AS made \
         ON true\nRETURNING committed_at, result"
    ));
    composer.done()
}

/// Access, receipt and the row as it is now, in one snapshot. The row is read whatever the rule says, and shown only
/// if it passes.
fn look(asks: &Asks<'_>) -> Composed {
    let mut composer = Composer::new(&[const { Type::TEXT }; 5]);
    composer.text("SELECT statement_timestamp(), ").exists(asks.membership);
    composer.text(", ").exists(asks.access).text(", ");
    match asks.replay {
        None => composer.text("NULL::boolean"),
        replay => composer.exists(replay),
    };
    composer.text(
        ", receipt.state, receipt.revision, receipt.fingerprint, receipt.committed_at, receipt.result, ",
    );
    match asks.current {
        None => composer.text("NULL::text"),
        Some(query) => {
            let object = object("counterfoil_current", &query.columns);
            composer.text(&format!("coalesce((SELECT {object} FROM ("));
            composer.part(&query.sql).text(") AS ").named("counterfoil_current", query);
            composer.text(" LIMIT 1), 'null')")
        }
    };
    composer.text(
        "\nFROM (SELECT 1) AS one LEFT JOIN counterfoil_receipts AS receipt ON receipt.workspace = $1 \
         AND receipt.issuer = $2 AND receipt.subject = $3 AND receipt.tool = $4 AND receipt.request_id = $5",
    );
    composer.done()
}

/// Statements in one flush at most.
const STATEMENTS: usize = 16;

fn listed(list: &List) -> Option<Listed> {
    if list.statements.len() > STATEMENTS || list.result >= list.statements.len() {
        return None;
    }
    let mut gate = Composer::new(&[]);
    gate.text("SELECT ").exists(list.membership.as_ref()).text(", ").exists(list.access.as_ref());
    let steps = (0..list.statements.len()).map(|at| step(list, at)).collect::<Option<_>>()?;
    Some(Listed { gate: gate.done(), steps, result: list.result, returns: list.returns })
}

/// Which columns of the statement at `at` later ones need.
fn told(list: &List, at: usize) -> Vec<usize> {
    let needed = list.statements.iter().flat_map(|later| later.query.sql.needs());
    let mut columns: Vec<_> = needed.filter(|(of, _)| *of == at).map(|(_, column)| column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

fn step(list: &List, at: usize) -> Option<Step> {
    let ListStatement { query, may_change_nothing } = list.statements.get(at)?;
    let mut earlier = Vec::new();
    let mut kinds = Vec::new();
    for piece in &query.sql.0 {
        if let Piece::Earlier(statement, column, kind) = piece
            && !earlier.contains(&(*statement, *column))
        {
            earlier.push((*statement, *column));
            kinds.push(kind.clone());
        }
    }
    let told_columns = told(list, at);
    let known = |(statement, _): &(usize, usize)| *statement < at;
    let within = |column: &usize| *column < query.columns.len();
    if !earlier.iter().all(known) || !told_columns.iter().all(within) {
        return None;
    }
    let mut composer = Composer::new(&kinds);
    composer.earlier.clone_from(&earlier);
    composer.text("WITH ").named("counterfoil_written", query).text(" AS (").part(&query.sql);
    composer.text(&format!(")\nSELECT count(*), {}", result(list, at, query)));
    for column in &told_columns {
        composer.text(&format!(", (SELECT c{column} FROM counterfoil_written LIMIT 1)"));
    }
    composer.text(" FROM counterfoil_written");
    let place = |(statement, column): (usize, usize)| {
        told(list, statement).iter().position(|told| *told == column).map(|place| (statement, place))
    };
    let earlier = earlier.into_iter().map(place).collect::<Option<_>>()?;
    Some(Step {
        composed: composer.done(),
        may_change_nothing: *may_change_nothing,
        told: told_columns,
        earlier,
    })
}

fn result(list: &List, at: usize, query: &Query) -> String {
    let object = object("counterfoil_written", &query.columns);
    match list.returns {
        _ if at != list.result => "NULL::text".to_owned(),
        Returns::Row => format!("(SELECT {object} FROM counterfoil_written LIMIT 1)"),
        Returns::Rows => format!("'[' || coalesce(string_agg({object}, ','), '') || ']'"),
        Returns::Nothing => "'null'::text".to_owned(),
    }
}

fn session(settings: &[(String, usize)]) -> Option<Composed> {
    let mut composer = Composer::new(&[]);
    for (at, (name, slot)) in settings.iter().enumerate() {
        let before = if at == 0 { "SELECT" } else { "," };
        composer.text(&format!("{before} set_config({}, ", literal(name)));
        composer.slot(*slot, &Type::TEXT).text(", true)");
    }
    (!settings.is_empty()).then(|| composer.done())
}
