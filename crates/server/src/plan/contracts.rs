//! The same revision must mean the same schema: what a revision promised when it was first served, it keeps.

use counterfoil_core::json::write_string;
use counterfoil_core::{Revision, Schema, ToolName, json};

use super::statement::Place;
use super::{Planner, Statement};
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
        let recorded = self.probe.contracts();
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
    pub(super) fn membership(&mut self) -> Option<Option<Statement>> {
        let Some(sql) = &self.config.auth.membership else { return Some(None) };
        let place = Place {
            name: "membership",
            arguments: &[],
            request_id: false,
            read_only: true,
            earlier: &[],
            output: &[],
        };
        let checked = self.statement(sql, &place)?;
        for (bind, name) in [(super::Bind::Workspace, "workspace"), (super::Bind::Principal, "principal")] {
            if !checked.binds(&bind) {
                let fault = Diagnostic::error(format!("`membership` does not bind `:{name}`"));
                let help = "it must find a row for this principal in this workspace, and for no other";
                let _reported: Option<()> = self.fault(sql, 0..sql.value.len(), fault.help(help));
            }
        }
        Some(Some(checked.statement))
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
    let members = differing(before, now);
    let named = members.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let message =
        format!("revision `{revision}` of `{}` is not what it was: {named} changed", tool.name.value);
    let diagnostic = Diagnostic::error(message).at(span, "this revision has been served with another schema");
    let places = input.members.iter().filter(|member| members.contains(&member.name.value));
    let diagnostic =
        places.fold(diagnostic, |diagnostic, member| diagnostic.at(member.name.span.clone(), "changed"));
    diagnostic.help(format!(
        "give the new schema a new revision, and keep the old one as `[[tools.{}.retired]]`",
        tool.name.value
    ))
}

/// Names whose texts differ.
fn differing(before: &str, now: &str) -> Vec<String> {
    let read = |text: &str| {
        serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap_or_default()
    };
    let (before, now) = (read(before), read(now));
    let names = before.keys().chain(now.keys().filter(|name| !before.contains_key(*name)));
    names.filter(|name| before.get(*name) != now.get(*name)).cloned().collect()
}
