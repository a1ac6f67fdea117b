//! What a plan of PostgreSQL's tells: which tables are read and changed in the end, views looked through.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::{Change, Unfit};
use super::Tables;

/// A plan, read.
#[derive(Debug, Default)]
pub(super) struct Explained {
    /// Every table.
    pub tables: Tables,
    pub changes: BTreeSet<(Change, String)>,
    /// Tables of which every row is looked at.
    pub whole: Tables,
}

impl Explained {
    pub(super) fn read(text: &str) -> Self {
        let mut explained = Self::default();
        explained.node(&serde_json::from_str(text).unwrap_or_default());
        explained
    }

    fn node(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.node(item)),
            Value::Object(members) => {
                self.table(value);
                members.values().filter(|member| !member.is_string()).for_each(|member| self.node(member));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn table(&mut self, node: &Value) {
        let text = |name: &str| node[name].as_str().unwrap_or_default();
        let (schema, name) = (text("Schema"), text("Relation Name"));
        if name.is_empty() {
            return;
        }
        let table = if schema == "public" { name.to_owned() } else { format!("{schema}.{name}") };
        self.tables.insert(table.clone());
        match (text("Node Type"), text("Operation")) {
            ("ModifyTable", operation) => self.change(operation, text("Conflict Resolution"), table),
            ("Seq Scan", _) => drop(self.whole.insert(table)),
            ("Index Scan" | "Index Only Scan", _) if node.get("Index Cond").is_none() => {
                self.whole.insert(table);
            }
            _ => {}
        }
    }

    fn change(&mut self, operation: &str, conflict: &str, table: String) {
        let change = match operation {
            "Update" => Change::Update,
            "Delete" => Change::Delete,
            _ => Change::Insert,
        };
        if conflict == "UPDATE" {
            self.changes.insert((Change::Update, table.clone()));
        }
        self.changes.insert((change, table));
    }

    /// The application's tables, and none else.
    pub(super) fn fit(&self) -> Result<(), Unfit> {
        for table in &self.tables {
            let (schema, name) = table.split_once('.').unwrap_or(("public", table));
            let message = if name.starts_with("counterfoil_") {
                format!("`{name}` is the ledger's own: no tool may touch it")
            } else if schema.starts_with("pg_") || schema == "information_schema" {
                format!("`{name}` is PostgreSQL's own: a tool reads and changes the application's tables")
            } else {
                continue;
            };
            let (words, through) = (vec![name.to_owned()], Some(name.to_owned()));
            return Err(Unfit { message, words, through, ..Unfit::default() });
        }
        Ok(())
    }
}
