//! The accident: a connection that ends after the server's answer was sent and before the client has read any of it.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};

use super::client::{ANSWER, PATIENCE};

/// Stands between one client and the server. What the client sends goes through; of the server's answer it waits for
/// the last byte, and then drops the client's connection.
pub(super) struct Cut {
    pub address: SocketAddr,
    thread: JoinHandle<io::Result<Vec<u8>>>,
}

impl Cut {
    pub(super) fn before(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let between = move || between(&listener, server);
        let thread = std::thread::Builder::new().name("cut".into()).spawn(between)?;
        Ok(Self { address, thread })
    }

    /// The answer that was on its way when the connection ended.
    pub(super) fn lost(self) -> anyhow::Result<String> {
        let answer = self.thread.join().map_err(|_| anyhow!("the cut connection broke off"))?;
        String::from_utf8(answer.context("the server did not answer")?).context("the answer is no text")
    }
}

fn between(listener: &TcpListener, server: SocketAddr) -> io::Result<Vec<u8>> {
    let (client, _) = listener.accept()?;
    let mut upstream = TcpStream::connect(server)?;
    upstream.set_read_timeout(Some(PATIENCE))?;
    let (mut from, mut to) = (client.try_clone()?, upstream.try_clone()?);
    let sending = std::thread::spawn(move || io::copy(&mut from, &mut to));
    let mut answer = Vec::new();
    // The client has asked the server to close the connection after its answer: its end is the answer's end.
    let whole = upstream.by_ref().take(ANSWER).read_to_end(&mut answer);
    client.shutdown(Shutdown::Both)?;
    let _sent = sending.join();
    whole.map(|_| answer)
}
