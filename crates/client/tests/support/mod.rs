//! A server in a few lines that keeps receipts as a Counterfoil server does, and a way to it that loses what a test
//! wants lost.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support"
)]

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_client::client::Client;
use counterfoil_client::journal::{Entry, Filter, Journal};
use counterfoil_client::operation::{Arguments, Operation, Sending};
use counterfoil_client::retry::Policy;
use counterfoil_client::session::{Listed, Session};
use counterfoil_client::time::Time;
use counterfoil_client::transport::{Fault, Loss, Message, Pending, Response, Transport};
use counterfoil_client::words::{Caller, ServerUrl, Tool};
use counterfoil_core::json::{self, Bounds, Value};
use counterfoil_core::{Refusal, RequestId, Timestamp};

pub const SERVER: &str = "http://127.0.0.1:8080/mcp";
pub const ARGUMENTS: &str = "{\"id\": 1,  \"big\": 9007199254740993}";
pub const START: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

pub fn caller() -> Caller {
    Caller::of_server("alice").unwrap()
}

pub fn server() -> ServerUrl {
    ServerUrl::parse(SERVER).unwrap()
}

pub fn operation(id: &str) -> Operation {
    Operation {
        id: RequestId::parse(id).unwrap(),
        server: server(),
        caller: caller(),
        tool: Tool::parse("set_interval").unwrap(),
        arguments: Arguments::parse(ARGUMENTS).unwrap(),
        sending: Sending::Repeatable,
    }
}

pub fn journal(folder: &Path) -> Arc<Journal> {
    Arc::new(Journal::open(&folder.join("journal.db")).unwrap())
}

pub fn only(journal: &Journal) -> Entry {
    let page = journal.list(&Filter::default(), None, 10).unwrap();
    assert_eq!(page.entries.len(), 1, "{page:?}");
    page.entries.into_iter().next().unwrap()
}

/// Time that passes only in sleeps, all of them remembered. A wait for an answer sleeps until the answer is there.
#[derive(Default)]
pub struct TestTime {
    pub slept: Mutex<Vec<Duration>>,
    passed: Mutex<Duration>,
}

impl Time for TestTime {
    fn now(&self) -> Timestamp {
        START.plus(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        *self.passed.lock().unwrap()
    }

    fn sleep(&self, how_long: Duration) -> Pending<'_, ()> {
        Box::pin(async move {
            *self.passed.lock().unwrap() += how_long;
            self.slept.lock().unwrap().push(how_long);
        })
    }
}

/// What becomes of one call on its way.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Served and answered.
    Answered,
    /// No connection.
    NotSent,
    /// Lost on the way there.
    LostBefore,
    /// Served, and the answer lost.
    LostAfter,
    /// Never answered.
    Hangs,
    /// Refused by the server's tool.
    Refused(Refusal),
    /// Refused with a status, a JSON-RPC error and, perhaps, Retry-After.
    Edge(u16, Refusal, Option<Duration>),
    /// Somebody between answers.
    Status(u16),
    /// Answered by this.
    Says(String),
}

/// The table of one server, shared by all ways to it.
#[derive(Default)]
pub struct World {
    pub receipts: HashMap<String, String>,
    pub voided: Vec<String>,
    pub effects: usize,
    /// The bodies of all calls that left, in order.
    pub sent: Vec<String>,
    pub fates: VecDeque<Fate>,
    pub epoch: String,
}

#[derive(Clone)]
pub struct Way {
    pub world: Arc<Mutex<World>>,
    pub caller: Option<String>,
}

impl Way {
    pub fn new(fates: impl IntoIterator<Item = Fate>) -> Self {
        let world = World { fates: fates.into_iter().collect(), epoch: "one".into(), ..World::default() };
        Self { world: Arc::new(Mutex::new(world)), caller: Some("alice".into()) }
    }

    pub fn effects(&self) -> usize {
        self.world.lock().unwrap().effects
    }

    pub fn sent(&self) -> Vec<String> {
        self.world.lock().unwrap().sent.clone()
    }

    pub fn fates(&self, fates: impl IntoIterator<Item = Fate>) {
        self.world.lock().unwrap().fates = fates.into_iter().collect();
    }

    pub fn answer(&self, message: &Message) -> Result<Response, Fault> {
        self.http(message.body().as_bytes())
    }

    /// Answers a message as it stands in an HTTP request.
    pub fn http(&self, body: &[u8]) -> Result<Response, Fault> {
        let asked = json::parse(body, Bounds::default()).unwrap();
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let method = text(asked.get("method"));
        let params = asked.get("params").cloned().unwrap_or(Value::Null);
        let name = text(params.get("name"));
        let id = asked.get("id").map(json::text).unwrap_or_default();
        let result = |text: &str| said(200, format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{text}}}"));
        let body = std::str::from_utf8(body).unwrap();
        match (&*method, &*name) {
            ("server/discover", _) => {
                let caller =
                    self.caller.as_ref().map(|caller| format!("\"dev.counterfoil/caller\":\"{caller}\""));
                result(&format!("{{\"_meta\":{{{}}}}}", caller.unwrap_or_default()))
            }
            ("tools/call", built_in @ ("void_operation" | "operation_status")) => {
                let id = params.get("arguments").unwrap().get("operation").unwrap();
                result(&self.world.lock().unwrap().about(built_in, id.as_str().unwrap()))
            }
            ("tools/call", _) => {
                self.world.lock().unwrap().sent.push(body.to_owned());
                self.call(body, &id, result)
            }
            _ => panic!("unexpected: {body}"),
        }
    }

    fn call(
        &self,
        message: &str,
        id: &str,
        result: impl Fn(&str) -> Result<Response, Fault>,
    ) -> Result<Response, Fault> {
        let mut world = self.world.lock().unwrap();
        match world.fates.pop_front().unwrap_or(Fate::Answered) {
            Fate::Answered => result(&world.serve(message)),
            Fate::NotSent => Err(Fault::NotSent),
            Fate::LostBefore | Fate::Hangs => Err(Fault::Lost(Loss::Broken)),
            Fate::LostAfter => {
                world.serve(message);
                Err(Fault::Lost(Loss::Broken))
            }
            Fate::Refused(refusal) => result(&structured(&refusal.body(), true)),
            Fate::Edge(status, refusal, retry_after) => {
                let body = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32000,\"message\":\"no\",\"data\":{}}}}}",
                    refusal.body()
                );
                Ok(Response { status, body: body.into(), retry_after })
            }
            Fate::Status(status) => said(status, "no".into()),
            Fate::Says(text) => said(200, text),
        }
    }
}

fn said(status: u16, body: String) -> Result<Response, Fault> {
    Ok(Response { status, body: body.into(), retry_after: None })
}

fn structured(body: &str, is_error: bool) -> String {
    format!("{{\"content\":[],\"structuredContent\":{body},\"isError\":{is_error}}}")
}

impl World {
    /// Looks for a receipt, else has an effect; a read has none.
    fn serve(&mut self, body: &str) -> String {
        let call = json::parse(body.as_bytes(), Bounds::default()).unwrap();
        let params = call.get("params").unwrap();
        if params.get("name").and_then(Value::as_str) == Some("get_automation") {
            return structured("{\"result\":null}", false);
        }
        let id = params.get("_meta").unwrap().get("dev.counterfoil/request-id").and_then(Value::as_str);
        let id = id.expect("a call without a request id").to_owned();
        if self.voided.contains(&id) {
            return structured(&Refusal::request_id_voided().body(), true);
        }
        let replayed = self.receipts.contains_key(&id);
        if !replayed {
            self.effects += 1;
            self.receipts.insert(id.clone(), format!("{{\"version\":{}}}", self.effects + 1));
        }
        let mut out =
            format!("{{\"result\":{},\"request_id\":\"{id}\",\"replayed\":{replayed}", self.receipts[&id]);
        let _infallible = write!(out, ",\"committed_at\":\"{START}\",\"epoch\":\"{}\"}}", self.epoch);
        structured(&out, false)
    }

    fn about(&mut self, built_in: &str, id: &str) -> String {
        let receipt = self.receipts.get(id).cloned();
        if receipt.is_none() && built_in == "void_operation" {
            self.voided.push(id.to_owned());
        }
        let state = match &receipt {
            Some(_) => "committed",
            None if self.voided.iter().any(|voided| voided == id) => "voided",
            None => "not_committed_so_far",
        };
        let mut out = format!("{{\"tool\":\"set_interval\",\"request_id\":\"{id}\",\"state\":\"{state}\"");
        if let Some(result) = receipt {
            let _infallible = write!(out, ",\"committed_at\":\"{START}\",\"result\":{result}");
        }
        let _infallible = write!(out, ",\"epoch\":\"{}\",\"keep\":\"30d\",\"remember\":\"1y\"}}", self.epoch);
        structured(&out, false)
    }
}

impl Transport for Way {
    fn exchange<'a>(&'a self, message: &'a Message) -> Pending<'a, Result<Response, Fault>> {
        let next = self.world.lock().unwrap().fates.front().cloned();
        let call = matches!(message.name(), Some("set_interval" | "get_automation"));
        if call && matches!(next, Some(Fate::Hangs)) {
            let _lost = self.answer(message);
            return Box::pin(std::future::pending());
        }
        Box::pin(async move { self.answer(message) })
    }
}

/// A client of `way` over `journal`, as the caller the server names.
pub async fn client(way: &Way, journal: &Arc<Journal>, policy: Policy) -> (Client<Way>, Arc<TestTime>) {
    let time = Arc::new(TestTime::default());
    let identity = Caller::of_identity("test").unwrap();
    let session = Session::open(way.clone(), &*time, &identity).await.unwrap();
    (Client::new(session, server(), Arc::clone(journal), time.clone(), policy), time)
}

pub fn reading() -> Listed {
    Listed {
        name: Tool::parse("get_automation").unwrap(),
        request_ids: false,
        read_only: true,
        ..set_interval()
    }
}

pub fn set_interval() -> Listed {
    let schema = Value::Object(Vec::new());
    Listed { name: Tool::parse("set_interval").unwrap(), schema, request_ids: true, read_only: false }
}
