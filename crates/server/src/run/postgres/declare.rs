//! A tool of one statement, as the ledger composes it: access, write and receipt travel together. What its result
//! looks like is then made by the database; a tool with a column that the database writes otherwise than we do runs
//! step by step instead.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use bytes::BytesMut;
use counterfoil::postgres::{Column, Declaration, Declared, Ledger, Part, Query, Returns};
use counterfoil::tokio_postgres::types::{Format, IsNull, ToSql, Type};
use counterfoil_core::{Reading, Timestamp, ToolName};

use super::bind::{Bound, bound};
use crate::config::WriteReturns;
use crate::plan::{Bind, Database, Kind, Plan, Statement, Tool, Write};
use crate::run::writing::Writing;

/// The tools that are one statement.
pub(super) type Declarations = HashMap<ToolName, Arc<OneStatement>>;

/// A tool of one statement, composed.
#[derive(Debug)]
pub(super) struct OneStatement {
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
        let Some(declaration) = declaration(&mut slots, plan, tool, write) else { continue };
        match ledger.declare(&declaration).await {
            Ok(declared) => {
                let one = OneStatement { declared, slots: slots.0 };
                declarations.insert(tool.name.clone(), Arc::new(one));
            }
            Err(fault) => {
                let (tool, problem) = (tool.name.as_str(), fault.to_string());
                tracing::warn!(tool, problem, "a tool cannot be one statement, and runs step by step");
            }
        }
    }
    declarations
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
                // The database's own clock: a call cannot bring it.
                (Bind::Now, _) => part.text("statement_timestamp()"),
                (bind, kind) => part.slot(self.of(bind, kind), kind.clone()),
            };
            from = place.end;
        }
        part.text(&statement.sql[from..])
    }
}

fn declaration(slots: &mut Slots, plan: &Plan, tool: &Tool, write: &Write) -> Option<Declaration> {
    let [step] = write.steps.as_slice() else { return None };
    let one_row = write.returns == WriteReturns::Row;
    // A WITH that changes something cannot stand inside another.
    if step.statement.with || step.may_change_nothing && one_row {
        return None;
    }
    let mut session = Vec::new();
    if let Database::Postgres(server) = &plan.database {
        session.extend(server.session.iter().map(|(name, bind)| (name.clone(), slots.of(bind, &Type::TEXT))));
    }
    let told = write.returns != WriteReturns::Nothing;
    let query = |slots: &mut Slots, statement: &Statement, told: bool| {
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
    };
    let mut changed = query(slots, &step.statement, told)?;
    if changed.columns.is_empty() {
        changed.sql = changed.sql.text("\nRETURNING true");
        changed.columns.push(Column { name: "changed".to_owned(), json: "'null'".to_owned() });
    }
    let current = match &write.current {
        Some(current) => Some(query(slots, current, true)?),
        None => None,
    };
    Some(Declaration {
        membership: plan.membership.as_ref().map(|membership| slots.part(membership)),
        access: tool.access.as_ref().map(|access| slots.part(access)),
        replay_access: write.replay_access.as_ref().map(|access| slots.part(access)),
        write: changed,
        returns: match write.returns {
            WriteReturns::Row => Returns::Row,
            WriteReturns::Rows => Returns::Rows,
            WriteReturns::Nothing => Returns::Nothing,
        },
        may_change_nothing: step.may_change_nothing,
        current,
        session,
    })
}

impl OneStatement {
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
