//! A client that costs the machine little: HTTP/1.1 by hand on kept connections, answers looked at, not parsed.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::store::Edit;

/// The token of the configuration that [`crate::mcp`] writes.
pub(crate) const TOKEN: &str = "bench-token";

/// One kept connection.
pub(crate) struct Connection {
    stream: TcpStream,
    host: SocketAddr,
    request: Vec<u8>,
    body: String,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(host: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let answer = Vec::with_capacity(8192);
        Ok(Self { stream, host, request: Vec::new(), body: String::new(), answer })
    }

    /// Calls `tool` and tells the answer's body, which is not a refusal.
    pub(crate) async fn call(&mut self, tool: &str, id: &str, edit: &Edit) -> anyhow::Result<&[u8]> {
        self.write(tool, id, edit);
        self.stream.write_all(&self.request).await?;
        let at = self.read().await?;
        let body = self.answer.get(at..).context("an answer broke off")?;
        ensure!(memmem::find(body, b"\"isError\":false").is_some(), "{}", String::from_utf8_lossy(body));
        Ok(body)
    }

    /// The request, as a client of revision 2026-07-28 sends it.
    fn write(&mut self, tool: &str, id: &str, edit: &Edit) {
        let Self { host, request, body, .. } = self;
        let Edit { id: row, expected_version, interval_minutes } = edit;
        *body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":\
             {{\"id\":{row},\"expected_version\":{expected_version},\"interval_minutes\":{interval_minutes},\
             \"request_id\":\"{id}\"}},\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
             \"io.modelcontextprotocol/clientCapabilities\":{{}},\
             \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"bench\",\"version\":\"1\"}}}}}}}}"
        );
        *request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes();
    }

    /// Reads one whole answer; tells where its body begins.
    async fn read(&mut self) -> anyhow::Result<usize> {
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the server closed the connection");
            }
            if let Some(end) = memmem::find(&self.answer, b"\r\n\r\n") {
                let whole = end + 4 + length(self.answer.get(..end).unwrap_or_default())?;
                if self.answer.len() >= whole {
                    return Ok(end + 4);
                }
            }
        }
    }
}

/// The length that a head of status 200 announces.
fn length(head: &[u8]) -> anyhow::Result<usize> {
    let head = std::str::from_utf8(head)?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    let named = |line: &'_ str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    };
    head.lines().find_map(named).context("an answer announces no length")
}
