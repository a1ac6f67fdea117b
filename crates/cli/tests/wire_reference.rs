//! The reference behaviours R1 to R12 against real server processes: over MCP Streamable HTTP, in both of its forms,
//! and over stdio, where every caller has a process of its own on the one database.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};

use counterfoil_testkit::site::Kind;
use counterfoil_testkit::suite::{Caller, REFERENCE, Stage, Subject, hold};
use counterfoil_testkit::{Answer, Ask, Http, Send, Server, Site, Stdio, Who, site};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

struct OverHttp {
    server: Server,
    site: Site,
    modern: bool,
}

impl OverHttp {
    fn fresh(kind: Kind, modern: bool) -> Self {
        let site = Site::automations_on(kind);
        Self { server: Server::start(Path::new(PROGRAM), &site.main()), site, modern }
    }
}

impl Subject for OverHttp {
    fn connect(&self, who: Who) -> Box<dyn Caller + '_> {
        Box::new(HttpCaller { http: self.server.connect(who), modern: self.modern })
    }

    fn stage(&self) -> &dyn Stage {
        &self.site.database
    }
}

struct HttpCaller {
    http: Http,
    modern: bool,
}

impl HttpCaller {
    fn send(&self, ask: &Ask) -> Send {
        Send { modern: self.modern, ..Send::from(ask) }
    }
}

impl Caller for HttpCaller {
    fn call(&mut self, ask: &Ask) -> Answer {
        let send = self.send(ask);
        self.http.call(&send).answer()
    }

    /// Nothing is answered before the commit: once there is something to read, it has committed.
    fn lose(mut self: Box<Self>, ask: &Ask) {
        let send = self.send(ask);
        self.http.begin(&send);
        self.http.answered();
    }
}

struct OverStdio {
    site: Site,
    configs: Vec<(Who, PathBuf)>,
}

impl OverStdio {
    fn fresh(kind: Kind) -> Self {
        let site = Site::automations_on(kind);
        let configs = Who::ALL.iter().map(|who| (*who, site.stdio(site::EXAMPLE, *who))).collect();
        let subject = Self { site, configs };
        // R1 looks at the receipts before anybody has called.
        drop(subject.connect(Who::Alice));
        subject
    }
}

impl Subject for OverStdio {
    fn connect(&self, who: Who) -> Box<dyn Caller + '_> {
        let (_, config) = self.configs.iter().find(|(other, _)| *other == who).unwrap();
        Box::new(StdioCaller(Stdio::start(Path::new(PROGRAM), config)))
    }

    fn stage(&self) -> &dyn Stage {
        &self.site.database
    }
}

struct StdioCaller(Stdio);

impl Caller for StdioCaller {
    fn call(&mut self, ask: &Ask) -> Answer {
        self.0.call(&ask.into()).answer()
    }

    /// The answer has left the server, nobody has looked at it, and the server is no more.
    fn lose(mut self: Box<Self>, ask: &Ask) {
        self.0.line(&Send::from(ask).body());
        let _lost = self.0.heard().unwrap();
        self.0.kill();
    }
}

#[test]
fn a_server_over_http_behaves_as_the_reference() {
    hold(&REFERENCE, 200, || Box::new(OverHttp::fresh(Kind::Sqlite, false)));
}

#[test]
fn a_server_over_http_without_sessions_behaves_as_the_reference() {
    hold(&REFERENCE, 200, || Box::new(OverHttp::fresh(Kind::Sqlite, true)));
}

#[test]
fn servers_over_stdio_behave_as_the_reference() {
    hold(&REFERENCE, 200, || Box::new(OverStdio::fresh(Kind::Sqlite)));
}

#[test]
fn servers_over_postgresql_behave_as_the_reference() {
    hold(&REFERENCE, 200, || Box::new(OverHttp::fresh(Kind::Postgres, true)));
    hold(&REFERENCE, 20, || Box::new(OverStdio::fresh(Kind::Postgres)));
}
