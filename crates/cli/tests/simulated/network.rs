//! A network that a seed makes unreliable, and the client's time on it.

use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use counterfoil_client::time::Time;
use counterfoil_client::transport::{Fault, Loss, Message, Pending, Response, Transport};
use counterfoil_core::{Refusal, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Notify;

use super::{START, Server};

/// What becomes of one request and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    NotSent,
    CutBefore,
    CutAfter,
    /// It arrives later; its sender is told that the connection broke.
    Delayed,
    /// It arrives later; its sender waits in vain.
    Held,
    /// Two copies at once, and an answer.
    Doubled,
    /// Answered, and a copy arrives later.
    Repeated,
    /// Served; an earlier answer comes instead.
    Overtaken,
    /// Served; half of the answer comes.
    Half,
    /// Somebody between says that it failed, and sends it on later.
    Failed,
    /// The server is busy.
    Busy,
    CrashBefore,
    CrashAfter,
}

const FATES: [(Fate, u32); 14] = [
    (Fate::Answered, 40),
    (Fate::NotSent, 5),
    (Fate::CutBefore, 5),
    (Fate::CutAfter, 10),
    (Fate::Delayed, 8),
    (Fate::Held, 6),
    (Fate::Doubled, 6),
    (Fate::Repeated, 6),
    (Fate::Overtaken, 4),
    (Fate::Half, 3),
    (Fate::Failed, 4),
    (Fate::Busy, 5),
    (Fate::CrashBefore, 3),
    (Fate::CrashAfter, 3),
];

/// One life's world.
pub(crate) struct World {
    pub(crate) random: StdRng,
    /// Requests that arrive later.
    air: Vec<String>,
    /// Answers of this session.
    answers: Vec<String>,
    /// A request is on its way, and is not answered yet.
    waiting: bool,
    /// That answer never comes.
    hung: bool,
    /// The client is gone: nothing that it still does has happened.
    pub(crate) crashed: bool,
    /// Nothing is lost any more.
    pub(crate) healed: bool,
    pub(crate) passed: Duration,
    /// Calls that left.
    pub(crate) sent: u32,
    /// Requests that came late.
    pub(crate) late: u32,
}

#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) server: Arc<Server>,
    world: Arc<Mutex<World>>,
    crash: Arc<Notify>,
}

impl Network {
    pub(crate) fn new(server: Arc<Server>, seed: u64) -> Self {
        let world = World {
            random: StdRng::seed_from_u64(seed),
            air: Vec::new(),
            answers: Vec::new(),
            waiting: false,
            hung: false,
            crashed: false,
            healed: false,
            passed: Duration::ZERO,
            sent: 0,
            late: 0,
        };
        Self { server, world: Arc::new(Mutex::new(world)), crash: Arc::default() }
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// True once in `n`.
    pub(crate) fn once_in(&self, n: u32) -> bool {
        self.world().random.random_range(0..n) == 0
    }

    /// The client is gone; whoever waits for [`Network::crashed`] hears of it.
    pub(crate) fn crash(&self) {
        self.world().crashed = true;
        self.crash.notify_one();
    }

    pub(crate) async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// The client begins anew, on new connections.
    pub(crate) async fn restart(&self) {
        // A crash that was noticed otherwise has left its word.
        self.crash.notify_one();
        self.crash.notified().await;
        let mut world = self.world();
        (world.crashed, world.waiting, world.hung) = (false, false, false);
        world.answers.clear();
    }

    /// Some of what is in the air arrives, in any order; with `all`, all of it.
    pub(crate) async fn arrive(&self, all: bool) {
        while let Some(body) = self.out_of_the_air(all) {
            let _to_nobody = self.server.serve(&body).await;
        }
    }

    fn out_of_the_air(&self, all: bool) -> Option<String> {
        let mut world = self.world();
        let waiting = world.air.len();
        if waiting == 0 || (!all && world.random.random_range(0..3) > 0) {
            return None;
        }
        world.late += 1;
        let which = world.random.random_range(0..waiting);
        Some(world.air.swap_remove(which))
    }

    async fn carry(&self, message: &Message) -> Result<Response, Fault> {
        self.arrive(false).await;
        let fate = self.fate(message);
        let served = self.at_the_server(fate, message.body()).await;
        match self.comes_back(fate, message, served) {
            Some(answer) => answer,
            None => pending().await,
        }
    }

    /// What the one who waits gets; `None` is nothing, ever.
    fn comes_back(&self, fate: Fate, message: &Message, served: String) -> Option<Result<Response, Fault>> {
        let answer = match fate {
            Fate::Answered | Fate::Doubled | Fate::Repeated => served,
            Fate::Busy => busy(message),
            Fate::Half => served[..served.len() / 2].to_owned(),
            Fate::Overtaken => match self.world().answers.last() {
                Some(earlier) => earlier.clone(),
                None => return Some(Err(Fault::Lost(Loss::Broken))),
            },
            Fate::NotSent => return Some(Err(Fault::NotSent)),
            Fate::CutBefore | Fate::CutAfter | Fate::Delayed => return Some(Err(Fault::Lost(Loss::Broken))),
            Fate::Failed => {
                return Some(Ok(Response { status: 503, body: b"no".to_vec(), retry_after: None }));
            }
            Fate::Held => {
                self.world().hung = true;
                return None;
            }
            Fate::CrashBefore | Fate::CrashAfter => {
                self.crash();
                return None;
            }
        };
        self.world().answers.push(answer.clone());
        Some(Ok(Response { status: 200, body: answer.into_bytes(), retry_after: None }))
    }

    fn fate(&self, message: &Message) -> Fate {
        let mut world = self.world();
        if message.method() != "tools/call" {
            return Fate::Answered;
        }
        world.sent += u32::from(message.name() != Some("void_operation"));
        if world.healed {
            return Fate::Answered;
        }
        let all: u32 = FATES.iter().map(|(_, weight)| weight).sum();
        let mut at = world.random.random_range(0..all);
        let fate = FATES.iter().find(|(_, weight)| match at.checked_sub(*weight) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        fate.unwrap().0
    }

    /// The answer, where the server was asked at once.
    async fn at_the_server(&self, fate: Fate, body: &str) -> String {
        match fate {
            Fate::Answered | Fate::CutAfter | Fate::Overtaken | Fate::Half | Fate::CrashAfter => {
                self.server.serve(body).await
            }
            Fate::Doubled => tokio::join!(self.server.serve(body), self.server.serve(body)).0,
            Fate::Repeated => {
                self.world().air.push(body.to_owned());
                self.server.serve(body).await
            }
            Fate::Delayed | Fate::Held | Fate::Failed => {
                self.world().air.push(body.to_owned());
                String::new()
            }
            Fate::CrashBefore => {
                let mut world = self.world();
                if world.random.random_bool(0.5) {
                    world.air.push(body.to_owned());
                }
                String::new()
            }
            Fate::NotSent | Fate::CutBefore | Fate::Busy => String::new(),
        }
    }
}

fn busy(message: &Message) -> String {
    let (id, body) = (message.id().unwrap(), Refusal::busy(Duration::from_millis(250)).body());
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{body},\"isError\":true}}}}"
    )
}

impl Transport for Network {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        Box::pin(async move {
            self.world().waiting = true;
            let answer = self.carry(message).await;
            self.world().waiting = false;
            answer
        })
    }
}

impl Time for Network {
    fn now(&self) -> Timestamp {
        Timestamp::parse(START).unwrap().plus(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        self.world().passed
    }

    /// A pause passes at once. A wait for an answer passes only if the answer never comes; the one who waits looks for
    /// the answer first, and so wakes this too.
    fn sleep(&self, how_long: Duration) -> Pending<'_, ()> {
        Box::pin(async move {
            poll_fn(|_| {
                let mut world = self.world();
                if world.waiting && !world.hung {
                    return Poll::Pending;
                }
                (world.waiting, world.hung) = (false, false);
                world.passed += how_long;
                Poll::Ready(())
            })
            .await;
            if !self.world().healed && self.once_in(60) {
                self.crash();
                pending::<()>().await;
            }
        })
    }
}
