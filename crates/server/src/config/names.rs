//! Names: which are taken, which are reserved, and which may be given once.

use std::collections::BTreeMap;

use counterfoil_core::wire;

use super::bounds;
use crate::diagnostics::{Diagnostic, Report, Span};

/// Keys of a tool; one of them standing among its inputs was meant for the tool.
pub(super) const TOOL_KEYS: [&str; 20] = [
    "access",
    "current",
    "description",
    "input",
    "keep",
    "limit",
    "output",
    "read",
    "remember",
    "replay_access",
    "retired",
    "returns",
    "revision",
    "scope",
    "shared",
    "store_intent",
    "title",
    "version",
    "was",
    "write",
];

/// Checks that SQL can bind `:name` and that the name is free; says what is wrong with it otherwise.
pub(super) fn parameter_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if is_reserved(name) {
        Err("has a reserved name".to_owned())
    } else if name.is_empty() || name.len() > bounds::INPUT_NAME {
        Err(format!("must have from 1 to {} characters", bounds::INPUT_NAME))
    } else if !name.bytes().all(allowed) || name.starts_with(|c: char| c.is_ascii_digit()) {
        Err("may only hold A-Z a-z 0-9 _, and begin with no digit".to_owned())
    } else {
        Ok(())
    }
}

/// Whether SQL would take `name` for one of the names of the trusted context.
pub(super) fn is_reserved(name: &str) -> bool {
    wire::RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Names that may be given once, and where they were.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, Span>);

impl Names {
    /// Reports `name`, with `message`, if it was given before.
    pub(super) fn add(
        &mut self,
        report: &mut Report,
        name: &str,
        span: &Span,
        message: impl FnOnce() -> String,
    ) {
        match self.0.get(name) {
            Some(first) => report.push(
                Diagnostic::error(message()).at(span.clone(), "again here").at(first.clone(), "first here"),
            ),
            None => {
                self.0.insert(name.to_owned(), span.clone());
            }
        }
    }
}
