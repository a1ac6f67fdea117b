//! The keys of one issuer, fetched and kept: looked for again when an unknown key is named, at most so often; used a
//! while longer when the issuer does not answer; bounded in size and time, and never redirected.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use counterfoil::Clock;
use counterfoil_core::{Issuer, Timestamp};
use reqwest::{Client, StatusCode, Url, redirect};
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::algorithm::Algorithm;
use super::jwt::Trusted;
use super::key::{self, Key};

/// After so long the set is fetched again.
pub const FRESH: Duration = Duration::from_secs(600);
/// So long it is used while it cannot be fetched.
pub const STALE: Duration = Duration::from_secs(86_400);
/// The least time between two fetches, whoever asks.
pub const PAUSE: Duration = Duration::from_secs(10);
/// How long one fetch may take unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Largest set, in bytes.
pub const SIZE: usize = 256 << 10;
/// A token that names no key, or a name that several have, is tried with so many.
const TRIES: usize = 8;

/// Where a set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// At an address: `https`, or `http` on this machine.
    Url(String),
    /// In a file.
    File(PathBuf),
}

/// The HTTP client for key sets cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    /// TLS cannot be set up: there are no root certificates, say.
    #[error("TLS cannot be set up to fetch the keys of {0}")]
    Tls(Issuer, #[source] rustls::Error),
    /// The client cannot be made.
    #[error("the keys of {0} cannot be fetched")]
    Client(Issuer, #[source] reqwest::Error),
    /// It is no address.
    #[error("the address of the keys of {0} is none")]
    Address(Issuer),
}

/// Why no key was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has no such key.
    Unknown,
    /// Which keys the issuer has is not known.
    Unavailable,
}

/// The keys of one issuer.
pub(super) struct KeySet {
    issuer: Issuer,
    source: Fetch,
    patience: Duration,
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
    /// One fetch at a time.
    fetching: tokio::sync::Mutex<()>,
}

enum Fetch {
    Url(Client, Url),
    File(PathBuf),
}

#[derive(Default)]
struct Kept {
    keys: Arc<[Key]>,
    /// When the keys came.
    fetched: Option<Timestamp>,
    /// When they were last asked for.
    tried: Option<Timestamp>,
}

impl KeySet {
    pub(super) fn new(trusted: &Trusted, clock: Arc<dyn Clock>) -> Result<Self, NoClient> {
        let (issuer, patience) = (trusted.issuer.clone(), trusted.patience);
        let source = match &trusted.keys {
            Source::File(path) => Fetch::File(path.clone()),
            Source::Url(url) => {
                let url = Url::parse(url).map_err(|_| NoClient::Address(issuer.clone()))?;
                Fetch::Url(client(&issuer, patience)?, url)
            }
        };
        let (kept, fetching) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { issuer, source, patience, clock, kept, fetching })
    }

    /// The keys that may have made a signature by `algorithm` under the name `kid`.
    pub(super) async fn find(
        self: &Arc<Self>,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Key>, NoKey> {
        // Whoever comes while one fetches goes on with what is kept; without any, everybody waits.
        if self.older_than(STALE) || self.older_than(FRESH) && self.fetching.try_lock().is_ok() {
            self.update(FRESH).await;
        }
        if self.older_than(STALE) {
            return Err(NoKey::Unavailable);
        }
        let found = self.among(kid, algorithm);
        if !found.is_empty() {
            return Ok(found);
        }
        self.update(Duration::ZERO).await;
        let found = self.among(kid, algorithm);
        if found.is_empty() { Err(NoKey::Unknown) } else { Ok(found) }
    }

    /// On a task of its own: a caller that hangs up must not keep the keys from coming.
    async fn update(self: &Arc<Self>, age: Duration) {
        let set = Arc::clone(self);
        let task = tokio::spawn(async move {
            let _one = set.fetching.lock().await;
            set.refresh(age).await;
        });
        let _ended = task.await;
    }

    fn among(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<Key> {
        let keys = Arc::clone(&self.kept().keys);
        let named = |key: &&Key| kid.is_none() || key.kid.as_deref() == kid;
        keys.iter().filter(named).filter(|key| key.fits(algorithm)).take(TRIES).cloned().collect()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clock that has jumped back makes nothing fresh.
    fn older_than(&self, age: Duration) -> bool {
        let now = self.clock.now();
        self.kept().fetched.is_none_or(|at| now < at || now >= at.plus(age))
    }

    /// Fetches, unless it was tried a moment ago or is younger than `age`.
    async fn refresh(&self, age: Duration) {
        let now = self.clock.now();
        {
            let mut kept = self.kept();
            let lately = kept.tried.is_some_and(|at| now >= at && now < at.plus(PAUSE));
            let young = kept.fetched.is_some_and(|at| now >= at && now < at.plus(age));
            if lately || young {
                return;
            }
            kept.tried = Some(now);
        }
        let fetched = tokio::time::timeout(self.patience, self.source.fetch()).await;
        let keys = fetched.unwrap_or(Err("it takes too long")).and_then(|text| key::read_set(&text));
        match keys {
            Ok(keys) => {
                let mut kept = self.kept();
                kept.keys = keys.into();
                kept.fetched = Some(now);
            }
            Err(problem) => {
                tracing::warn!(issuer = self.issuer.as_str(), problem, "the issuer's keys were not fetched");
            }
        }
    }
}

impl Fetch {
    /// At most [`SIZE`] bytes. Errors hold nothing of what came.
    async fn fetch(&self) -> Result<Vec<u8>, &'static str> {
        match self {
            Fetch::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.unwrap_or(Err("the file cannot be read"))
            }
            Fetch::Url(client, url) => {
                let response = client.get(url.clone()).send().await.map_err(|_| "there is no answer")?;
                if response.status() != StatusCode::OK {
                    return Err("the answer is not 200 OK; redirects are not followed");
                }
                whole(response).await
            }
        }
    }
}

/// At most [`SIZE`] bytes of a file.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, &'static str> {
    let file = File::open(path).map_err(|_| "the file cannot be opened")?;
    let most = u64::try_from(SIZE).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).map_err(|_| "the file cannot be read")?;
    if text.len() > SIZE { Err(TOO_LARGE) } else { Ok(text) }
}

const TOO_LARGE: &str = "it is larger than 256 KiB";

async fn whole(mut response: reqwest::Response) -> Result<Vec<u8>, &'static str> {
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "the answer broke off")? {
        if chunk.len() > SIZE - text.len() {
            return Err(TOO_LARGE);
        }
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

fn client(issuer: &Issuer, patience: Duration) -> Result<Client, NoClient> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let tls = builder
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map_err(|error| NoClient::Tls(issuer.clone(), error))?
        .with_no_client_auth();
    let builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .connect_timeout(patience)
        .timeout(patience)
        .user_agent(concat!("counterfoil/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| NoClient::Client(issuer.clone(), error))
}
