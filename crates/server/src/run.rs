//! Serving calls by the plan. A write goes through `Contract::admit` (steps 2 to 5) and the ledger's `perform` (6 to
//! 12), whichever way it came in and whichever store it runs on: what the stores share is here, and each has a room.

mod behind;
mod context;
mod document;
mod listing;
mod operation;
mod postgres;
mod reading;
mod removal;
mod sqlite;
mod start;
mod store;
mod writing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use counterfoil_core::json::Value;
use counterfoil_core::{Call, Principal, Refusal, Reply, Revision, Sources, ToolName, ToolRevision, wire};

use crate::plan::{Kind, Plan, Read, Tool, Write};
use crate::tools::{Answer, Effect, Listed, Noted, Pending, ToolCall, Tools, UnknownTool};
use operation::Question;
use reading::Asking;
use removal::Remover;
use store::Store;
use writing::Writing;

pub use behind::Behind;
pub use postgres::{BehindError, behind_on_server};
pub use removal::{Gauge, Pace};
pub use sqlite::behind;
pub use start::StartError;

/// How long a caller is asked to wait while the server goes down and another comes up.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The tools of one plan over one database.
#[derive(Debug)]
pub struct Engine {
    plan: Arc<Plan>,
    store: Store,
    draining: AtomicBool,
    remover: Remover,
}

impl Tools for Engine {
    fn list(&self, principal: &Principal) -> Vec<Listed> {
        listing::list(&self.plan, principal)
    }

    fn effect(&self, name: &str) -> Option<Effect> {
        Some(match self.resolve(name).ok()? {
            Job::Write(_) | Job::Void => Effect::Write,
            Job::Read(..) | Job::Status => Effect::Read,
        })
    }

    fn ready(&self) -> Pending<'_, bool> {
        let draining = self.draining.load(Ordering::SeqCst);
        Box::pin(async move { !draining && self.store.ready().await })
    }

    fn call(&self, principal: Arc<Principal>, call: ToolCall) -> Pending<'_, Result<Answer, UnknownTool>> {
        Box::pin(async move {
            let job = self.resolve(&call.name)?;
            if self.draining.load(Ordering::SeqCst) {
                let busy = Refusal::busy(RETRY_AFTER);
                let busy = if let Job::Read(..) = job { busy.of_read() } else { busy };
                return Ok(Answer::Refused(busy));
            }
            let cancelled = call.cancelled.clone();
            tokio::select! {
                done = self.run(job, principal, call) => Ok(done.unwrap_or_else(Answer::Refused)),
                // Nobody reads the answer. The ledger drops what has not begun, and finishes what has.
                () = cancelled.cancelled() => Ok(Answer::Refused(Refusal::busy(RETRY_AFTER))),
            }
        })
    }
}

/// What a name asks for.
enum Job {
    Write(Target),
    Read(Arc<Tool>, Arc<Read>),
    Status,
    Void,
}

/// A write, and the revision it pins, if it does.
struct Target {
    tool: Arc<Tool>,
    write: Arc<Write>,
    pin: Option<Revision>,
}

impl Engine {
    /// What removal has done, and what is overdue.
    #[must_use]
    pub fn removal(&self) -> Gauge {
        self.remover.gauge()
    }

    /// Refuses every call from now on as `busy`; calls that have begun go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Finishes what was accepted and closes the database. Blocks until it is done.
    pub fn close(&self) {
        self.drain();
        self.store.close();
    }

    async fn run(&self, job: Job, principal: Arc<Principal>, call: ToolCall) -> Result<Answer, Refusal> {
        let arguments = call.arguments.unwrap_or(Value::Object(Vec::new()));
        match job {
            Job::Write(target) => self.write(target, &principal, &call.sources, arguments, &call.noted).await,
            Job::Read(tool, read) => self.read(principal, tool, read, arguments).await,
            Job::Status => self.status(&principal, arguments).await,
            Job::Void => self.void(&principal, arguments).await,
        }
    }

    fn resolve(&self, name: &str) -> Result<Job, UnknownTool> {
        match name {
            wire::OPERATION_STATUS => return Ok(Job::Status),
            wire::VOID_OPERATION => return Ok(Job::Void),
            _ => {}
        }
        let (bare, pin) = ToolRevision::split(name).map_err(|_| UnknownTool)?;
        let tool = self.plan.names.get(bare.as_str()).and_then(|at| self.plan.tools.get(*at));
        let tool = Arc::clone(tool.ok_or(UnknownTool)?);
        Ok(match &tool.kind {
            Kind::Read(read) if pin.is_some() && pin != read.revision => return Err(UnknownTool),
            Kind::Read(read) => Job::Read(Arc::clone(&tool), Arc::clone(read)),
            Kind::Write(write) => {
                let (tool, write) = (Arc::clone(&tool), Arc::clone(write));
                Job::Write(Target { tool, write, pin })
            }
        })
    }

    /// The order of a write call: `admit` is steps 2 to 5, `perform` steps 6 to 12.
    async fn write(
        &self,
        target: Target,
        principal: &Arc<Principal>,
        sources: &Sources,
        arguments: Value,
        noted: &OnceLock<Noted>,
    ) -> Result<Answer, Refusal> {
        let Target { tool, write, pin } = target;
        let call = Arc::new(write.contract.admit(principal, pin.as_ref(), sources, arguments)?);
        let (plan, name) = (Arc::clone(&self.plan), tool.name.clone());
        let writing = Writing { plan, tool, write, call: Arc::clone(&call) };
        let outcome = self.store.write(writing).await;
        let _first = noted.set(note(&name, &call, &outcome));
        outcome.map(|reply| told(&reply))
    }

    async fn read(
        &self,
        principal: Arc<Principal>,
        tool: Arc<Tool>,
        read: Arc<Read>,
        mut arguments: Value,
    ) -> Result<Answer, Refusal> {
        let _ignored = arguments.remove(wire::REQUEST_ID_ARGUMENT);
        if !principal.scopes.contains(&tool.scope) {
            return Err(Refusal::forbidden(tool.scope.as_str()).of_read());
        }
        let intent = read.schema.read(&arguments);
        let intent = intent.map_err(|fields| Refusal::invalid_arguments(fields).of_read())?;
        let asking = Asking { plan: Arc::clone(&self.plan), tool, read, principal, intent };
        self.store.read(asking).await.map(done).map_err(Refusal::of_read)
    }

    async fn status(&self, principal: &Arc<Principal>, arguments: Value) -> Result<Answer, Refusal> {
        let question = Question::read(&self.plan, principal, arguments)?;
        self.store.status(question).await.map(done)
    }

    async fn void(&self, principal: &Arc<Principal>, arguments: Value) -> Result<Answer, Refusal> {
        let question = Question::read(&self.plan, principal, arguments)?;
        self.store.void(question).await.map(done)
    }
}

fn done(structured: String) -> Answer {
    Answer::Done { text: structured.clone(), structured }
}

/// A replay's text begins with when it was committed: models see neither headers nor `_meta`.
fn told(reply: &Reply) -> Answer {
    let structured = reply.body();
    let text = if reply.replayed {
        let at = reply.committed_at;
        format!(
            "This change committed earlier, at {at}. This is its recorded result, not a fresh read.\n{structured}"
        )
    } else {
        structured.clone()
    };
    Answer::Done { structured, text }
}

fn note(tool: &ToolName, call: &Call, outcome: &Result<Reply, Refusal>) -> Noted {
    let (outcome, replayed) = match outcome {
        Ok(reply) => ("committed", reply.replayed),
        Err(refusal) => (refusal.code().as_str(), false),
    };
    let request_id = call.request_id.short();
    tracing::info!(tool = tool.as_str(), request_id, outcome, replayed, "write");
    Noted { tool: tool.to_string(), request_id: Some(request_id), outcome, replayed }
}
