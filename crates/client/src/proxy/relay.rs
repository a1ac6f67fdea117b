//! The client's way to the upstream of a conversation: one call of one caller, whose stream gets what comes before the
//! answer.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::link::{Link, Outgoing};
use super::outlet::Outlet;
use crate::transport::{Fault, Loss, Message, Pending, Response, Transport};

/// A call on its way.
#[derive(Clone)]
pub(crate) struct Relay {
    pub(crate) link: Arc<Link>,
    pub(crate) reply: Outlet,
    /// The revision that the caller's message says it speaks.
    pub(crate) version: Option<String>,
    /// The caller's progress token, as it is spelled.
    pub(crate) token: Option<String>,
    pub(crate) shared: Arc<Shared>,
}

/// What the call and whoever waits for it know of each other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    last: Mutex<Option<Vec<u8>>>,
    on_wire: Mutex<Option<u64>>,
    give_up: Notify,
}

impl Shared {
    /// The upstream's last answer, byte for byte.
    pub(crate) fn last(&self) -> Option<Vec<u8>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits no longer for the answer; the id by which the upstream knows the call, if it is on its way.
    pub(crate) fn give_up(&self) -> Option<u64> {
        let id = *self.on_wire.lock().unwrap_or_else(PoisonError::into_inner);
        if id.is_some() {
            self.give_up.notify_one();
        }
        id
    }

    fn set(&self, on_wire: Option<u64>, last: Option<Vec<u8>>) {
        *self.on_wire.lock().unwrap_or_else(PoisonError::into_inner) = on_wire;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

impl Relay {
    async fn pass(&self, message: &Message) -> Result<Response, Fault> {
        let outgoing = Outgoing {
            text: message.body().to_owned(),
            id: message.id().map(|id| id.to_string()).unwrap_or_default(),
            method: message.method().to_owned(),
            name: message.name().map(Into::into),
            version: self.version.clone(),
            token: self.token.clone(),
        };
        self.shared.set(message.id(), None);
        let answer = tokio::select! {
            answer = self.link.ask(&outgoing, &self.reply) => answer,
            () = self.shared.give_up.notified() => Err(Fault::Lost(Loss::Broken)),
        };
        self.shared.set(None, answer.as_ref().ok().map(|answer| answer.body.clone()));
        answer
    }
}

impl Transport for Relay {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(self.pass(message))
    }
}
