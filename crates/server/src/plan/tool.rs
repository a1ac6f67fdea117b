//! From a tool as written to one that can run.

use std::sync::Arc;

use counterfoil_core::{Contract, Revision, Schema};

use super::contracts::schema;
use super::probe::{Change, locks};
use super::rules::shared;
use super::sql::{Language, scan};
use super::statement::{Checked, Earlier, MustBind, Place};
use super::{Kind, Planner, Read, Retired, Step, Tool, Version, Write};
use crate::config::{self, Member, Sql, WriteReturns};

/// The checked statements of a write and what they say together. `None` is what is not written, or at fault.
pub(super) struct Parts {
    pub access: Option<Checked>,
    pub replay_access: Option<Checked>,
    pub current: Option<Checked>,
    pub steps: Vec<Option<Checked>>,
}

impl Parts {
    pub(super) fn steps(&self) -> impl Iterator<Item = &Checked> {
        self.steps.iter().flatten()
    }

    /// Does any statement change a table so?
    pub(super) fn changes(&self, change: Change) -> bool {
        self.steps().any(|step| step.facts.changes.iter().any(|(made, _)| *made == change))
    }

    /// Does any statement, or a trigger, change a table that is `so`?
    fn touches(&self, so: impl Fn(&str) -> bool) -> bool {
        self.steps().any(|step| step.facts.touched.iter().any(|(_, table)| so(table)))
    }

    /// Every step as it runs, if none is at fault.
    fn whole(self) -> Option<Vec<Checked>> {
        self.steps.into_iter().collect()
    }
}

/// A statement that is only asked whether it finds a row.
fn rule<'a>(name: &'static str, arguments: &'a [Member], request_id: bool) -> Place<'a> {
    Place {
        name,
        arguments: Some(arguments),
        request_id,
        read_only: true,
        must_bind: MustBind::Workspace,
        earlier: &[],
        output: None,
    }
}

impl Planner<'_> {
    pub(super) fn tool(&mut self, tool: &config::Tool) -> Option<Tool> {
        let kind = match &tool.kind {
            config::Kind::Read(read) => self.read(tool, read),
            config::Kind::Write(write) => self.write(tool, write),
        };
        let (access, kind) = kind?;
        Some(Tool {
            name: tool.name.value.clone(),
            title: tool.title.as_ref().map(|title| title.value.clone()),
            description: tool.description.as_ref().map(|description| description.value.clone()),
            scope: tool.scope.value.clone(),
            access: access.map(|access| access.statement),
            input: tool.input.json_schema(),
            kind,
        })
    }

    fn read(&mut self, tool: &config::Tool, read: &config::Read) -> Option<(Option<Checked>, Kind)> {
        let arguments = &tool.input.members;
        let must_bind = if shared(tool) { MustBind::Nothing } else { MustBind::Workspace };
        let place = Place { must_bind, output: Some(&tool.output), ..rule("read", arguments, false) };
        let query = self.statement(&read.sql, place);
        let access = self.asked(tool.access.as_ref(), rule("access", arguments, false));
        self.judge_read(tool, read, query.as_ref(), access.as_ref());
        let schema = schema(&tool.input)?;
        let revision = read.revision.as_ref().map(|revision| revision.value.clone());
        let read = Read { revision, schema, query: query?.statement, returns: read.returns };
        Some((access, Kind::Read(Arc::new(read))))
    }

    /// A statement that need not be there.
    fn asked(&mut self, sql: Option<&Sql>, place: Place<'_>) -> Option<Checked> {
        self.statement(sql?, place)
    }

    fn write(&mut self, tool: &config::Tool, write: &config::Write) -> Option<(Option<Checked>, Kind)> {
        let arguments = &tool.input.members;
        let current = Place { output: Some(&tool.output), ..rule("current", arguments, true) };
        let mut parts = Parts {
            access: self.asked(tool.access.as_ref(), rule("access", arguments, true)),
            replay_access: self.asked(write.replay_access.as_ref(), rule("replay_access", arguments, true)),
            current: self.asked(write.current.as_ref(), current),
            steps: self.steps(tool, write, arguments),
        };
        let retired: Vec<Retired> =
            write.retired.iter().filter_map(|r| self.retired(tool, write, r)).collect();
        self.judge_write(tool, write, &parts);
        let probe = self.probe?;
        let version = version(tool, write, &parts);
        let alone = parts.touches(|table| probe.deferrable(table));
        let (updates, deletes) = (parts.changes(Change::Update), parts.changes(Change::Delete));
        let returns = |step: &Option<Checked>| step.as_ref().is_some_and(Checked::returns);
        let result = parts.steps.iter().rposition(returns);
        let planned = Write {
            contract: self.contract(tool, write)?,
            result: result.filter(|_| write.returns != WriteReturns::Nothing),
            returns: write.returns,
            alone,
            destructive: updates || deletes,
            // Without a condition, the same call under a new id acts again; a plain DELETE has nothing left to do.
            idempotent: version.is_some() || !parts.changes(Change::Insert) && !updates,
            current: parts.current.take().map(|current| current.statement),
            replay_access: parts.replay_access.take().map(|rule| rule.statement),
            retired,
            version: version.clone(),
            steps: Vec::new(),
        };
        let access = parts.access.take();
        let steps = planned_steps(write, parts.whole()?, version.as_ref());
        Some((access, Kind::Write(Arc::new(Write { steps, ..planned }))))
    }

    fn steps(
        &mut self,
        tool: &config::Tool,
        write: &config::Write,
        arguments: &[Member],
    ) -> Vec<Option<Checked>> {
        let must_bind = match (shared(tool), self.holds(tool.access.as_ref())) {
            (false, false) => MustBind::Workspace,
            (true, false) => MustBind::WorkspaceUnlessInsert,
            (false, true) => MustBind::WorkspaceIfInsert,
            (true, true) => MustBind::Nothing,
        };
        let mut earlier: Vec<Earlier> = Vec::new();
        let mut steps = Vec::new();
        for (at, written) in write.statements.iter().enumerate() {
            let place = Place {
                read_only: false,
                must_bind,
                earlier: &earlier,
                output: Some(&tool.output),
                ..rule("write", arguments, true)
            };
            let step = self.statement(&written.sql, place);
            if let Some(name) = &written.name {
                let columns = |step: &Checked| {
                    step.facts
                        .columns
                        .iter()
                        .map(|column| (column.name.clone(), column.kind.clone()))
                        .collect()
                };
                let columns = step.as_ref().map(columns);
                earlier.push(Earlier { name: name.value.clone(), step: at, columns });
            }
            steps.push(step);
        }
        steps
    }

    /// Does the access rule keep the row from moving between reading and writing?
    fn holds(&self, access: Option<&Sql>) -> bool {
        let Some(access) = access.filter(|_| self.language() == Language::Postgres) else { return false };
        scan(Language::Postgres, access).is_ok_and(|scanned| locks(&scanned).is_some())
    }

    fn contract(&mut self, tool: &config::Tool, write: &config::Write) -> Option<Contract> {
        let retired =
            |retired: &config::Retired| Some((retired.revision.value.clone(), schema(&retired.input)?));
        let retired: Option<Vec<(Revision, Schema)>> = write.retired.iter().map(retired).collect();
        Some(Contract {
            ledger_name: tool.ledger_name().clone(),
            scope: tool.scope.value.clone(),
            revision: write.revision.value.clone(),
            schema: schema(&tool.input)?,
            retired: retired?,
            ids: self.config.receipts.ids(),
            windows: self.config.windows(tool),
            store_intent: self.config.stores_intent(tool),
        })
    }

    /// A retired revision has a rule of its own, or the tool's that a replay would be asked.
    fn retired(
        &mut self,
        tool: &config::Tool,
        write: &config::Write,
        retired: &config::Retired,
    ) -> Option<Retired> {
        let arguments = &retired.input.members;
        let revision = retired.revision.value.clone();
        if let Some(own) = &retired.replay_access {
            let access = self.statement(own, rule("replay_access", arguments, true))?;
            return Some(Retired { revision, access: Some(access.statement) });
        }
        let (name, sql) = match (&write.replay_access, &tool.access) {
            (Some(rule), _) => ("replay_access", rule),
            (None, Some(rule)) => ("access", rule),
            (None, None) => return Some(Retired { revision, access: None }),
        };
        if !self.rule_fits(name, sql, retired, arguments) {
            return None;
        }
        // The rule was judged as the tool's already: what is wrong with it has been said.
        let place = Place { must_bind: MustBind::Nothing, ..rule(name, arguments, true) };
        Some(Retired { revision, access: Some(self.statement(sql, place)?.statement) })
    }
}

/// The version condition: a declared argument that a statement of the write binds.
fn version(tool: &config::Tool, write: &config::Write, parts: &Parts) -> Option<Version> {
    let argument = &write.version.argument;
    let declared = tool.input.members.iter().any(|member| member.name.value == *argument);
    let bound = parts.steps().any(|step| step.binds_argument(argument));
    (declared && bound).then(|| Version { argument: argument.clone(), column: write.version.column.clone() })
}

fn planned_steps(write: &config::Write, steps: Vec<Checked>, version: Option<&Version>) -> Vec<Step> {
    let planned = write.statements.iter().zip(steps).map(|(written, checked)| Step {
        may_change_nothing: written.may_change_nothing.as_ref().is_some_and(|may| may.value),
        versioned: version.is_some_and(|version| checked.binds_argument(&version.argument)),
        statement: checked.statement,
    });
    planned.collect()
}
