//! What a statement may bind, whichever store runs it.

use counterfoil_core::{Argument, Intent, Principal, RequestId};

use crate::plan::Bind;

/// Everything a statement may bind. `V` is a value as the store has it.
#[derive(Debug)]
pub(super) struct Context<'a, V> {
    pub principal: &'a Principal,
    pub request_id: Option<&'a RequestId>,
    pub intent: Option<&'a Intent>,
    /// First rows of the steps so far.
    pub earlier: &'a [Vec<V>],
}

/// What is bound in one place.
#[derive(Debug)]
pub(super) enum Given<'a, V> {
    /// From trusted context.
    Text(&'a str),
    /// The instant of the transaction.
    Now,
    Argument(&'a Argument),
    Earlier(&'a V),
    /// There is none: an argument that was left out, a row that did not come.
    Nothing,
}

impl<'a, V> Context<'a, V> {
    /// Of a statement that binds no operation: a read, or membership.
    pub(super) fn of(principal: &'a Principal) -> Self {
        Self { principal, request_id: None, intent: None, earlier: &[] }
    }

    pub(super) fn given(&self, bind: &Bind) -> Given<'a, V> {
        match bind {
            Bind::Workspace => Given::Text(self.principal.workspace.as_str()),
            Bind::Principal => Given::Text(self.principal.subject.as_str()),
            Bind::Issuer => Given::Text(self.principal.issuer.as_str()),
            Bind::RequestId => self.request_id.map_or(Given::Nothing, |id| Given::Text(id.as_str())),
            Bind::Now => Given::Now,
            Bind::Argument(name) => {
                let argument = self.intent.and_then(|intent| intent.argument(name));
                argument.map_or(Given::Nothing, Given::Argument)
            }
            Bind::Earlier { step, column } => {
                let value = self.earlier.get(*step).and_then(|row| row.get(*column));
                value.map_or(Given::Nothing, Given::Earlier)
            }
        }
    }
}
