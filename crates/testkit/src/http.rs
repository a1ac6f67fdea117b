//! The smallest HTTP client that can be cut off anywhere.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::server::PATIENCE;
use crate::wire::MODERN;
use crate::{Send, Told};

/// One connection of one caller.
#[derive(Debug)]
pub struct Http {
    stream: TcpStream,
    address: SocketAddr,
    token: String,
    read: Vec<u8>,
}

impl Http {
    /// A new connection; every request on it bears `token`.
    #[must_use]
    pub fn connect(address: SocketAddr, token: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, address, token: token.to_owned(), read: Vec::new() }
    }

    /// Calls, and waits for the answer.
    pub fn call(&mut self, send: &Send) -> Told {
        self.begin(send);
        self.finish()
    }

    /// Calls, and does not wait.
    pub fn begin(&mut self, send: &Send) {
        let request = self.request(send);
        self.write(&request).unwrap();
    }

    /// Waits for the answer.
    pub fn finish(&mut self) -> Told {
        self.try_finish().unwrap_or_else(|| panic!("the connection broke: {:?}", self.lossy()))
    }

    /// Waits for the answer; `None` if the connection breaks first.
    pub fn try_finish(&mut self) -> Option<Told> {
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
            }
            self.more()?;
        };
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            self.more()?;
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        Some(Told { status, head, body })
    }

    /// Waits until the first byte of an answer is there, and reads none.
    pub fn answered(&self) {
        assert_eq!(self.stream.peek(&mut [0]).unwrap(), 1, "an answer");
    }

    /// Reads exactly `count` bytes of an answer.
    pub fn read_exactly(&mut self, count: usize) {
        while self.read.len() < count {
            let mut chunk = vec![0; count - self.read.len()];
            let got = self.stream.read(&mut chunk).unwrap();
            assert_ne!(got, 0, "the answer is shorter than {count} bytes");
            self.read.extend_from_slice(&chunk[..got]);
        }
    }

    /// Sends raw bytes.
    ///
    /// # Errors
    /// The connection broke.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The bytes of a call.
    #[must_use]
    pub fn request(&self, send: &Send) -> Vec<u8> {
        let mut headers = send.headers.clone();
        if send.modern {
            let protocol =
                [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", &send.tool)];
            headers.extend(protocol.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        self.post(&headers, send.body().as_bytes())
    }

    /// The bytes of a request with this body. An empty token is not sent.
    #[must_use]
    pub fn post(&self, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
        let mut head = format!("POST /mcp HTTP/1.1\r\nHost: {}\r\n", self.address);
        if !self.token.is_empty() {
            head.push_str(&format!("Authorization: Bearer {}\r\n", self.token));
        }
        head.push_str("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        [head.as_bytes(), body].concat()
    }

    /// How long [`Http::try_finish`] waits for a byte.
    pub fn patience(&mut self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    fn more(&mut self) -> Option<()> {
        let mut chunk = [0; 16 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => None,
            Ok(got) => {
                self.read.extend_from_slice(&chunk[..got]);
                Some(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer in time: {error}"),
        }
    }

    fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut values =
        lines.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
    values.next()
}
