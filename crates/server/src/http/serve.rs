//! The accept loop: so many connections at once, and none that waits for ever for its client.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::Edge;

/// Requests that one connection of HTTP/2 may have unanswered.
const STREAMS: u32 = 128;
/// Largest head of a request, in bytes: a token, and room for the rest.
const HEAD: usize = 64 << 10;
/// How long to leave a listener alone that has no more sockets to give.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown`; then until every begun call has answered, or the drain time is over.
///
/// While begun calls finish, new requests are still taken in, so that they are told that the server is busy rather
/// than turned away by a closed port.
///
/// # Errors
/// None today: a listener that fails for a moment is tried again.
pub async fn serve(
    listener: TcpListener,
    edge: Arc<Edge>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let drain = edge.options.drain;
    let connections = Connections {
        places: Arc::new(Semaphore::new(edge.options.connections)),
        tasks: TaskTracker::new(),
        closing: CancellationToken::new(),
        router: edge.router(),
        edge: Arc::clone(&edge),
    };
    let quiet = async {
        shutdown.await;
        if timeout(drain, edge.mcp.idle()).await.is_err() {
            tracing::warn!("begun calls are still running after the drain time");
        }
    };
    tokio::select! {
        () = connections.accept(&listener) => {}
        () = quiet => {}
    }
    drop(listener);
    connections.closing.cancel();
    connections.tasks.close();
    let _late = timeout(drain, connections.tasks.wait()).await;
    Ok(())
}

struct Connections {
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    closing: CancellationToken,
    router: Router,
    edge: Arc<Edge>,
}

impl Connections {
    /// Without a free place nobody is taken in: whoever knocks waits in the system's queue.
    async fn accept(&self, listener: &TcpListener) {
        while let Ok(place) = Arc::clone(&self.places).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let (edge, router, closing) = (Arc::clone(&self.edge), self.router.clone(), self.closing.clone());
            self.tasks.spawn(async move {
                connection(stream, edge, router, closing).await;
                drop(place);
            });
        }
    }
}

async fn connection(stream: TcpStream, edge: Arc<Edge>, router: Router, closing: CancellationToken) {
    let wait = edge.options.header_wait;
    let _best_effort = stream.set_nodelay(true);
    match edge.options.tls.as_ref() {
        None => spoken(stream, wait, router, closing).await,
        Some(certificates) => {
            let handshake = TlsAcceptor::from(certificates.current()).accept(stream);
            if let Ok(Ok(stream)) = timeout(wait, handshake).await {
                spoken(stream, wait, router, closing).await;
            }
        }
    }
}

/// HTTP over one connection, to its end; or until nothing has been asked for `wait`, whatever the client is about.
async fn spoken<S>(stream: S, wait: Duration, router: Router, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Activity::new();
    let counted = Arc::clone(&activity);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let asked = counted.begin();
        let answer = router.clone().call(request.map(Body::new));
        async move {
            let answer = answer.await;
            drop(asked);
            answer
        }
    });
    let builder = builder(wait);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut idle = pin!(activity.idle_for(wait));
    let mut closing = pin!(closing.cancelled());
    let mut told = false;
    loop {
        tokio::select! {
            _ended = &mut connection => return,
            () = &mut idle => return,
            () = &mut closing, if !told => {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder(wait: Duration) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(wait).max_buf_size(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(wait)
        .keep_alive_timeout(wait)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX));
    builder
}

/// How many requests of a connection are being answered, and since when there are none.
struct Activity {
    running: AtomicUsize,
    since: watch::Sender<Instant>,
}

/// A request that is being answered.
struct Asked(Arc<Activity>);

impl Activity {
    fn new() -> Arc<Self> {
        Arc::new(Self { running: AtomicUsize::new(0), since: watch::Sender::new(Instant::now()) })
    }

    fn begin(self: &Arc<Self>) -> Asked {
        self.running.fetch_add(1, Ordering::SeqCst);
        Asked(Arc::clone(self))
    }

    /// Resolves when nothing has run for `wait`. An answer that its client does not read counts as nothing.
    async fn idle_for(&self, wait: Duration) {
        let mut since = self.since.subscribe();
        loop {
            let until = *since.borrow_and_update() + wait;
            sleep_until(until).await;
            if since.has_changed().unwrap_or(false) {
                continue;
            }
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            let _ended = since.changed().await;
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.since.send_replace(Instant::now());
    }
}
