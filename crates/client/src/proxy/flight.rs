//! Operations under way. One runs to its end whether or not its caller still waits; a same call that comes meanwhile
//! waits for the same end.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::relay::Relay;
use crate::client::{Client, Report};
use crate::journal::{Begun, Claim, Entry, Journal, JournalError, Problem, Recorded, Wanted};
use crate::limits;
use crate::operation::Sending;
use crate::retry::Policy;
use crate::session::{Envelope, Session};
use crate::time::Time;
use crate::words::{Caller, ServerUrl};

/// What became of an operation: the client's report, and the upstream's last answer, if there was one.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) report: Result<Report, JournalError>,
    pub(crate) last: Option<Vec<u8>>,
}

/// The end of a flight, once there is one.
type Landing = watch::Receiver<Option<Arc<Landed>>>;

/// All operations under way of one proxy.
pub(crate) struct Flights {
    pub(crate) server: ServerUrl,
    pub(crate) journal: Arc<Journal>,
    pub(crate) time: Arc<dyn Time>,
    pub(crate) policy: Policy,
    under_way: Mutex<HashMap<i64, Landing>>,
    /// Finding an operation and beginning it is one step.
    claiming: tokio::sync::Mutex<()>,
    landed: AtomicU32,
    /// Outcomes that have left, and whose delivery is being written down.
    left: watch::Sender<HashSet<i64>>,
}

/// A caller's part in a flight.
pub(crate) struct Boarded {
    pub(crate) operation: Recorded,
    /// It began with this call; others are told what it was told.
    pub(crate) first: bool,
    landing: Landing,
}

/// How a flight begins.
enum Start {
    New(Begun),
    Known(Entry),
}

/// Every so many operations one step of compaction is made.
const COMPACT_EVERY: u32 = 64;

impl Flights {
    pub(crate) fn new(server: ServerUrl, journal: Arc<Journal>, time: Arc<dyn Time>, policy: Policy) -> Self {
        Self {
            server,
            journal,
            time,
            policy,
            under_way: Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
            landed: AtomicU32::new(0),
            left: watch::channel(HashSet::new()).0,
        }
    }

    /// Finds or begins the operation that a call is.
    ///
    /// # Errors
    /// The journal: nothing was sent.
    pub(crate) async fn board(
        self: &Arc<Self>,
        wanted: Wanted,
        caller: Caller,
        (relay, envelope): (Relay, Envelope),
    ) -> Result<Boarded, JournalError> {
        let _one_by_one = self.claiming.lock().await;
        let sending = wanted.operation.sending;
        let start = self.claim(Arc::new(wanted)).await?;
        let operation = match &start {
            Start::New(Begun::Send(attempt)) => attempt.recorded(),
            Start::New(Begun::Stays(entry)) | Start::Known(entry) => Recorded::from(entry),
        };
        if let Some(landing) = self.under_way().get(&operation.seq) {
            return Ok(Boarded { operation, first: false, landing: landing.clone() });
        }
        let (land, landing) = watch::channel(None);
        self.under_way().insert(operation.seq, landing.clone());
        let client = self.client(relay.clone(), caller, envelope, sending);
        let (flights, seq) = (Arc::clone(self), operation.seq);
        tokio::spawn(async move {
            let report = match start {
                Start::New(begun) => client.take_up(begun).await,
                Start::Known(entry) => client.resume(&entry).await,
            };
            land.send_replace(Some(Arc::new(Landed { report, last: relay.shared.last() })));
            flights.under_way().remove(&seq);
            flights.compact().await;
        });
        Ok(Boarded { operation, first: true, landing })
    }

    /// A caller that has been told, and calls again at once, is not taken for one that still waits to be told.
    async fn claim(&self, wanted: Arc<Wanted>) -> Result<Start, JournalError> {
        let mut left = self.left.subscribe();
        let start = self.claim_now(Arc::clone(&wanted)).await?;
        let seq = match &start {
            Start::New(_) => return Ok(start),
            Start::Known(entry) => Recorded::from(entry).seq,
        };
        // What left while the journal was asked may be this one.
        let may_have_left = left.has_changed().unwrap_or_default() || left.borrow().contains(&seq);
        if !may_have_left {
            return Ok(start);
        }
        let _written = left.wait_for(|left| !left.contains(&seq)).await.map(drop);
        self.claim_now(wanted).await
    }

    async fn claim_now(&self, wanted: Arc<Wanted>) -> Result<Start, JournalError> {
        let (journal, now) = (Arc::clone(&self.journal), self.time.now());
        let claim = tokio::task::spawn_blocking(move || journal.claim(now, &wanted)).await;
        Ok(match claim.unwrap_or_else(|_| Err(Problem::Failed.into()))? {
            Claim::New(begun) => Start::New(begun),
            Claim::Known(entry) => Start::Known(entry),
        })
    }

    /// An outcome has left. If that cannot be written the same call gets it once more, marked as replayed.
    pub(crate) async fn delivered(&self, operation: Recorded) {
        let seq = operation.seq;
        self.left.send_modify(|left| _ = left.insert(seq));
        let (journal, now) = (Arc::clone(&self.journal), self.time.now());
        let written = tokio::task::spawn_blocking(move || journal.delivered(now, &operation)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "a delivery could not be written down");
        }
        self.left.send_modify(|left| _ = left.remove(&seq));
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Landing>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, relay: Relay, caller: Caller, envelope: Envelope, sending: Sending) -> Client<Relay> {
        let ids = relay.link.ids();
        let session = Session::agreed(relay, caller, "", ids).in_envelope(envelope);
        let policy = match sending {
            Sending::Repeatable => self.policy,
            // Nobody else asks, so it may take its time.
            Sending::AtMostOnce => Policy { within: limits::PASS, one_try: limits::PASS, ..self.policy },
        };
        Client::new(session, self.server.clone(), Arc::clone(&self.journal), Arc::clone(&self.time), policy)
    }

    /// What has long ended leaves the journal, a bounded step at a time.
    async fn compact(&self) {
        if !self.landed.fetch_add(1, Ordering::Relaxed).is_multiple_of(COMPACT_EVERY) {
            return;
        }
        let before = self.time.now().minus(limits::KEEP);
        let journal = Arc::clone(&self.journal);
        let step = tokio::task::spawn_blocking(move || journal.compact(before, limits::COMPACT)).await;
        if let Ok(Err(error)) = step {
            tracing::warn!(%error, "the journal could not be compacted");
        }
    }

    /// Waits until nothing is under way, at most `within`.
    pub(crate) async fn drain(&self, within: Duration) {
        let landings: Vec<Landing> = self.under_way().values().cloned().collect();
        let all = async {
            for mut landing in landings {
                let _landed = landing.wait_for(Option::is_some).await.map(drop);
            }
        };
        tokio::select! {
            () = all => {}
            () = self.time.sleep(within) => {}
        }
    }
}

impl Boarded {
    /// Waits for the end.
    ///
    /// # Errors
    /// There is none: the flight itself failed.
    pub(crate) async fn landed(&mut self) -> Result<Arc<Landed>, JournalError> {
        let landed = self.landing.wait_for(Option::is_some).await;
        landed.ok().and_then(|landed| landed.clone()).ok_or_else(|| Problem::Failed.into())
    }
}
