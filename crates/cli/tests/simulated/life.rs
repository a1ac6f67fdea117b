//! One life of a client: a few operations, crashes and restarts, and what it was told.

use std::panic::resume_unwind;
use std::sync::Arc;

use counterfoil_client::client::{Client, Outcome, Report};
use counterfoil_client::journal::{Edge, Entry, Filter, Journal, JournalError};
use counterfoil_client::operation::Arguments;
use counterfoil_client::retry::Policy;
use counterfoil_client::session::{Listed, Session};
use counterfoil_client::time::Time as _;
use counterfoil_client::words::{Caller, ServerUrl, Tool};
use counterfoil_core::json::Value;
use rand::RngExt as _;
use tempfile::TempDir;

use super::Server;
use super::network::Network;

/// One life, and what is left of it.
pub(crate) struct Life {
    pub(crate) seed: u64,
    pub(crate) row: i64,
    pub(crate) network: Network,
    folder: TempDir,
    journal: Arc<Journal>,
    policy: Policy,
    /// What the client's caller was told.
    pub(crate) told: Vec<Report>,
    pub(crate) rivals: Vec<String>,
    pub(crate) intended: usize,
    pub(crate) crashes: usize,
}

impl Life {
    /// Lives it to its end. In half of all lives the network heals before, and what is open is ended.
    pub(crate) async fn live(server: Arc<Server>, seed: u64, row: i64) -> Self {
        let network = Network::new(server, seed);
        let folder = crate::folder();
        let journal = journal(&network, &folder);
        let policy = Policy { tries: network.world().random.random_range(1..=4), ..Policy::default() };
        let (told, rivals) = (Vec::new(), Vec::new());
        let mut life =
            Self { seed, row, network, folder, journal, policy, told, rivals, intended: 0, crashes: 0 };
        let operations = life.network.world().random.random_range(1..=3);
        for _ in 0..operations {
            life.operation().await;
        }
        life.take_up().await;
        if life.network.once_in(2) {
            life.heal().await;
        }
        life.network.arrive(true).await;
        life
    }

    /// What the journal holds.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.journal.list(&Filter::default(), None, 100).unwrap().entries
    }

    /// One thing that somebody wants, and perhaps somebody else's edit before.
    async fn operation(&mut self) {
        if self.network.once_in(5) {
            self.rival().await;
        }
        let seen = self.network.server.version(self.row).await;
        if self.network.once_in(6) {
            self.rival().await;
        }
        let row = self.row;
        let (tool, arguments) = if self.network.once_in(2) {
            ("bump", format!("{{\"id\":{row}}}"))
        } else {
            let interval = self.network.world().random.random_range(5..1440);
            let edit =
                format!("{{\"id\":{row}, \"expected_version\":{seen}, \"interval_minutes\":{interval}}}");
            ("set_interval", edit)
        };
        self.intended += 1;
        let client = self.client().await;
        let operation = client.operation(&listed(tool), Arguments::parse(&arguments).unwrap(), None);
        self.wait_for(client.call(operation)).await;
    }

    async fn rival(&mut self) {
        let id = format!("rival-{}-{}", self.row, self.rivals.len());
        self.network.server.rival(self.row, &id).await;
        self.rivals.push(id);
    }

    /// Whoever comes back after a crash: resumes, voids, or leaves what is open.
    async fn take_up(&mut self) {
        for entry in self.open() {
            let choice = self.network.world().random.random_range(0..4);
            let client = self.client().await;
            match choice {
                0 | 1 => self.wait_for(client.resume(&entry)).await,
                2 => self.wait_for(client.void(&entry)).await,
                _ => {}
            }
        }
    }

    /// With a network that works, everything ends: by a resume, or by a void.
    async fn heal(&mut self) {
        self.network.world().healed = true;
        for entry in self.open() {
            let client = self.client().await;
            self.wait_for(client.resume(&entry)).await;
        }
        for entry in self.open() {
            let client = self.client().await;
            self.wait_for(client.void(&entry)).await;
        }
        assert!(self.open().is_empty(), "seed {}: still open: {:?}", self.seed, self.open());
    }

    fn open(&self) -> Vec<Entry> {
        let filter = Filter { open_only: true, ..Filter::default() };
        self.journal.list(&filter, None, 100).unwrap().entries
    }

    async fn client(&self) -> Client<Network> {
        let identity = Caller::of_identity("simulation").unwrap();
        let session = Session::open(self.network.clone(), &self.network, &identity).await.unwrap();
        let (journal, time) = (Arc::clone(&self.journal), Arc::new(self.network.clone()));
        let server = ServerUrl::parse("http://127.0.0.1:8080/mcp").unwrap();
        Client::new(session, server, journal, time, self.policy)
    }

    /// A report, within the bounds; or a crash and a restart.
    async fn wait_for(&mut self, work: impl Future<Output = Result<Report, JournalError>>) {
        let (since, sent) = (self.network.elapsed(), self.network.world().sent);
        let report = tokio::select! {
            biased;
            report = work => Some(report),
            () = self.network.crashed() => None,
        };
        let seed = self.seed;
        let sent = self.network.world().sent - sent;
        assert!(sent <= self.policy.tries, "seed {seed}: {sent} tries");
        let passed = self.network.elapsed() - since;
        assert!(passed <= self.policy.within, "seed {seed}: {passed:?}");
        let crashed = self.network.world().crashed;
        if let Some(report) = report.filter(|_| !crashed) {
            self.told.push(report.unwrap_or_else(|error| panic!("seed {seed}: {error}")));
            return;
        }
        self.crashes += 1;
        self.network.restart().await;
        self.journal = journal(&self.network, &self.folder);
    }
}

/// The journal, which now and then does not survive an event, before or after it is on disk.
fn journal(network: &Network, folder: &TempDir) -> Arc<Journal> {
    let journal = Journal::open(&folder.path().join("journal.db")).unwrap();
    let network = network.clone();
    let watch = move |_event: &'static str, _edge: Edge| {
        if !network.world().healed && network.once_in(40) {
            network.crash();
            // Without a word on standard error: the process is gone.
            resume_unwind(Box::new("crashed"));
        }
    };
    Arc::new(journal.watched(Arc::new(watch)))
}

fn listed(tool: &str) -> Listed {
    let schema = Value::Object(Vec::new());
    Listed { name: Tool::parse(tool).unwrap(), schema, request_ids: true, read_only: false }
}

/// The outcome in a word.
pub(crate) fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Replied(reply) if reply.replayed => "replayed",
        Outcome::Replied(_) => "fresh",
        Outcome::Plain(_) => "plain",
        Outcome::Committed(_) => "committed",
        Outcome::Refused(_) => "refused",
        Outcome::Away(_) => "away",
        Outcome::Voided => "voided",
        Outcome::Abandoned { .. } => "abandoned",
        Outcome::Unknown(_) => "unknown",
    }
}
