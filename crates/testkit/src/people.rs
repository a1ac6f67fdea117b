//! Who calls in tests.

use std::sync::Arc;

use counterfoil_core::{Issuer, Principal, Scope, Subject, Workspace};

/// The scope that writes need.
pub const WRITE: &str = "automation:write";
/// The scope that reads need.
pub const READ: &str = "automation:read";

/// A caller. Over a wire each is a token, or a server process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// alice in team-a.
    Alice,
    /// The same alice, after her write scope was removed.
    AliceReading,
    /// The same alice in team-b.
    AliceInB,
    /// bob in team-a.
    Bob,
    /// carol in team-b.
    Carol,
}

impl Who {
    /// Everybody.
    pub const ALL: [Who; 5] = [Who::Alice, Who::AliceReading, Who::AliceInB, Who::Bob, Who::Carol];

    /// The subject.
    #[must_use]
    pub fn subject(self) -> &'static str {
        match self {
            Who::Alice | Who::AliceReading | Who::AliceInB => "alice",
            Who::Bob => "bob",
            Who::Carol => "carol",
        }
    }

    /// The workspace.
    #[must_use]
    pub fn workspace(self) -> &'static str {
        match self {
            Who::Alice | Who::AliceReading | Who::Bob => "team-a",
            Who::AliceInB | Who::Carol => "team-b",
        }
    }

    /// What they may do.
    #[must_use]
    pub fn scopes(self) -> &'static [&'static str] {
        match self {
            Who::AliceReading => &[READ],
            Who::Alice | Who::AliceInB | Who::Bob | Who::Carol => &[READ, WRITE],
        }
    }

    /// The bearer token that stands for them over HTTP.
    #[must_use]
    pub fn token(self) -> String {
        format!("{self:?}-token").to_lowercase()
    }

    /// As authentication would make them; the issuer is "local".
    #[must_use]
    pub fn principal(self) -> Arc<Principal> {
        Arc::new(Principal {
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse(self.subject()).unwrap(),
            workspace: Workspace::parse(self.workspace()).unwrap(),
            scopes: self.scopes().iter().map(|scope| Scope::parse(scope).unwrap()).collect(),
        })
    }
}
