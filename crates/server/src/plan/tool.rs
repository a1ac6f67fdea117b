//! From a tool as written to one that can run.

use std::sync::Arc;

use counterfoil_core::{Contract, Revision, Schema};

use super::contracts::schema;
use super::probe::Change;
use super::statement::{Checked, Place};
use super::{Kind, Planner, Read, Retired, Statement, Step, Tool, Version, Write};
use crate::config::{self, Input, Sql, WriteReturns};

/// The checked statements of a tool and what they say together.
pub(super) struct Parts {
    pub access: Option<Checked>,
    pub replay_access: Option<Checked>,
    pub current: Option<Checked>,
    pub steps: Vec<Checked>,
}

impl Parts {
    /// Does any statement change a table so?
    pub(super) fn changes(&self, change: Change) -> bool {
        self.steps.iter().any(|step| step.facts.changes.iter().any(|(made, _)| *made == change))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Checked> {
        self.access.iter().chain(&self.replay_access).chain(&self.current).chain(&self.steps)
    }
}

pub(super) fn names(input: &Input) -> Vec<String> {
    input.members.iter().map(|member| member.name.value.clone()).collect()
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
        let arguments = names(&tool.input);
        let place = Place {
            name: "read",
            arguments: &arguments,
            request_id: false,
            read_only: true,
            earlier: &[],
            output: &tool.output,
        };
        let query = self.statement(&read.sql, &place);
        let access = self.rule(tool.access.as_ref(), "access", &arguments, false);
        let (query, access) = (query?, access?);
        self.judge_read(tool, read, &query, access.as_ref());
        let schema = schema(&tool.input)?;
        let revision = read.revision.as_ref().map(|revision| revision.value.clone());
        let read = Read { revision, schema, query: query.statement, returns: read.returns };
        Some((access, Kind::Read(Arc::new(read))))
    }

    /// A statement that only asks; `Some(None)` where there is none.
    fn rule(
        &mut self,
        sql: Option<&Sql>,
        name: &'static str,
        arguments: &[String],
        request_id: bool,
    ) -> Option<Option<Checked>> {
        let Some(sql) = sql else { return Some(None) };
        let place = Place { name, arguments, request_id, read_only: true, earlier: &[], output: &[] };
        self.statement(sql, &place).map(Some)
    }

    fn write(&mut self, tool: &config::Tool, write: &config::Write) -> Option<(Option<Checked>, Kind)> {
        let arguments = names(&tool.input);
        let access = self.rule(tool.access.as_ref(), "access", &arguments, true);
        let replay_access = self.rule(write.replay_access.as_ref(), "replay_access", &arguments, true);
        let current = self.current(tool, write, &arguments);
        let steps = self.steps(tool, write, &arguments);
        let retired: Option<Vec<Retired>> = write.retired.iter().map(|r| self.retired(tool, r)).collect();
        let (access, replay_access, current) = (access?, replay_access?, current?);
        let parts = Parts { access, replay_access, current, steps: steps? };
        self.judge_write(tool, write, &parts);
        let contract = self.contract(tool, write)?;
        let version = version(tool, write, &parts);
        let alone =
            parts.steps.iter().flat_map(|step| &step.facts.written).any(|table| self.probe.deferrable(table));
        let destructive = parts.changes(Change::Update) || parts.changes(Change::Delete);
        let result = parts.steps.iter().rposition(|step| !step.statement.columns.is_empty());
        let planned = Write {
            contract,
            result: result.filter(|_| write.returns != WriteReturns::Nothing),
            returns: write.returns,
            // Without a condition, the same call under a new id acts again; a plain DELETE has nothing left to do.
            idempotent: version.is_some() || !parts.changes(Change::Insert) && !parts.changes(Change::Update),
            alone,
            destructive,
            current: parts.current.map(|current| current.statement),
            replay_access: parts.replay_access.map(|rule| rule.statement),
            retired: retired?,
            steps: planned_steps(write, parts.steps, version.as_ref()),
            version,
        };
        Some((parts.access, Kind::Write(Arc::new(planned))))
    }

    fn current(
        &mut self,
        tool: &config::Tool,
        write: &config::Write,
        arguments: &[String],
    ) -> Option<Option<Checked>> {
        let Some(sql) = &write.current else { return Some(None) };
        let place = Place {
            name: "current",
            arguments,
            request_id: true,
            read_only: true,
            earlier: &[],
            output: &tool.output,
        };
        self.statement(sql, &place).map(Some)
    }

    fn steps(
        &mut self,
        tool: &config::Tool,
        write: &config::Write,
        arguments: &[String],
    ) -> Option<Vec<Checked>> {
        let mut earlier: Vec<(String, usize, Vec<String>)> = Vec::new();
        let mut steps = Vec::new();
        for (at, written) in write.statements.iter().enumerate() {
            let place = Place {
                name: "write",
                arguments,
                request_id: true,
                read_only: false,
                earlier: &earlier,
                output: &tool.output,
            };
            let step = self.statement(&written.sql, &place);
            if let (Some(name), Some(step)) = (&written.name, &step) {
                let columns = step.statement.columns.iter().map(|column| column.name.to_string());
                earlier.push((name.value.clone(), at, columns.collect()));
            }
            steps.push(step);
        }
        steps.into_iter().collect()
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
        })
    }

    fn retired(&mut self, tool: &config::Tool, retired: &config::Retired) -> Option<Retired> {
        let arguments = names(&retired.input);
        let own = retired.replay_access.as_ref();
        let sql = own.or(tool.access.as_ref());
        let name = if own.is_some() { "replay_access" } else { "access" };
        if own.is_none() && !self.access_fits(tool, retired, &arguments) {
            return None;
        }
        let checked = self.rule(sql, name, &arguments, true)?;
        let rule: Option<Statement> = checked.map(|checked| {
            if let (Some(sql), true) = (own, !checked.binds(&super::Bind::Workspace)) {
                self.must_bind_workspace(sql, "replay_access");
            }
            checked.statement
        });
        Some(Retired { revision: retired.revision.value.clone(), access: rule })
    }
}

/// The version condition: a declared argument that a statement of the write binds.
fn version(tool: &config::Tool, write: &config::Write, parts: &Parts) -> Option<Version> {
    let argument = &write.version.argument;
    let declared = tool.input.members.iter().any(|member| member.name.value == *argument);
    let bound = parts.steps.iter().any(|step| step.binds_argument(argument));
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
