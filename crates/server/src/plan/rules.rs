//! What a config must and should say beyond statements that prepare: errors that `serve` refuses to start on, and
//! warnings, worded "may".

use std::collections::BTreeSet;
use std::sync::LazyLock;

use counterfoil_core::{IdForm, Issuer};
use regex::Regex;

use super::probe::Change;
use super::sql::{Parameter, scan};
use super::statement::Checked;
use super::tool::Parts;
use super::{Bind, Planner};
use crate::config::{self, Spanned, Sql, WriteReturns};
use crate::diagnostics::{Diagnostic, Span};

/// A description that teaches the opposite of what makes retries safe.
static NEW_ID_EACH_TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let text = r"(?i)\b(new|fresh|unique|different)\b[^.]{0,40}\b(request[ _-]?id|id|key|uuid)\b[^.]{0,30}\b(each|every|per)\b[^.]{0,12}\b(call|request|try|attempt|time|invocation|retry)";
    Regex::new(text).ok()
});

impl Planner<'_> {
    pub(super) fn judge_read(
        &mut self,
        tool: &config::Tool,
        read: &config::Read,
        query: &Checked,
        access: Option<&Checked>,
    ) {
        if !query.binds(&Bind::Workspace) && !shared(tool) {
            self.must_bind_workspace(&read.sql, "read");
        }
        self.access_binds_workspace(tool, access);
        let used: Vec<&Checked> = access.into_iter().chain([query]).collect();
        self.inputs_are_used(tool, &used);
        self.outputs_exist(tool, &[query]);
    }

    pub(super) fn judge_write(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        self.access_binds_workspace(tool, parts.access.as_ref());
        self.bind_workspace(write.replay_access.as_ref(), parts.replay_access.as_ref(), "replay_access");
        self.bind_workspace(write.current.as_ref(), parts.current.as_ref(), "current");
        for (written, step) in write.statements.iter().zip(&parts.steps) {
            self.judge_step(tool, write, written, step);
        }
        if tool.access.is_none() && (parts.changes(Change::Update) || parts.changes(Change::Delete)) {
            let fault = Diagnostic::error("a tool that updates or deletes must declare `access`");
            let help = "add `access = \"SELECT 1 FROM … WHERE id = :id AND workspace_id = :workspace\"`";
            self.report.push(fault.at(tool.name.span.clone(), "").help(help));
        }
        self.returns_something(write, parts);
        self.inputs_are_used(tool, &parts.all().collect::<Vec<_>>());
        let mut results: Vec<&Checked> = parts.steps.iter().collect();
        results.extend(&parts.current);
        self.outputs_exist(tool, &results);
        self.doubts(tool, write, parts);
    }

    fn judge_step(
        &mut self,
        tool: &config::Tool,
        write: &config::Write,
        written: &config::Statement,
        step: &Checked,
    ) {
        if step.facts.changes.is_empty() {
            let fault = Diagnostic::error("a statement of `write` must be INSERT, UPDATE or DELETE");
            let help = "what only reads belongs into `access`, `current`, or a tool of its own";
            let _reported: Option<()> =
                self.fault(&written.sql, 0..written.sql.value.len(), fault.help(help));
            return;
        }
        let inserts = step.facts.changes.iter().all(|(change, _)| *change == Change::Insert);
        if !step.binds(&Bind::Workspace) && !(inserts && shared(tool)) {
            self.must_bind_workspace(&written.sql, "write");
        }
        if let (Some(name), true) = (&written.name, step.statement.columns.is_empty()) {
            let fault = Diagnostic::error("a named statement must return what later ones bind");
            self.report.push(fault.at(name.span.clone(), "").help("add RETURNING, or remove the name"));
        }
        if let Some(may) = written.may_change_nothing.as_ref().filter(|may| may.value)
            && step.binds_argument(&write.version.argument)
        {
            let fault = Diagnostic::error("the statement that holds the version condition must change a row");
            self.report.push(fault.at(may.span.clone(), "").help("remove `may_change_nothing` here"));
        }
    }

    pub(super) fn must_bind_workspace(&mut self, sql: &Sql, place: &str) {
        let fault = Diagnostic::error(format!("`{place}` does not bind `:workspace`"));
        let help = "add `AND workspace_id = :workspace`, so that no tenant reaches another's rows";
        let fault = match place {
            "read" | "write" => {
                fault.help(help).note("data that all tenants share: `shared = true` (for reads and INSERTs)")
            }
            _ => fault.help(help),
        };
        let _reported: Option<()> = self.fault(sql, 0..sql.value.len(), fault);
    }

    fn bind_workspace(&mut self, sql: Option<&Sql>, checked: Option<&Checked>, place: &str) {
        if let (Some(sql), Some(checked)) = (sql, checked)
            && !checked.binds(&Bind::Workspace)
        {
            self.must_bind_workspace(sql, place);
        }
    }

    fn access_binds_workspace(&mut self, tool: &config::Tool, access: Option<&Checked>) {
        self.bind_workspace(tool.access.as_ref(), access, "access");
        let several = issuers(self.config).len() > 1;
        if let (Some(sql), Some(access)) = (&tool.access, access)
            && several
            && self.config.auth.membership.is_none()
            && !access.binds(&Bind::Issuer)
        {
            self.must_bind_issuer(sql, "access");
        }
    }

    fn must_bind_issuer(&mut self, sql: &Sql, place: &str) {
        let fault =
            Diagnostic::error(format!("there are several issuers, and `{place}` does not bind `:issuer`"));
        let help = "the same subject at two issuers is two principals: compare the issuer too";
        let _reported: Option<()> = self.fault(sql, 0..sql.value.len(), fault.help(help));
    }

    fn returns_something(&mut self, write: &config::Write, parts: &Parts) {
        let returning = parts.steps.iter().any(|step| !step.statement.columns.is_empty());
        if !returning && write.returns != WriteReturns::Nothing {
            let fault = Diagnostic::error("this write returns a row, and no statement has RETURNING");
            let help = "add RETURNING, or write `returns = \"nothing\"`";
            self.report.push(fault.at(write.span.clone(), "").help(help));
        }
    }

    fn inputs_are_used(&mut self, tool: &config::Tool, statements: &[&Checked]) {
        for member in &tool.input.members {
            let name = &member.name;
            if !statements.iter().any(|statement| statement.binds_argument(name)) {
                let fault = Diagnostic::error(format!("the input `{}` is bound by no statement", name.value));
                self.report.push(
                    fault
                        .at(name.span.clone(), "")
                        .help(format!("bind it as `:{}`, or remove it", name.value)),
                );
            }
        }
    }

    fn outputs_exist(&mut self, tool: &config::Tool, results: &[&Checked]) {
        for (name, _) in &tool.output {
            let columns =
                || results.iter().flat_map(|result| &result.statement.columns).map(|column| &*column.name);
            if columns().all(|column| *column != *name.value) {
                let known: BTreeSet<String> = columns().map(|column| format!("`{column}`")).collect();
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                let fault = Diagnostic::error(format!("no result column is called `{}`", name.value));
                self.report.push(fault.at(name.span.clone(), "").help(format!("the result has {known}")));
            }
        }
    }

    /// A retired revision without a rule of its own is replayed under the tool's, which its arguments must fill.
    pub(super) fn access_fits(
        &mut self,
        tool: &config::Tool,
        retired: &config::Retired,
        arguments: &[String],
    ) -> bool {
        let Some(Ok(scanned)) = tool.access.as_ref().map(|sql| scan(sql)) else { return true };
        let missing = scanned.parameters.iter().find_map(|(parameter, _)| match parameter {
            Parameter::Plain(name) => {
                let known =
                    arguments.contains(name) || counterfoil_core::wire::RESERVED.contains(&name.as_str());
                (!known).then_some(name)
            }
            Parameter::Dotted(..) => None,
        });
        if let Some(name) = missing {
            let message = format!(
                "retired revision `{}` has no input `{name}`, which `access` binds",
                retired.revision.value
            );
            let fault = Diagnostic::error(message).at(retired.revision.span.clone(), "");
            self.report.push(fault.help("give it a rule of its own: `replay_access = \"SELECT 1 FROM …\"`"));
        }
        missing.is_none()
    }

    /// `[auth]`: somebody must be able to call, and issuers must be told apart.
    pub(super) fn callers(&mut self) {
        let auth = &self.config.auth;
        if auth.tokens.is_empty() && auth.stdio.is_none() {
            let fault =
                Diagnostic::error("nobody can call: there is no `[[auth.token]]` and no `[auth.stdio]`");
            self.report
                .push(fault.help("`counterfoil token new` makes a token and prints what to write here"));
        }
        let Some(sql) = &auth.membership else { return };
        let binds = scan(sql).is_ok_and(|s| s.parameters.iter().any(|(p, _)| p.bound_name() == ":issuer"));
        if issuers(self.config).len() > 1 && !binds {
            self.must_bind_issuer(sql, "membership");
        }
    }
}

/// Warnings.
impl Planner<'_> {
    fn doubts(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        self.doubt_version(tool, write, parts);
        self.doubt_replay(tool, write, parts);
        self.doubt_identity(tool, write, parts);
        self.doubt_description(tool.description.as_ref());
    }

    fn doubt(&mut self, span: &Span, message: String, help: &str) {
        self.report.push(Diagnostic::warning(message).at(span.clone(), "").help(help));
    }

    fn doubt_version(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        let argument = &write.version.argument;
        let versioned = parts.steps.iter().any(|step| step.binds_argument(argument));
        let inserts_only = !parts.changes(Change::Update) && !parts.changes(Change::Delete);
        let uuids = self.config.receipts.ids() == IdForm::Uuid;
        if versioned || inserts_only && uuids {
            return;
        }
        let span = tool.name.span.clone();
        if inserts_only {
            let message = format!(
                "`{}` may insert twice if a caller picks a new id, or one used before",
                tool.name.value
            );
            let help = "write `[receipts] request_ids = \"uuid\"`, or give the table a unique key of its own";
            return self.doubt(&span, message, help);
        }
        let message = format!(
            "`{}` has no version condition: a change may be based on what is no longer there",
            tool.name.value
        );
        let help = format!("add an input `{argument}` and `AND {} = :{argument}`", write.version.column);
        self.doubt(&span, message, &help);
    }

    /// What the tool itself takes out of its access rule's sight cannot be replayed under that rule.
    fn doubt_replay(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        if write.replay_access.is_some() {
            return;
        }
        let reads = parts.access.as_ref().map(|access| &access.facts.reads);
        let hides = |step: &Checked| {
            let tables = reads.into_iter().flatten().map(|(table, _)| table);
            let deletes =
                tables.clone().any(|table| step.facts.changes.contains(&(Change::Delete, table.clone())));
            deletes || reads.is_some_and(|reads| !reads.is_disjoint(&step.facts.sets))
        };
        if parts.steps.iter().any(hides) {
            let message = format!(
                "a retry of `{}` may be refused once it has committed: its success changes what `access` reads",
                tool.name.value
            );
            let help = "add `replay_access`, a rule that still holds afterwards";
            self.doubt(&tool.name.span.clone(), message, help);
        }
    }

    fn doubt_identity(&mut self, tool: &config::Tool, write: &config::Write, parts: &Parts) {
        let changes = parts.steps.iter().flat_map(|step| step.facts.changes.iter());
        let tables: BTreeSet<&String> = changes.map(|(_, table)| table).collect();
        for table in tables {
            if let Some(column) = self.probe.reusable_id(table) {
                let message = format!(
                    "`{table}.{column}` may name another row after a deletion: it is not AUTOINCREMENT"
                );
                let help = format!("declare `{column} INTEGER PRIMARY KEY AUTOINCREMENT`");
                self.doubt(&tool.name.span.clone(), message, &help);
            }
        }
        let column = &write.version.column;
        let versioned = parts.steps.iter().filter(|step| step.binds_argument(&write.version.argument));
        let tables: BTreeSet<String> =
            versioned.flat_map(|step| &step.facts.changes).map(|(_, table)| table.clone()).collect();
        for table in tables.iter().filter(|table| !self.probe.guarded(table, column)) {
            let message =
                format!("`{table}.{column}` may go back: nothing in the database refuses a smaller version");
            let help = format!(
                "CREATE TRIGGER {table}_{column}_rises BEFORE UPDATE ON {table} WHEN NEW.{column} <= OLD.{column} \
                 BEGIN SELECT RAISE(ABORT, '{column} must rise'); END"
            );
            self.report.push(Diagnostic::warning(message).at(tool.name.span.clone(), "").help(help));
        }
    }

    fn doubt_description(&mut self, description: Option<&Spanned<String>>) {
        let Some(description) = description else { return };
        if NEW_ID_EACH_TIME.as_ref().is_some_and(|wrong| wrong.is_match(description)) {
            let message =
                "this may teach the model a new id for every call, which makes each retry a new change";
            self.doubt(
                &description.span.clone(),
                message.into(),
                "say nothing of ids: how to use them is added for you",
            );
        }
    }
}

fn shared(tool: &config::Tool) -> bool {
    tool.shared.as_ref().is_some_and(|shared| shared.value)
}

/// Who vouches for those that may call.
fn issuers(config: &config::Config) -> BTreeSet<Option<Issuer>> {
    let tokens = config.auth.tokens.iter().map(|token| &token.credentials);
    let all = tokens.chain(&config.auth.stdio);
    all.map(|credentials| credentials.principal().map(|principal| principal.issuer)).collect()
}
