//! A write as the ledger composes it: access, write and receipt of one statement travel together, and several
//! statements in two flushes. What a result looks like is then made by the database; a tool with a column that the
//! database writes otherwise than we do runs step by step instead.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use bytes::BytesMut;
use counterfoil::Fault;
use counterfoil::postgres::{
    Column, Declaration, Declared, Ledger, List, ListStatement, Part, Query, Returns,
};
use counterfoil::tokio_postgres::types::{Format, IsNull, ToSql, Type};
use counterfoil_core::{Reading, Timestamp, ToolName};

use super::bind::{Bound, bound};
use crate::config::WriteReturns;
use crate::plan::{Bind, Database, Kind, Plan, Statement, Step, Tool, Write};
use crate::run::writing::Writing;

/// The tools that are composed.
pub(super) type Declarations = HashMap<ToolName, Arc<Composed>>;

/// A tool, composed.
#[derive(Debug)]
pub(super) struct Composed {
    pub declared: Declared,
    /// What each slot is, and as which types it is sent.
    slots: Vec<(Bind, Vec<Type>)>,
}

/// One slot's value, in the form of each type that it is sent as.
#[derive(Debug)]
pub(super) struct Slot(Vec<(Type, Option<String>)>);

/// Composes every tool of the plan that can be composed. One that the server does not take so runs step by step.
pub(super) async fn declare(ledger: &Ledger, plan: &Plan) -> Declarations {
    let mut declarations = Declarations::new();
    for tool in &plan.tools {
        let Kind::Write(write) = &tool.kind else { continue };
        let mut slots = Slots::default();
        let Some(form) = form(&mut slots, plan, tool, write) else { continue };
        match form.declare(ledger).await {
            Ok(declared) => {
                let composed = Composed { declared, slots: slots.0 };
                declarations.insert(tool.name.clone(), Arc::new(composed));
            }
            Err(fault) => {
                let (tool, problem) = (tool.name.as_str(), fault.to_string());
                tracing::warn!(tool, problem, "a tool cannot be composed, and runs step by step");
            }
        }
    }
    declarations
}

/// What the ledger is asked to compose.
enum Form {
    One(Declaration),
    Several(List),
}

impl Form {
    async fn declare(&self, ledger: &Ledger) -> Result<Declared, Fault> {
        match self {
            Self::One(declaration) => ledger.declare(declaration).await,
            Self::Several(list) => ledger.declare_list(list).await,
        }
    }
}

/// Slots, as they are met.
#[derive(Default)]
struct Slots(Vec<(Bind, Vec<Type>)>);

impl Slots {
    fn of(&mut self, bind: &Bind, kind: &Type) -> usize {
        let at = self.0.iter().position(|(known, _)| known == bind).unwrap_or_else(|| {
            self.0.push((bind.clone(), Vec::new()));
            self.0.len() - 1
        });
        let kinds = &mut self.0[at].1;
        if !kinds.contains(kind) {
            kinds.push(kind.clone());
        }
        at
    }

    fn part(&mut self, statement: &Statement) -> Part {
        let (mut part, mut from) = (Part::default(), 0);
        for (place, at) in &statement.slots {
            part = part.text(&statement.sql[from..place.start]);
            part = match (&statement.binds[*at], &statement.kinds[*at]) {
                // The database's own clock, which a call cannot bring; the same for all statements of a list.
                (Bind::Now, _) => part.text("transaction_timestamp()"),
                (Bind::Earlier { step, column }, kind) => part.earlier(*step, *column, kind.clone()),
                (bind, kind) => part.slot(self.of(bind, kind), kind.clone()),
            };
            from = place.end;
        }
        part.text(&statement.sql[from..])
    }
}

/// A statement of the tool's; `told` if its rows are shown to somebody.
fn query(slots: &mut Slots, statement: &Statement, told: bool) -> Option<Query> {
    // Columns that come and go would be told under one another's names.
    if statement.star {
        return None;
    }
    let columns = statement.columns.iter().map(|column| {
        let json = column.json.as_deref().map(str::to_owned);
        let json = json.or((!told).then(|| "'null'".to_owned()));
        Some(Column { name: column.name.to_string(), json: json? })
    });
    Some(Query { columns: columns.collect::<Option<_>>()?, sql: slots.part(statement) })
}

/// A statement of a write, which has rows to count whatever it returns.
fn change(slots: &mut Slots, step: &Step, told: bool) -> Option<Query> {
    // A WITH that changes something cannot stand inside another.
    if step.statement.with {
        return None;
    }
    let mut changed = query(slots, &step.statement, told)?;
    if changed.columns.is_empty() {
        changed.sql = changed.sql.text("\nRETURNING true");
        changed.columns.push(Column { name: "changed".to_owned(), json: "'null'".to_owned() });
    }
    Some(changed)
}

fn session(slots: &mut Slots, plan: &Plan) -> Vec<(String, usize)> {
    match &plan.database {
        Database::Postgres(server) => {
            let settings = server.session.iter();
            settings.map(|(name, bind)| (name.clone(), slots.of(bind, &Type::TEXT))).collect()
        }
        Database::Sqlite(_) => Vec::new(),
    }
}

fn form(slots: &mut Slots, plan: &Plan, tool: &Tool, write: &Write) -> Option<Form> {
    let one_row = write.returns == WriteReturns::Row;
    match write.steps.as_slice() {
        [step] if !(step.may_change_nothing && one_row) => {
            declaration(slots, plan, tool, write, step).map(Form::One)
        }
        steps => list(slots, plan, tool, write, steps).map(Form::Several),
    }
}

fn declaration(
    slots: &mut Slots,
    plan: &Plan,
    tool: &Tool,
    write: &Write,
    step: &Step,
) -> Option<Declaration> {
    let told = write.returns != WriteReturns::Nothing;
    Some(Declaration {
        session: session(slots, plan),
        membership: plan.membership.as_ref().map(|membership| slots.part(membership)),
        access: tool.access.as_ref().map(|access| slots.part(access)),
        replay_access: write.replay_access.as_ref().map(|access| slots.part(access)),
        write: change(slots, step, told)?,
        returns: returns(write.returns),
        may_change_nothing: step.may_change_nothing,
        current: current(slots, write)?,
    })
}

fn list(slots: &mut Slots, plan: &Plan, tool: &Tool, write: &Write, steps: &[Step]) -> Option<List> {
    let shown = write.returns != WriteReturns::Nothing;
    if shown && write.result.is_none() {
        return None;
    }
    let told = |at: usize| shown && write.result == Some(at);
    let mut statements = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let query = change(slots, step, told(at))?;
        statements.push(ListStatement { query, may_change_nothing: step.may_change_nothing });
    }
    Some(List {
        session: session(slots, plan),
        membership: plan.membership.as_ref().map(|membership| slots.part(membership)),
        access: tool.access.as_ref().map(|access| slots.part(access)),
        replay_access: write.replay_access.as_ref().map(|access| slots.part(access)),
        statements,
        result: write.result.unwrap_or_default(),
        returns: returns(write.returns),
        current: current(slots, write)?,
    })
}

fn returns(returns: WriteReturns) -> Returns {
    match returns {
        WriteReturns::Row => Returns::Row,
        WriteReturns::Rows => Returns::Rows,
        WriteReturns::Nothing => Returns::Nothing,
    }
}

/// The query of the row as it is now, if there is one; `None` if it cannot be composed.
fn current(slots: &mut Slots, write: &Write) -> Option<Option<Query>> {
    match &write.current {
        Some(current) => query(slots, current, true).map(Some),
        None => Some(None),
    }
}

impl Composed {
    /// The values of one call; none if one of them does not fit, which the tool's steps then tell.
    pub(super) fn values(&self, writing: &Writing, reading: &Reading) -> Option<Vec<Slot>> {
        let context = writing.context(reading);
        let values = self.slots.iter().map(|(bind, kinds)| {
            let forms = kinds.iter().map(|kind| {
                let never = Timestamp::from_micros(0);
                match bound(bind, &context.given(bind), kind, never).ok()? {
                    Bound::Text(text) => Some((kind.clone(), text)),
                    Bound::Raw(_) => None,
                }
            });
            forms.collect::<Option<Vec<_>>>().map(Slot)
        });
        values.collect()
    }
}

impl ToSql for Slot {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let form = self.0.iter().find(|(known, _)| known == kind);
        let (_, text) = form.ok_or("a slot has no value of this type")?;
        let Some(text) = text else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        self.to_sql(kind, out)
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }
}
