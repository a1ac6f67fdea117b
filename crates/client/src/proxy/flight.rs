//! Operations under way. One runs to its end whether or not its caller still waits; a same call that comes meanwhile
//! waits for the same end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
    /// Outcomes that are leaving, whose delivery is not written down yet, and since when.
    leaving: watch::Sender<HashMap<i64, u64>>,
    /// Orders what comes and what leaves.
    ticks: AtomicU64,
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
            leaving: watch::channel(HashMap::new()).0,
            ticks: AtomicU64::new(0),
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
        came: u64,
    ) -> Result<Boarded, JournalError> {
        let _one_by_one = self.claiming.lock().await;
        let sending = wanted.operation.sending;
        let start = self.claim(Arc::new(wanted), came).await?;
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

    /// The order in which something came or left.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::AcqRel)
    }

    /// A caller that has been told, and calls again at once, is not taken for one that still waits to be told: a call
    /// that came after an outcome began to leave waits until its delivery is written down.
    async fn claim(&self, wanted: Arc<Wanted>, came: u64) -> Result<Start, JournalError> {
        let mut leaving = self.leaving.subscribe();
        let start = self.claim_now(Arc::clone(&wanted)).await?;
        let seq = match &start {
            Start::New(_) => return Ok(start),
            Start::Known(entry) => Recorded::from(entry).seq,
        };
        // What left while the journal was asked may be this one.
        let left = leaving.has_changed().unwrap_or_default();
        let leaves = leaving.borrow().get(&seq).is_some_and(|since| *since < came);
        if !left && !leaves {
            return Ok(start);
        }
        let told = |leaving: &HashMap<i64, u64>| leaving.get(&seq).is_none_or(|since| *since >= came);
        let _written = leaving.wait_for(told).await.map(drop);
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

    /// An outcome begins to leave.
    pub(crate) fn leaves(&self, seq: i64) {
        let now = self.tick();
        self.leaving.send_modify(|leaving| _ = leaving.insert(seq, now));
    }

    /// An outcome has left.
    pub(crate) async fn delivered(&self, operation: Recorded) {
        let (journal, now) = (Arc::clone(&self.journal), self.time.now());
        let written = tokio::task::spawn_blocking(move || journal.delivered(now, &operation)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(%error, "a delivery could not be written down");
        }
    }

    /// Its delivery is written down, or it never left.
    pub(crate) fn settled(&self, seq: i64) {
        self.leaving.send_if_modified(|leaving| leaving.remove(&seq).is_some());
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
