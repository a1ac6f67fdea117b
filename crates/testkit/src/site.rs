//! What a server process is started on: a directory with a config, a schema and a database, gone when dropped.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{Database, Who};

/// The shipped example, as it is.
pub const EXAMPLE: &str = include_str!("../../../examples/automations/counterfoil.toml");
/// Its schema.
pub const EXAMPLE_SCHEMA: &str = include_str!("../../../examples/automations/schema.sql");

/// A directory that a server can be started on.
#[derive(Debug)]
pub struct Site {
    /// Its database, which a server makes unless it is there.
    pub database: Database,
}

/// Somebody with a token of their own.
#[derive(Debug, Clone, Copy)]
pub struct Person<'a> {
    /// The bearer token.
    pub token: &'a str,
    /// The subject.
    pub subject: &'a str,
    /// The workspace.
    pub workspace: &'a str,
    /// What they may do.
    pub scopes: &'a [&'a str],
}

impl Site {
    /// With `schema` beside the database that is not there yet.
    #[must_use]
    pub fn fresh(schema: &str) -> Self {
        let site = Self { database: Database::absent() };
        site.write("schema.sql", schema);
        site
    }

    /// The reference application's database, and the shipped example's tools for every [`Who`].
    #[must_use]
    pub fn automations() -> Self {
        let site = Self { database: Database::fresh() };
        site.write("schema.sql", EXAMPLE_SCHEMA);
        site.write("counterfoil.toml", &for_everybody(EXAMPLE));
        site
    }

    /// Writes a file; gives its path.
    #[must_use]
    pub fn config(&self, name: &str, text: &str) -> PathBuf {
        self.write(name, text);
        self.database.directory().join(name)
    }

    /// The config `counterfoil.toml`.
    #[must_use]
    pub fn main(&self) -> PathBuf {
        self.database.directory().join("counterfoil.toml")
    }

    /// A config with the tools of `tools`, in which `who` is the principal of a stdio server.
    #[must_use]
    pub fn stdio(&self, tools: &str, who: Who) -> PathBuf {
        let mut text = without_callers(tools);
        text.push_str("\n[auth.stdio]\n");
        credentials(&mut text, who.subject(), who.workspace(), who.scopes());
        self.config(&format!("stdio-{}.toml", who.token()), &text)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.database.directory().join(name), text).unwrap();
    }
}

/// `tools` with a token for every [`Who`] in place of its own callers.
#[must_use]
pub fn for_everybody(tools: &str) -> String {
    let mut text = without_callers(tools);
    for who in Who::ALL {
        let token = who.token();
        let person = Person {
            token: &token,
            subject: who.subject(),
            workspace: who.workspace(),
            scopes: who.scopes(),
        };
        token_of(&mut text, person);
    }
    text
}

/// `tools` with a token for each of `people` in place of its own callers.
#[must_use]
pub fn for_people(tools: &str, people: &[Person<'_>]) -> String {
    let mut text = without_callers(tools);
    people.iter().for_each(|person| token_of(&mut text, *person));
    text
}

/// Everything before the first caller.
fn without_callers(tools: &str) -> String {
    let end = ["[[auth.token]]", "[auth.stdio]"].iter().filter_map(|table| tools.find(table)).min();
    tools[..end.unwrap_or(tools.len())].to_owned()
}

fn token_of(text: &mut String, person: Person<'_>) {
    let hash = Sha256::digest(person.token).iter().fold(String::new(), |mut hash, byte| {
        write!(hash, "{byte:02x}").unwrap();
        hash
    });
    write!(text, "\n[[auth.token]]\nsha256 = \"{hash}\"\n").unwrap();
    credentials(text, person.subject, person.workspace, person.scopes);
}

fn credentials(text: &mut String, subject: &str, workspace: &str, scopes: &[&str]) {
    let (subject, workspace, scopes) = (json!(subject), json!(workspace), json!(scopes));
    writeln!(text, "subject = {subject}\nworkspace = {workspace}\nscopes = {scopes}").unwrap();
}
