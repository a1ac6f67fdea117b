//! The writer's queue on a scheduler that chooses who runs next: the real source, with the scheduler's locks.
//!
//! The random runs print their seed; `COUNTERFOIL_SEED=<seed>` runs them again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    dead_code,
    reason = "a test"
)]

#[path = "../src/queue.rs"]
mod queue;

/// What the queue takes its locks from.
mod sync {
    pub(crate) use std::sync::PoisonError;

    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use queue::{Queue, Rejected, drive};
use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex, mpsc};
use shuttle::{Config, Runner, thread};

/// A piece of work: who wants it, and the way back.
struct Work {
    name: usize,
    answer: mpsc::Sender<usize>,
}

/// The writer's side as the test sees it.
#[derive(Default)]
struct Log {
    committed: Mutex<Vec<usize>>,
    groups: AtomicUsize,
}

impl Log {
    /// Commits a group, and only then answers it.
    fn commit(&self, group: Vec<Work>, most: usize) {
        assert!(!group.is_empty() && group.len() <= most, "{} in a group", group.len());
        self.groups.fetch_add(1, Ordering::SeqCst);
        self.committed.lock().unwrap().extend(group.iter().map(|work| work.name));
        for work in group {
            work.answer.send(work.name).unwrap();
        }
    }
}

/// So many callers at once, a queue so long, groups so large; one of them closes, if any.
#[derive(Clone, Copy)]
struct Scene {
    callers: usize,
    capacity: usize,
    most: usize,
    closer: bool,
}

impl Scene {
    fn play(self) {
        let (queue, log) = (Arc::new(Queue::new(self.capacity)), Arc::new(Log::default()));
        let closing = Arc::new(AtomicBool::new(false));
        let writer = {
            let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
            thread::spawn(move || drive(&queue, self.most, |group| log.commit(group, self.most)))
        };
        let closer = self.closer.then(|| {
            let (queue, closing) = (Arc::clone(&queue), Arc::clone(&closing));
            thread::spawn(move || {
                closing.store(true, Ordering::SeqCst);
                queue.close();
                assert_eq!(push(&queue, 99).unwrap_err(), Rejected::Closed, "pushed after close");
            })
        });
        let callers: Vec<_> = (0..self.callers)
            .map(|name| {
                let (queue, log) = (Arc::clone(&queue), Arc::clone(&log));
                let closing = Arc::clone(&closing);
                thread::spawn(move || self.caller(name, &queue, &log, &closing))
            })
            .collect();
        let accepted = callers.into_iter().filter_map(|caller| caller.join().unwrap()).collect::<Vec<_>>();
        if let Some(closer) = closer {
            closer.join().unwrap();
        }
        queue.close();
        writer.join().unwrap();
        let mut committed = log.committed.lock().unwrap().clone();
        committed.sort_unstable();
        assert_eq!(committed, accepted, "accepted is committed, once, and nothing else is");
    }

    /// One caller; its name if its work was accepted.
    fn caller(self, name: usize, queue: &Queue<Work>, log: &Log, closing: &AtomicBool) -> Option<usize> {
        match push(queue, name) {
            Ok(answered) => {
                assert_eq!(answered.recv().expect("accepted and never answered"), name);
                assert!(log.committed.lock().unwrap().contains(&name), "answered before its commit");
                assert!(answered.recv().is_err(), "answered twice");
                Some(name)
            }
            Err(Rejected::Full) => {
                assert!(self.callers > self.capacity, "full with {} callers", self.callers);
                None
            }
            Err(Rejected::Closed) => {
                assert!(closing.load(Ordering::SeqCst), "closed by nobody");
                None
            }
        }
    }
}

fn push(queue: &Queue<Work>, name: usize) -> Result<mpsc::Receiver<usize>, Rejected> {
    let (answer, answered) = mpsc::channel();
    queue.push(Work { name, answer }).map(|()| answered)
}

fn explore(scheduler: impl Scheduler + 'static, scene: Scene) -> usize {
    Runner::new(scheduler, Config::default()).run(move || scene.play())
}

const SCENES: [Scene; 5] = [
    Scene { callers: 2, capacity: 8, most: 8, closer: false },
    Scene { callers: 2, capacity: 8, most: 1, closer: true },
    Scene { callers: 3, capacity: 8, most: 2, closer: true },
    Scene { callers: 3, capacity: 1, most: 1, closer: false },
    Scene { callers: 4, capacity: 2, most: 2, closer: true },
];

/// Every schedule of the smallest scenes, as far as the bound reaches.
#[test]
fn no_schedule_of_a_small_scene_breaks_the_protocol() {
    let smallest = [
        Scene { callers: 1, capacity: 1, most: 1, closer: false },
        Scene { callers: 1, capacity: 1, most: 1, closer: true },
        Scene { callers: 2, capacity: 1, most: 2, closer: false },
    ];
    for scene in smallest {
        let schedules = explore(DfsScheduler::new(Some(20_000), false), scene);
        println!("{} callers: {schedules} schedules", scene.callers);
        assert!(schedules > 0);
    }
}

/// Random and adversarial schedules of larger ones.
#[test]
fn no_random_schedule_breaks_the_protocol() {
    let seed = match std::env::var("COUNTERFOIL_SEED") {
        Ok(seed) => seed.parse().expect("the seed is a number"),
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    println!("COUNTERFOIL_SEED={seed}");
    for scene in SCENES {
        explore(RandomScheduler::new_from_seed(seed, 2_000), scene);
        explore(PctScheduler::new_from_seed(seed, 3, 2_000), scene);
    }
}

/// A writer that is gone gives up what waits, so that no caller waits for nobody.
#[test]
fn what_waits_for_a_writer_that_is_gone_is_given_up() {
    let play = || {
        let queue = Arc::new(Queue::new(8));
        let caller = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match push(&queue, 1) {
                Ok(answered) => assert!(answered.recv().is_err(), "answered by nobody"),
                Err(rejected) => assert_eq!(rejected, Rejected::Closed),
            })
        };
        queue.abandon();
        caller.join().unwrap();
    };
    Runner::new(DfsScheduler::new(Some(20_000), false), Config::default()).run(play);
}
