//! The way to a caller: messages it was not waiting for, and answers, each with what is to be written down once it
//! has left.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::flight::Flights;
use crate::journal::Recorded;

/// One message to a caller.
#[derive(Debug)]
pub(crate) enum Item {
    /// A notification, or a request of the upstream.
    Note(String),
    /// The answer to a request.
    Answer(Parcel),
}

/// An answer, and what is to be written once it has been delivered.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) text: String,
    pub(crate) receipt: Option<Receipt>,
}

/// Writes that an outcome was delivered.
pub(crate) struct Receipt {
    pub(crate) flights: Arc<Flights>,
    pub(crate) operation: Recorded,
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

impl Receipt {
    /// The answer begins to leave: whatever comes from now on may come from a caller that has read it.
    pub(crate) fn leaves(&self) {
        self.flights.leaves(self.operation.seq);
    }

    /// The answer has left. If that cannot be written the same call gets it once more, marked as replayed.
    pub(crate) async fn delivered(self) {
        self.flights.delivered(self.operation.clone()).await;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.flights.settled(self.operation.seq);
    }
}

impl Parcel {
    pub(crate) fn plain(text: String) -> Self {
        Self { text, receipt: None }
    }
}

/// Where messages to one caller go.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    to: mpsc::Sender<Item>,
    /// Nobody need be reading: what does not fit is dropped.
    lossy: bool,
}

impl Outlet {
    /// A way with a bound; who sends waits for room.
    pub(crate) fn new(to: mpsc::Sender<Item>) -> Self {
        Self { to, lossy: false }
    }

    /// A way that nobody may be at the end of.
    pub(crate) fn lossy(to: mpsc::Sender<Item>) -> Self {
        Self { to, lossy: true }
    }

    /// To nobody.
    pub(crate) fn nowhere() -> Self {
        Self::lossy(mpsc::channel(1).0)
    }

    /// Sends; a caller that is gone gets nothing.
    pub(crate) async fn send(&self, item: Item) {
        if self.lossy {
            let _dropped = self.to.try_send(item);
        } else {
            let _gone = self.to.send(item).await;
        }
    }

    /// Both lead to the same caller.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.to.same_channel(&other.to)
    }

    /// Until the caller is gone.
    pub(crate) async fn gone(&self) {
        self.to.closed().await;
    }
}
