//! A wire between the ledger and the database that is cut at the worst moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_postgres::Config;

/// Where the wire is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// COMMIT is sent and does not arrive.
    BeforeCommit,
    /// COMMIT arrives; nobody is there to hear the answer.
    DuringCommit,
    /// COMMIT is answered, and the answer does not arrive.
    BeforeAnswer,
    /// The answer arrives, and then nothing works any more.
    AfterAnswer,
    /// Before the receipt's insertion arrives.
    BeforeReceipt,
}

/// A proxy on a free port that cuts some connections, counts round trips, and lives as long as this.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    left: Arc<AtomicUsize>,
    trips: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// In front of the server at `port`; cuts `times` connections at `cut`, and no more.
    pub async fn start(port: u16, cut: Cut, times: usize) -> Self {
        Self::marked(port, cut, cut.mark(), times).await
    }

    /// In front of the server at `port`, and cuts nothing.
    pub async fn whole(port: u16) -> Self {
        Self::start(port, Cut::BeforeCommit, 0).await
    }

    /// At `own`, in front of the server at `port`, and cuts nothing.
    pub async fn at(own: u16, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", own)).await.unwrap();
        Self::listening(listener, port, Cut::BeforeCommit, Cut::BeforeCommit.mark(), 0)
    }

    /// As [`Proxy::start`], where `mark` is what is looked for on its way to the server, in place of COMMIT.
    pub async fn marked(port: u16, cut: Cut, mark: &'static [u8], times: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        Self::listening(listener, port, cut, mark, times)
    }

    fn listening(listener: TcpListener, port: u16, cut: Cut, mark: &'static [u8], times: usize) -> Self {
        let own = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicUsize::new(times));
        let trips = Arc::<AtomicUsize>::default();
        let knife = Knife { cut, mark, left: Arc::clone(&left), trips: Arc::clone(&trips) };
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                drop(tokio::spawn(carry(client, server, knife.clone())));
            }
        });
        Self { port: own, left, trips, task }
    }

    /// `config`, but through the proxy.
    #[must_use]
    pub fn through(&self, config: &Config) -> Config {
        let mut through = Config::new();
        through.host("127.0.0.1").port(self.port);
        through.user(config.get_user().unwrap()).dbname(config.get_dbname().unwrap());
        through
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts that are still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }
}

impl Proxy {
    /// How often somebody has sent after an answer, on all connections together: round trips, and one more for each
    /// connection that was closed with a farewell.
    #[must_use]
    pub fn trips(&self) -> usize {
        self.trips.load(Ordering::SeqCst)
    }
}

/// What every connection needs to know.
#[derive(Debug, Clone)]
struct Knife {
    cut: Cut,
    mark: &'static [u8],
    left: Arc<AtomicUsize>,
    trips: Arc<AtomicUsize>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cut {
    /// What is looked for on its way to the server.
    fn mark(self) -> &'static [u8] {
        match self {
            Cut::BeforeCommit | Cut::DuringCommit | Cut::BeforeAnswer | Cut::AfterAnswer => b"; COMMIT\0",
            // Only the receipt's own insertion carries this in its parameters.
            Cut::BeforeReceipt => b"\"interval_minutes\":30,\"version\"",
        }
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, knife: Knife) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let take = |left: usize| left.checked_sub(1);
    let mut answered = true;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(1..) = read else { return };
                let sent = &up[..read.unwrap()];
                if std::mem::take(&mut answered) {
                    knife.trips.fetch_add(1, Ordering::SeqCst);
                }
                let marked = sent.windows(knife.mark.len()).any(|window| window == knife.mark);
                if marked && knife.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
                    return act(knife.cut, sent, client, server).await;
                }
                if server.write_all(sent).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Ok(1..) = read else { return };
                answered = true;
                if client.write_all(&down[..read.unwrap()]).await.is_err() { return }
            }
        }
    }
}

/// Both ends are closed when this returns.
async fn act(cut: Cut, sent: &[u8], mut client: TcpStream, mut server: TcpStream) {
    let mut answer = vec![0; 1 << 16];
    match cut {
        Cut::BeforeCommit | Cut::BeforeReceipt => {}
        Cut::DuringCommit => server.write_all(sent).await.unwrap(),
        Cut::BeforeAnswer => {
            server.write_all(sent).await.unwrap();
            let _answered = server.read(&mut answer).await.unwrap();
        }
        Cut::AfterAnswer => {
            server.write_all(sent).await.unwrap();
            let length = server.read(&mut answer).await.unwrap();
            client.write_all(&answer[..length]).await.unwrap();
        }
    }
}
