//! Operations under way. One runs to its end whether or not its caller still waits; a same call that comes meanwhile
//! waits for the same end.

use std::collections::{HashMap, VecDeque};
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
    /// The last [`limits::LEFT`] outcomes that left, oldest first.
    left: Mutex<VecDeque<Left>>,
    /// Orders what comes and what leaves.
    ticks: AtomicU64,
}

/// An outcome that left.
struct Left {
    seq: i64,
    /// Of the calls that are the same.
    same: Box<str>,
    at: u64,
}

/// A caller's part in a flight.
pub(crate) struct Boarded {
    pub(crate) operation: Recorded,
    /// It began with this call; others are told what it was told.
    pub(crate) first: bool,
    /// What another call must equal to be the same.
    pub(crate) same: Box<str>,
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
            left: Mutex::default(),
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
        let (sending, same) = (wanted.operation.sending, wanted.same.as_str().into());
        let start = self.claim(Arc::new(wanted), came).await?;
        let operation = match &start {
            Start::New(Begun::Send(attempt)) => attempt.recorded(),
            Start::New(Begun::Stays(entry)) | Start::Known(entry) => Recorded::from(entry),
        };
        if let Some(landing) = self.under_way().get(&operation.seq) {
            return Ok(Boarded { operation, first: false, same, landing: landing.clone() });
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
        Ok(Boarded { operation, first: true, same, landing })
    }

    /// The order in which something came or left.
    pub(crate) fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::AcqRel)
    }

    /// A caller that has been told, and calls again at once, is not taken for one that still waits to be told: a call
    /// that came after an outcome began to leave waits until its delivery is written down.
    async fn claim(self: &Arc<Self>, wanted: Arc<Wanted>, came: u64) -> Result<Start, JournalError> {
        let mut leaving = self.leaving.subscribe();
        let start = self.claim_now(Arc::clone(&wanted), came).await?;
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
        self.claim_now(wanted, came).await
    }

    async fn claim_now(self: &Arc<Self>, wanted: Arc<Wanted>, came: u64) -> Result<Start, JournalError> {
        let (flights, now) = (Arc::clone(self), self.time.now());
        let claim = tokio::task::spawn_blocking(move || {
            flights.journal.claim_unless(now, &wanted, || flights.left_since(&wanted, came))
        });
        let claim = claim.await;
        Ok(match claim.unwrap_or_else(|_| Err(Problem::Failed.into()))? {
            Claim::New(begun) => Start::New(begun),
            Claim::Known(entry) => Start::Known(entry),
        })
    }

    /// The operation of the same call whose outcome left after this one came: its caller had not been told.
    fn left_since(&self, wanted: &Wanted, came: u64) -> Option<i64> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |left: &&Left| left.at > came && *left.same == *wanted.same;
        left.iter().rfind(same).filter(|_| !wanted.decided).map(|left| left.seq)
    }

    /// An outcome begins to leave.
    pub(crate) fn leaves(&self, seq: i64, same: &str) {
        let now = self.tick();
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() == limits::LEFT {
            left.pop_front();
        }
        left.push_back(Left { seq, same: same.into(), at: now });
        drop(left);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::new_id;
    use crate::journal::Told;
    use crate::operation::{Arguments, Operation};
    use crate::state::Event;
    use crate::time::SystemTimer;
    use crate::words::Tool;

    /// As long as a hash.
    fn same() -> String {
        "5".repeat(64)
    }

    fn wanted(decided: bool) -> Arc<Wanted> {
        let operation = Operation {
            id: new_id(SystemTimer::default().now()),
            server: ServerUrl::parse("http://127.0.0.1:8080/mcp").unwrap(),
            caller: Caller::of_server("alice").unwrap(),
            tool: Tool::parse("set_interval").unwrap(),
            arguments: Arguments::parse("{}").unwrap(),
            sending: Sending::Repeatable,
        };
        Arc::new(Wanted { operation, decided, same: same(), source: None })
    }

    /// A call that came before an outcome left is told it, however late the call is looked at; one that came after is
    /// a new intention, and so is one whose id decides.
    #[tokio::test]
    async fn when_a_call_came_decides_and_not_when_it_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(&folder.path().join("journal.db")).unwrap());
        let server = ServerUrl::parse("http://127.0.0.1:8080/mcp").unwrap();
        let time = Arc::new(SystemTimer::default());
        let flights = Arc::new(Flights::new(server, journal, time, Policy::default()));
        let (first, before) = (flights.tick(), flights.tick());
        let Start::New(Begun::Send(attempt)) = flights.claim(wanted(false), first).await.unwrap() else {
            unreachable!("nothing is known yet")
        };
        let (operation, now) = (attempt.recorded(), flights.time.now());
        let told = Told { answer: Some("{}".into()), ..Event::Replied.into() };
        flights.journal.answered(now, attempt, &told).unwrap();
        flights.leaves(operation.seq, &same());
        flights.delivered(operation.clone()).await;
        flights.settled(operation.seq);
        let after = flights.tick();
        for (decided, came, known) in [(false, before, true), (true, before, false), (false, after, false)] {
            let start = flights.claim(wanted(decided), came).await.unwrap();
            let seq = match start {
                Start::Known(entry) => Some(Recorded::from(&entry).seq),
                Start::New(_) => None,
            };
            assert_eq!(seq, known.then_some(operation.seq), "decided: {decided}, came: {came}");
            // What was begun here is told too, so that the next case stands alone.
            if let Some(open) =
                flights.journal.list(&crate::journal::Filter::default(), None, 1).unwrap().entries.first()
            {
                flights.delivered(Recorded::from(open)).await;
            }
        }
        for _ in 0..2 * limits::LEFT {
            flights.leaves(operation.seq, "another");
        }
        assert_eq!(flights.left.lock().unwrap().len(), limits::LEFT);
    }
}
