//! The same revision must mean the same schema: what a revision promised when it was first served, it keeps.

use std::collections::BTreeMap;

use counterfoil_core::json::write_string;
use counterfoil_core::{Revision, Schema, ToolName, json};

use super::probe::Probe;
use super::rules::issuers;
use super::statement::{MustBind, Place};
use super::{Bind, Planner, Statement};
use crate::config::{Input, Kind, Tool};
use crate::diagnostics::{Diagnostic, Span};

/// What one revision of a tool promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The tool's ledger name.
    pub tool: ToolName,
    /// Which revision.
    pub revision: Revision,
    /// Each top-level member and what it accepts, as a JSON object of texts.
    pub contract: String,
}

/// The schema of an input as the core reads it.
pub(super) fn schema(input: &Input) -> Option<Schema> {
    let text = input.json_schema().to_string();
    let value = json::parse(text.as_bytes(), json::Bounds::default()).ok()?;
    Schema::compile(&value).ok()
}

fn contract(input: &Input) -> String {
    let members = schema(input).map(|schema| schema.contract()).unwrap_or_default();
    let mut out = String::from("{");
    for (at, (name, text)) in members.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_string(&mut out, name);
        out.push(':');
        write_string(&mut out, text);
    }
    out.push('}');
    out
}

impl Planner<'_> {
    /// Every revision's contract; one that differs from what was recorded is an error that names the member.
    pub(super) fn contracts(&mut self) -> Vec<Pinned> {
        let recorded = match self.probe.map(Probe::contracts).transpose() {
            Ok(recorded) => recorded.unwrap_or_default(),
            Err(error) => {
                let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
                let fault = Diagnostic::error(format!("the ledger in this database cannot be used: {cause}"));
                self.report.push(fault.at(self.config.database.url.span.clone(), ""));
                return Vec::new();
            }
        };
        let mut pinned = Vec::new();
        for tool in &self.config.tools {
            for (revision, span, input) in revisions(tool) {
                let (tool_name, contract) = (tool.ledger_name().clone(), contract(input));
                let before = recorded
                    .iter()
                    .find(|(tool, known, _)| *tool == *tool_name.as_str() && *known == *revision.as_str());
                if let Some((_, _, before)) = before.filter(|(_, _, before)| *before != contract) {
                    self.report.push(changed(tool, revision, span, input, before, &contract));
                }
                pinned.push(Pinned { tool: tool_name, revision: revision.clone(), contract });
            }
        }
        pinned
    }

    /// Every caller must be known to be a member before anything of theirs is touched.
    pub(super) fn membership(&mut self) -> Option<Statement> {
        let sql = self.config.auth.membership.as_ref()?;
        let place = Place {
            name: "membership",
            arguments: None,
            request_id: false,
            read_only: true,
            must_bind: MustBind::Caller,
            earlier: &[],
            output: None,
        };
        let checked = self.statement(sql, place)?;
        if issuers(self.config).len() > 1 && !checked.binds(&Bind::Issuer) {
            self.must_bind_issuer(sql, &checked.scanned, "membership");
        }
        self.doubt_index(Some(sql), Some(&checked));
        Some(checked.statement)
    }
}

fn revisions(tool: &Tool) -> Vec<(&Revision, Span, &Input)> {
    let Kind::Write(write) = &tool.kind else { return Vec::new() };
    let live = (&write.revision.value, write.revision.span.clone(), &tool.input);
    let retired = write.retired.iter().map(|r| (&r.revision.value, r.revision.span.clone(), &r.input));
    std::iter::once(live).chain(retired).collect()
}

fn changed(
    tool: &Tool,
    revision: &Revision,
    span: Span,
    input: &Input,
    before: &str,
    now: &str,
) -> Diagnostic {
    let changes = differing(before, now);
    let named = changes.iter().map(|(name, how)| format!("`{name}` {}", how.said())).collect::<Vec<_>>();
    let message = format!(
        "revision `{revision}` of `{}` is not what it was when it was served: {}",
        tool.name.value,
        named.join(", ")
    );
    let mut diagnostic = Diagnostic::error(message).at(span, "");
    for member in &input.members {
        if let Some((_, how)) = changes.iter().find(|(name, _)| *name == member.name.value) {
            diagnostic = diagnostic.at(member.name.span.clone(), how.label());
        }
    }
    let help = "give the new schema a new revision, and declare the old one, as it was, under";
    diagnostic.help(format!("{help} `[[tools.{}.retired]]`", tool.name.value))
}

/// How a member differs.
enum Difference {
    Added,
    Removed,
    Changed {
        /// What it accepted.
        before: String,
    },
}

impl Difference {
    fn said(&self) -> &'static str {
        match self {
            Difference::Added => "was added",
            Difference::Removed => "was removed",
            Difference::Changed { .. } => "was changed",
        }
    }

    fn label(&self) -> String {
        match self {
            Difference::Changed { before } => format!("was: {before}"),
            Difference::Added | Difference::Removed => "was not there".into(),
        }
    }
}

/// Names whose texts differ, and how.
fn differing(before: &str, now: &str) -> Vec<(String, Difference)> {
    let read = |text: &str| serde_json::from_str::<BTreeMap<String, String>>(text).unwrap_or_default();
    let (before, now) = (read(before), read(now));
    let gone = before.iter().filter_map(|(name, text)| match now.get(name) {
        None => Some((name.clone(), Difference::Removed)),
        Some(now) if now != text => Some((name.clone(), Difference::Changed { before: text.clone() })),
        Some(_) => None,
    });
    let added = now.keys().filter(|name| !before.contains_key(*name));
    gone.chain(added.map(|name| (name.clone(), Difference::Added))).collect()
}
