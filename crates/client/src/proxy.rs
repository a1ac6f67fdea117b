//! The proxy: an MCP server that an agent is pointed at instead of the real one.
//!
//! Everything passes through byte for byte, but for calls that change something: these are on disk before they are
//! sent, sent again only where the upstream knows them again, and told to their caller until they are known to have
//! been told. Read it in this order: [`raw`] and [`message`] (what passes, as it is spelled), [`catalogue`] (how often
//! a tool may be called), [`call`] (which operation a call is), [`answers`] (what its caller is told): all of them
//! pure; then [`conversation`] and [`calls`] (what becomes of each message), [`flight`] (operations under way),
//! [`link`] (the way to the upstream) and the two ways in.

mod answers;
mod call;
mod calls;
mod catalogue;
mod child;
mod conversation;
mod flight;
mod lines;
mod link;
mod listen;
mod message;
mod outlet;
pub(crate) mod raw;
mod relay;
mod stdio;
mod web;

use std::ffi::OsString;
use std::sync::Arc;

pub use catalogue::Told;

use crate::http::{Http, NoHttp};
use crate::journal::Journal;
use crate::retry::Policy;
use crate::time::Time;
use crate::token::Token;
use crate::words::{Caller, ServerUrl};

use child::Child;
use flight::Flights;
use link::{Link, Wire};
use outlet::Outlet;
use web::Web;

/// Where the upstream is.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// A server over Streamable HTTP, and the token for it.
    Web(ServerUrl, Option<Token>),
    /// A command that speaks over its standard input and output, and the name it has in the journal.
    Command(Vec<OsString>, ServerUrl),
}

/// One upstream, one identity, one journal; any number of callers.
pub struct Proxy {
    upstream: Upstream,
    identity: Caller,
    told: Told,
    flights: Arc<Flights>,
}

impl Proxy {
    /// A proxy for `upstream`, where we are `identity` unless it has a name for us. `told` are tools that take request
    /// ids without saying so.
    ///
    /// # Errors
    /// [`NoHttp`]: there is no way to such an upstream.
    pub fn new(
        upstream: Upstream,
        identity: Caller,
        told: Told,
        (journal, time, policy): (Arc<Journal>, Arc<dyn Time>, Policy),
    ) -> Result<Arc<Self>, NoHttp> {
        let server = match &upstream {
            Upstream::Web(server, token) => {
                Http::new(server, token.as_ref())?;
                server.clone()
            }
            Upstream::Command(_, name) => name.clone(),
        };
        let flights = Arc::new(Flights::new(server, journal, time, policy));
        Ok(Arc::new(Self { upstream, identity, told, flights }))
    }

    /// A conversation's own way to the upstream.
    fn link(&self, outlet: Outlet, shared: bool) -> Arc<Link> {
        let wire = match &self.upstream {
            Upstream::Command(command, _) => Wire::Child(Child::new(command.clone())),
            Upstream::Web(server, token) => match Http::new(server, token.as_ref()) {
                Ok(http) => Wire::Web(Web::new(http)),
                // It was made once before; what fails now answers that it cannot be reached.
                Err(_) => Wire::Child(Child::new(Vec::new())),
            },
        };
        Link::new(wire, Arc::clone(&self.flights.time), outlet, shared)
    }
}
