//! The server's own TLS in the real process: a certificate that is read again on SIGHUP, for connections to come.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{Error, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use counterfoil_testkit::postgres::Authority;
use counterfoil_testkit::site::{EXAMPLE, for_everybody};
use counterfoil_testkit::{Server, Site};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
const BAD: &str = "the new certificate is not used";
const GOOD: &str = "the certificate was read again";

/// A connection that trusts `authority` alone.
fn connect(server: &Server, authority: &Authority) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.file.path()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(counterfoil_testkit::server::PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

/// Asks whether it is alive, and reads until the answer's word is there.
fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> Result<(), Error> {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut all, mut chunk) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&all).contains("\"ok\"") {
        let got = stream.read(&mut chunk)?;
        assert_ne!(got, 0, "{:?}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&chunk[..got]);
    }
    Ok(())
}

/// How often it has said `text`, once that is `count` times.
fn says(server: &Server, text: &str, count: usize) {
    let begun = std::time::Instant::now();
    while server.log().matches(text).count() < count {
        assert!(begun.elapsed() < counterfoil_testkit::server::PATIENCE, "not said {count} times: {text}");
        std::thread::yield_now();
    }
}

#[test]
fn a_certificate_is_read_again_on_sighup() {
    let site = Site::automations();
    let (first, second) = (Authority::fresh(), Authority::fresh());
    let (certificate, key) = first.certify("localhost");
    let place = |name: &str, text: &str| site.config(name, text);
    let (_certificate, _key) = (place("cert.pem", &certificate), place("key.pem", &key));
    let tls = "[server]\ntls = { cert = \"cert.pem\", key = \"key.pem\" }\n\n[receipts]";
    let config = place("tls.toml", &for_everybody(&EXAMPLE.replacen("[receipts]", tls, 1)));
    let server = Server::start(Path::new(PROGRAM), &config);
    let mut open = connect(&server, &first);
    ask(&mut open).unwrap();
    // A key of another pair, half a key, no key: each is told, and the old certificate serves on.
    let (certificate, key) = second.certify("localhost");
    for (count, wrong) in [&*key, &key[..key.len() / 2], ""].into_iter().enumerate() {
        let _wrong = place("key.pem", wrong);
        server.hang_up();
        says(&server, BAD, count + 1);
        ask(&mut connect(&server, &first)).unwrap();
    }
    let (_certificate, _key) = (place("cert.pem", &certificate), place("key.pem", &key));
    server.hang_up();
    says(&server, GOOD, 1);
    ask(&mut connect(&server, &second)).unwrap();
    assert!(ask(&mut connect(&server, &first)).is_err(), "the old one is out of use");
    ask(&mut open).unwrap();
    assert!(!server.log().contains("PRIVATE KEY"), "{}", server.log());
    server.terminate();
    drop(open);
    assert!(server.ended().success());
}
