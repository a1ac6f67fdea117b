//! From a statement as written to a checked one: scanned, prepared by the database, every parameter resolved.

use std::ops::Range;

use counterfoil::tokio_postgres::types::Type;
use counterfoil_core::wire;

use super::probe::{Change, ColumnFact, Facts};
use super::sql::{Parameter, Scanned, scan};
use super::{Bind, Column, Planner, Statement};
use crate::config::{Member, Numeric, OutputType, Spanned, Sql, nearest};
use crate::diagnostics::Diagnostic;
use crate::kind::{self, Kind};

/// What a statement may bind and do, by where it stands.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// Its key in the file.
    pub name: &'static str,
    /// Arguments it may bind; `None` where there are none by nature.
    pub arguments: Option<&'a [Member]>,
    /// `:request_id` may be bound.
    pub request_id: bool,
    /// It must not change anything.
    pub read_only: bool,
    /// What it must bind, of the trusted context.
    pub must_bind: MustBind,
    /// Earlier named steps.
    pub earlier: &'a [Earlier],
    /// Types of result columns, as written; `None` where only the presence of a row counts.
    pub output: Option<&'a [(Spanned<String>, Spanned<OutputType>)]>,
}

/// What a statement must bind, of the trusted context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MustBind {
    /// `:workspace`
    Workspace,
    /// `:workspace`, unless it only inserts.
    WorkspaceUnlessInsert,
    /// `:workspace`, if it inserts: what it updates or deletes is held by the access rule's own lock.
    WorkspaceIfInsert,
    /// `:workspace` and `:principal`
    Caller,
    /// Nothing: its data is everybody's.
    Nothing,
}

/// A named step that later ones may refer to.
pub(super) struct Earlier {
    pub name: String,
    pub step: usize,
    /// What it returns, by name, and as which type of PostgreSQL's; `None` if that is not known because it is at
    /// fault itself.
    pub columns: Option<Vec<(String, Option<Type>)>>,
}

/// A statement that the database has prepared, and what it said of it. Where a fault has been reported, `binds` may
/// lack something: a plan with a fault is never run.
pub(super) struct Checked {
    pub statement: Statement,
    pub facts: Facts,
    pub scanned: Scanned,
}

impl Checked {
    pub(super) fn binds(&self, bind: &Bind) -> bool {
        self.statement.binds.contains(bind)
    }

    /// Does it return rows?
    pub(super) fn returns(&self) -> bool {
        !self.statement.columns.is_empty()
    }

    pub(super) fn binds_argument(&self, name: &str) -> bool {
        self.binds(&Bind::Argument(name.into()))
    }
}

impl Planner<'_> {
    /// Checks one statement; `None` if the database could not be asked of it. The report says all that is wrong.
    pub(super) fn statement(&mut self, sql: &Sql, place: Place<'_>) -> Option<Checked> {
        let scanned = match scan(self.language(), sql) {
            Ok(scanned) => scanned,
            Err((diagnostic, part)) => return self.fault(sql, part, diagnostic),
        };
        let mut resolved = Vec::new();
        for (parameter, part) in &scanned.parameters {
            resolved.push((parameter.bound_name(), self.resolve(sql, parameter, part, &place)));
        }
        if matches!(place.must_bind, MustBind::Workspace | MustBind::Caller) {
            self.must_bind(sql, &scanned, &place, "workspace");
        }
        if place.must_bind == MustBind::Caller {
            self.must_bind(sql, &scanned, &place, "principal");
        }
        let facts = self.prepare(sql, &scanned, &place)?;
        if place.read_only && !facts.read_only {
            let fault = Diagnostic::error(format!("`{}` may only read", place.name));
            return self.fault(sql, changing_word(&scanned), fault.help("write a SELECT here"));
        }
        if place.must_bind == MustBind::WorkspaceUnlessInsert && !only_inserts(&facts) {
            self.must_bind(sql, &scanned, &place, "workspace");
        }
        if place.must_bind == MustBind::WorkspaceIfInsert && inserts(&facts) {
            self.must_bind(sql, &scanned, &place, "workspace");
        }
        self.parameters_fit(sql, &scanned, &facts, &resolved, &place);
        let binds = self.in_order(sql, &scanned, &facts, &resolved);
        let columns = self.columns(sql, &scanned, &facts.columns, &place);
        let star = scanned.star();
        let with = scanned.tokens().next().is_some_and(|first| first.eq_ignore_ascii_case("WITH"));
        Some(Checked {
            statement: Statement {
                sql: facts.sql.as_str().into(),
                unlocked: facts.unlocked.as_deref().map(Into::into),
                binds,
                kinds: facts.kinds.clone(),
                slots: facts.slots.clone(),
                with,
                star,
                columns,
            },
            facts,
            scanned,
        })
    }

    fn prepare(&mut self, sql: &Sql, scanned: &Scanned, place: &Place<'_>) -> Option<Facts> {
        let probe = self.probe?;
        match probe.prepare(scanned, &|parameter| cast(parameter, place)) {
            Ok(facts) => Some(facts),
            Err(unfit) => {
                let named = || unfit.words.iter().find_map(|word| scanned.word(word));
                let part = unfit.at.map(|at| scanned.token_at(at)).or_else(named);
                let fault = Diagnostic::error(unfit.message);
                let fault = unfit.help.into_iter().fold(fault, Diagnostic::help);
                let through = unfit.through.filter(|_| part.is_none());
                let note = through.map(|name| format!("it does so through `{name}`, a view or trigger"));
                let fault = note.into_iter().fold(fault, Diagnostic::note);
                self.fault(sql, part.unwrap_or(scanned.whole()), fault)
            }
        }
    }

    /// A value of each declared JSON type must be one of the type that PostgreSQL gives its place.
    fn parameters_fit(
        &mut self,
        sql: &Sql,
        scanned: &Scanned,
        facts: &Facts,
        resolved: &[(String, Option<Bind>)],
        place: &Place<'_>,
    ) {
        for (name, kind) in facts.parameters.iter().zip(&facts.kinds) {
            let bind = resolved.iter().find(|(known, _)| known == name).and_then(|(_, bind)| bind.as_ref());
            let Some(fault) = bind.and_then(|bind| misfit(bind, kind, place)) else { continue };
            let at = scanned.parameters.iter().find(|(parameter, _)| parameter.bound_name() == *name);
            let part = at.map_or(scanned.whole(), |(_, part)| part.clone());
            let _reported: Option<()> = self.fault(sql, part, fault);
        }
    }

    fn must_bind(&mut self, sql: &Sql, scanned: &Scanned, place: &Place<'_>, name: &str) {
        // A parameter that was probably meant for it has been reported with the right name.
        let misspelt = scanned.names().any(|known| meant(known, place) == Some(name));
        if scanned.binds(name) || misspelt {
            return;
        }
        let fault = Diagnostic::error(format!("`{}` does not bind `:{name}`", place.name));
        let fault = fault.help(match place.must_bind {
            MustBind::Caller => "it must find a row for this principal in this workspace, and for no other",
            MustBind::Workspace
            | MustBind::WorkspaceUnlessInsert
            | MustBind::WorkspaceIfInsert
            | MustBind::Nothing
                if scanned.inserts() =>
            {
                "store it: every row belongs to the workspace of the call that made it"
            }
            MustBind::Workspace
            | MustBind::WorkspaceUnlessInsert
            | MustBind::WorkspaceIfInsert
            | MustBind::Nothing => {
                "add `AND workspace_id = :workspace`, so that no tenant reaches another's rows"
            }
        });
        let shareable = place.name == "read" || place.name == "write" && scanned.inserts();
        let fault = match place.must_bind {
            MustBind::WorkspaceUnlessInsert => {
                fault.note("`shared = true` lifts this for reads and for statements that only insert")
            }
            MustBind::Workspace if shareable => {
                fault.note("data that all workspaces share: say `shared = true` on the tool")
            }
            MustBind::Workspace | MustBind::WorkspaceIfInsert | MustBind::Caller | MustBind::Nothing => fault,
        };
        let _reported: Option<()> = self.fault(sql, scanned.whole(), fault);
    }

    /// Reports `diagnostic` at `part` of `sql`.
    pub(super) fn fault<T>(&mut self, sql: &Sql, part: Range<usize>, diagnostic: Diagnostic) -> Option<T> {
        let span = self.config.source.inside(&sql.span, sql, part);
        self.report.push(diagnostic.at(span, ""));
        None
    }

    fn resolve(
        &mut self,
        sql: &Sql,
        parameter: &Parameter,
        part: &Range<usize>,
        place: &Place<'_>,
    ) -> Option<Bind> {
        let found = match parameter {
            Parameter::Plain(name) => plain(name, place).map(Some),
            Parameter::Dotted(statement, column) => earlier(statement, column, place),
        };
        found.unwrap_or_else(|diagnostic| self.fault(sql, part.clone(), diagnostic))
    }

    /// SQLite's own list of parameters has the last word: where it and ours differ, a text means something else to
    /// SQLite than it seems to say.
    fn in_order(
        &mut self,
        sql: &Sql,
        scanned: &Scanned,
        facts: &Facts,
        resolved: &[(String, Option<Bind>)],
    ) -> Vec<Bind> {
        let of = |name: &String| resolved.iter().find(|(known, _)| known == name);
        let unknown = facts.parameters.iter().find(|name| of(name).is_none());
        let unseen = resolved.iter().map(|(name, _)| name).find(|name| !facts.parameters.contains(name));
        if let Some(name) = unknown.or(unseen) {
            let part = scanned.sql.find(name.as_str()).map_or(scanned.whole(), |at| at..at + name.len());
            let _reported: Option<()> = self.fault(sql, part, not_a_name());
        }
        facts.parameters.iter().filter_map(|name| of(name).and_then(|(_, bind)| bind.clone())).collect()
    }

    fn columns(
        &mut self,
        sql: &Sql,
        scanned: &Scanned,
        facts: &[ColumnFact],
        place: &Place<'_>,
    ) -> Vec<Column> {
        let Some(output) = place.output else { return Vec::new() };
        for (at, column) in facts.iter().enumerate() {
            if facts[..at].iter().any(|other| other.name == column.name) {
                let fault = Diagnostic::error(format!("two result columns are called `{}`", column.name));
                let part = scanned.result_word(&column.name).unwrap_or(scanned.whole());
                let _reported: Option<()> =
                    self.fault(sql, part, fault.help("give one of them another name: `… AS other_name`"));
            }
        }
        for fact in facts {
            if let Some(fault) = unwritable(fact, output) {
                let part = scanned.result_word(&fact.name).unwrap_or(scanned.whole());
                let _reported: Option<()> = self.fault(sql, part, fault);
            }
        }
        let numeric = self.config.database.postgres.numeric;
        facts.iter().map(|fact| column(fact, output, numeric)).collect()
    }
}

/// Does the statement only insert, and neither update nor delete?
pub(super) fn only_inserts(facts: &Facts) -> bool {
    facts.changes.iter().all(|(change, _)| *change == Change::Insert)
}

/// Does the statement insert, among other things?
fn inserts(facts: &Facts) -> bool {
    facts.changes.iter().any(|(change, _)| *change == Change::Insert)
}

/// The type of a parameter that PostgreSQL could not know, or would guess wrong.
fn cast(parameter: &Parameter, place: &Place<'_>) -> Option<String> {
    match parameter {
        Parameter::Plain(name) => (name == "now").then(|| "timestamptz".to_owned()),
        Parameter::Dotted(statement, column) => {
            let earlier = place.earlier.iter().find(|earlier| earlier.name == *statement)?;
            let (_, kind) = earlier.columns.as_ref()?.iter().find(|(name, _)| name == column)?;
            kind.as_ref().map(kind::spelt)
        }
    }
}

/// Why what is bound is no value of type `kind`.
fn misfit(bind: &Bind, kind: &Type, place: &Place<'_>) -> Option<Diagnostic> {
    let said = kind::said(kind);
    let Some(known) = Kind::of(kind) else {
        // An earlier statement's value goes as it came.
        let argument = !matches!(bind, Bind::Earlier { .. });
        let fault = Diagnostic::error(format!("nothing that can be bound has the type `{said}`"));
        return argument
            .then(|| fault.help("bind it as text and let PostgreSQL read it: `(:name::text)::type`"));
    };
    match bind {
        Bind::Earlier { .. } | Bind::Now => None,
        Bind::Workspace | Bind::Principal | Bind::Issuer | Bind::RequestId => {
            (!known.takes_text()).then(|| {
                let fault = Diagnostic::error(format!("this is text, and its place has the type `{said}`"));
                fault.help("let PostgreSQL read it: `(:workspace::text)::bigint`")
            })
        }
        Bind::Argument(name) => {
            let member = place.arguments?.iter().find(|member| *member.name.value == **name)?;
            let shape = member.fragment.shape.type_name();
            (!known.takes(&member.fragment.shape)).then(|| {
                let message =
                    format!("the input `{name}` is declared `{shape}`, and its place has the type `{said}`");
                let fault = Diagnostic::error(message).at(member.name.span.clone(), "");
                fault
                    .help("declare the type that fits, or convert it in the statement: `(:name::text)::type`")
            })
        }
    }
}

/// Why a result column cannot be written in JSON.
fn unwritable(fact: &ColumnFact, output: &[(Spanned<String>, Spanned<OutputType>)]) -> Option<Diagnostic> {
    let kind = fact.kind.as_ref()?;
    let said = kind::said(kind);
    let Some(known) = Kind::of(kind) else {
        let fault =
            Diagnostic::error(format!("the column `{}` has the type `{said}`, which has no JSON", fact.name));
        return Some(fault.help(format!("convert it: `{0}::text AS {0}`", fact.name)));
    };
    let (_, declared) = output.iter().find(|(name, _)| name.value == fact.name)?;
    if known.writes(declared.value) {
        return None;
    }
    let message = format!("the column `{}` has the type `{said}`, which cannot be written so", fact.name);
    let fault = Diagnostic::error(message).at(declared.span.clone(), "");
    Some(fault.help("remove it from `output`: PostgreSQL tells the type of a column"))
}

fn changing_word(scanned: &Scanned) -> Range<usize> {
    let words = ["INSERT", "UPDATE", "DELETE", "REPLACE"];
    words.iter().find_map(|word| scanned.word(word)).unwrap_or(scanned.whole())
}

/// What a parameter may be called, where one is called otherwise.
pub(super) fn not_a_name() -> Diagnostic {
    let help = "a name is made of A-Z a-z 0-9 _ and ends where anything else begins";
    Diagnostic::error("SQLite does not read this as a parameter `:name`").help(help)
}

/// What people call the trusted context before they have read how it is called here.
const MEANT: [(&str, &[&str]); 4] = [
    ("workspace", &["tenant", "tenant_id", "org", "org_id", "organization", "account", "account_id", "team"]),
    ("principal", &["user", "user_id", "subject", "sub", "caller", "username", "me"]),
    ("issuer", &["iss"]),
    ("now", &["time", "timestamp", "current_timestamp"]),
];

fn plain(name: &str, place: &Place<'_>) -> Result<Bind, Diagnostic> {
    match name {
        "workspace" => return Ok(Bind::Workspace),
        "principal" => return Ok(Bind::Principal),
        "issuer" => return Ok(Bind::Issuer),
        "now" => return Ok(Bind::Now),
        "request_id" if place.request_id => return Ok(Bind::RequestId),
        "request_id" => {
            let fault = Diagnostic::error(format!("`{}` has no request id to bind", place.name));
            return Err(fault.help("only the statements of a tool that writes may bind `:request_id`"));
        }
        _ => {}
    }
    if place.arguments.unwrap_or_default().iter().any(|argument| argument.name.value == name) {
        return Ok(Bind::Argument(name.into()));
    }
    let (message, declare) = match place.arguments {
        Some(_) => (
            format!("there is no input `{name}`"),
            format!("declare it: `input.{name} = {{ type = \"string\" }}`"),
        ),
        None => (
            format!("`{}` cannot bind `:{name}`", place.name),
            "it is asked before any argument is known: bind `:workspace`, `:principal` or `:issuer`".into(),
        ),
    };
    let help = meant(name, place).map_or(declare, |near| format!("did you mean `:{near}`?"));
    Err(Diagnostic::error(message).help(help))
}

fn meant<'a>(name: &str, place: &Place<'a>) -> Option<&'a str> {
    let context = wire::RESERVED.iter().filter(|name| place.request_id || **name != "request_id");
    let known = place
        .arguments
        .unwrap_or_default()
        .iter()
        .map(|argument| argument.name.as_str())
        .chain(context.copied());
    let synonym = || MEANT.iter().find(|(_, words)| words.contains(&name)).map(|(meant, _)| *meant);
    nearest(name, &known.collect::<Vec<_>>()).or_else(synonym)
}

fn earlier(statement: &str, column: &str, place: &Place<'_>) -> Result<Option<Bind>, Diagnostic> {
    if place.read_only {
        let fault = Diagnostic::error(format!("`{}` comes after no other statement", place.name));
        return Err(
            fault.help("only a statement of a `write` list may bind `:NAME.column` of an earlier one")
        );
    }
    let Some(found) = place.earlier.iter().find(|earlier| earlier.name == statement) else {
        let fault = Diagnostic::error(format!("no earlier statement is called `{statement}`"));
        let known: Vec<&str> = place.earlier.iter().map(|earlier| earlier.name.as_str()).collect();
        let name = format!(
            "name it, before this one: `{{ name = \"{statement}\", sql = \"… RETURNING {column}\" }}`"
        );
        let help =
            nearest(statement, &known).map_or(name, |near| format!("did you mean `:{near}.{column}`?"));
        return Err(fault.help(help));
    };
    let Some(columns) = &found.columns else { return Ok(None) };
    match columns.iter().position(|(known, _)| known == column) {
        Some(column) => Ok(Some(Bind::Earlier { step: found.step, column })),
        None => {
            let fault = Diagnostic::error(format!("statement `{statement}` returns no column `{column}`"));
            Err(fault.help(format!("add it to the RETURNING of `{statement}`")))
        }
    }
}

fn column(fact: &ColumnFact, output: &[(Spanned<String>, Spanned<OutputType>)], numeric: Numeric) -> Column {
    let output = output.iter().find(|(name, _)| name.value == fact.name).map(|(_, output)| output.value);
    if let (Some(kind), Some(of)) = (fact.kind.as_ref().and_then(Kind::of), &fact.kind) {
        let as_number = kind == Kind::Numeric && numeric == Numeric::Number;
        let output = output.or(as_number.then_some(OutputType::Number));
        let json = kind.sql(of, output).map(Into::into);
        return Column { name: fact.name.as_str().into(), output, certain: kind.json(output), json };
    }
    let certain = match (output, fact.strict_type.as_deref()) {
        (Some(OutputType::Boolean), _) => Some("boolean"),
        (Some(OutputType::Integer), _) | (None, Some("INTEGER" | "INT")) => Some("integer"),
        (Some(OutputType::Number), _) | (None, Some("REAL")) => Some("number"),
        (Some(OutputType::String | OutputType::Bytes), _) | (None, Some("TEXT" | "BLOB")) => Some("string"),
        (Some(OutputType::Json), _) | (None, Some(_) | None) => None,
    };
    Column { name: fact.name.as_str().into(), output, certain, json: None }
}
