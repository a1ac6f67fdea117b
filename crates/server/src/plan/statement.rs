//! From a statement as written to a checked one: scanned, prepared by the database, every parameter resolved.

use std::ops::Range;

use counterfoil_core::wire;

use super::probe::{ColumnFact, Facts, Unfit};
use super::sql::{Parameter, scan};
use super::{Bind, Column, Planner, Statement};
use crate::config::{OutputType, Spanned, Sql};
use crate::diagnostics::Diagnostic;

/// What a statement may bind and do, by where it stands.
pub(super) struct Place<'a> {
    /// Its key in the file.
    pub name: &'static str,
    /// Arguments it may bind.
    pub arguments: &'a [String],
    /// `:request_id` may be bound.
    pub request_id: bool,
    /// It must not change anything.
    pub read_only: bool,
    /// Earlier named steps: name, place, columns.
    pub earlier: &'a [(String, usize, Vec<String>)],
    /// Types of result columns, as written.
    pub output: &'a [(Spanned<String>, Spanned<OutputType>)],
}

/// A checked statement and what the database said of it.
pub(super) struct Checked {
    pub statement: Statement,
    pub facts: Facts,
}

impl Checked {
    pub(super) fn binds(&self, bind: &Bind) -> bool {
        self.statement.binds.contains(bind)
    }

    pub(super) fn binds_argument(&self, name: &str) -> bool {
        self.binds(&Bind::Argument(name.into()))
    }
}

impl Planner<'_> {
    /// Checks one statement; `None` once the report says what is wrong with it.
    pub(super) fn statement(&mut self, sql: &Sql, place: &Place<'_>) -> Option<Checked> {
        let scanned = match scan(sql) {
            Ok(scanned) => scanned,
            Err((diagnostic, part)) => return self.fault(sql, part, diagnostic),
        };
        let resolved: Vec<_> = scanned
            .parameters
            .iter()
            .map(|(parameter, part)| {
                let bind = self.resolve(sql, parameter, part, place)?;
                Some((parameter.bound_name(), bind))
            })
            .collect();
        let facts = match self.probe.prepare(&scanned.sql) {
            Ok(facts) => facts,
            Err(Unfit { message, at }) => {
                let part = at.map_or(0..sql.value.len(), |at| at..at + 1);
                return self.fault(sql, part, Diagnostic::error(message));
            }
        };
        if place.read_only && !facts.read_only {
            let message = format!("`{}` may only read", place.name);
            return self.fault(sql, 0..sql.value.len(), Diagnostic::error(message));
        }
        let resolved: Vec<(String, Bind)> = resolved.into_iter().collect::<Option<_>>()?;
        let binds = self.in_order(sql, &facts, &resolved)?;
        let columns = self.columns(sql, &facts.columns, place)?;
        Some(Checked { statement: Statement { sql: scanned.sql.into(), binds, columns }, facts })
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
            Parameter::Plain(name) => plain(name, place),
            Parameter::Dotted(statement, column) => earlier(statement, column, place),
        };
        found.or_else(|diagnostic| self.fault(sql, part.clone(), diagnostic).ok_or(())).ok()
    }

    /// SQLite's own list of parameters has the last word: what it binds and we did not see is refused.
    fn in_order(&mut self, sql: &Sql, facts: &Facts, resolved: &[(String, Bind)]) -> Option<Vec<Bind>> {
        let bind =
            |name: &String| resolved.iter().find(|(known, _)| known == name).map(|(_, bind)| bind.clone());
        match facts.parameters.iter().map(bind).collect() {
            Some(binds) => Some(binds),
            None => {
                let fault = Diagnostic::error("this binds a parameter that is not written `:name`");
                self.fault(sql, 0..sql.value.len(), fault)
            }
        }
    }

    fn columns(&mut self, sql: &Sql, facts: &[ColumnFact], place: &Place<'_>) -> Option<Vec<Column>> {
        for (at, column) in facts.iter().enumerate() {
            if facts[..at].iter().any(|other| other.name == column.name) {
                let fault = Diagnostic::error(format!("two result columns are called `{}`", column.name));
                return self.fault(sql, 0..sql.value.len(), fault.help("name each with AS"));
            }
        }
        Some(facts.iter().map(|fact| column(fact, place)).collect())
    }
}

fn plain(name: &str, place: &Place<'_>) -> Result<Bind, Diagnostic> {
    match name {
        "workspace" => return Ok(Bind::Workspace),
        "principal" => return Ok(Bind::Principal),
        "issuer" => return Ok(Bind::Issuer),
        "now" => return Ok(Bind::Now),
        "request_id" if place.request_id => return Ok(Bind::RequestId),
        "request_id" => return Err(Diagnostic::error(format!("`{}` has no request id to bind", place.name))),
        _ => {}
    }
    if place.arguments.iter().any(|argument| argument == name) {
        return Ok(Bind::Argument(name.into()));
    }
    let known = place.arguments.iter().map(String::as_str).chain(wire::RESERVED);
    let near =
        known.map(|known| (strsim::jaro_winkler(known, name), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    let fault = Diagnostic::error(format!("there is no input `{name}`"));
    Err(match near {
        Some((score, near)) if score > 0.8 => fault.help(format!("did you mean `:{near}`?")),
        Some(_) | None => fault.help(format!("declare it: `input.{name} = {{ type = \"string\" }}`")),
    })
}

fn earlier(statement: &str, column: &str, place: &Place<'_>) -> Result<Bind, Diagnostic> {
    let Some((_, step, columns)) = place.earlier.iter().find(|(name, _, _)| name == statement) else {
        let fault = Diagnostic::error(format!("no earlier statement is called `{statement}`"));
        return Err(
            fault.help(format!("name it: `{{ name = \"{statement}\", sql = \"… RETURNING {column}\" }}`"))
        );
    };
    match columns.iter().position(|known| known == column) {
        Some(column) => Ok(Bind::Earlier { step: *step, column }),
        None => {
            let fault = Diagnostic::error(format!("statement `{statement}` returns no column `{column}`"));
            Err(fault.help(format!("add it to the RETURNING of `{statement}`")))
        }
    }
}

fn column(fact: &ColumnFact, place: &Place<'_>) -> Column {
    let output =
        place.output.iter().find(|(name, _)| name.value == fact.name).map(|(_, output)| output.value);
    let certain = match (output, fact.strict_type.as_deref()) {
        (Some(OutputType::Boolean), _) => Some("boolean"),
        (Some(OutputType::Integer), _) | (None, Some("INTEGER" | "INT")) => Some("integer"),
        (Some(OutputType::Number), _) | (None, Some("REAL")) => Some("number"),
        (Some(OutputType::String | OutputType::Bytes), _) | (None, Some("TEXT" | "BLOB")) => Some("string"),
        (Some(OutputType::Json), _) | (None, Some(_) | None) => None,
    };
    Column { name: fact.name.as_str().into(), output, certain }
}
