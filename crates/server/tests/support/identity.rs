//! An identity provider made of real keys: it signs what it is told to, and serves its key set as it is told to.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil::Clock;
use counterfoil_core::{Issuer, Timestamp};
use counterfoil_server::auth::{Algorithm, Authenticator, Source, Trusted};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
    RSA_PSS_SHA384, RSA_PSS_SHA512, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// When every test begins: 2026-11-30, in seconds since 1970.
pub const NOW: i64 = 1_796_000_000;
pub const ISSUER: &str = "https://id.example.com";
pub const AUDIENCE: &str = "https://tools.example.com/mcp";

pub fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A clock that stands still until it is moved.
pub struct Hand(AtomicI64);

impl Hand {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(NOW * 1_000_000)))
    }

    pub fn move_by(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    pub fn pass(&self, time: Duration) {
        self.move_by(i64::try_from(time.as_micros()).unwrap());
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// A key pair, made now.
pub struct Signer {
    pub kid: &'static str,
    pair: Pair,
}

impl Signer {
    /// RSA keys come from openssl: the library at hand signs with them and makes none.
    pub fn rsa(kid: &'static str) -> Self {
        let made = Command::new("openssl")
            .args([
                "genpkey",
                "-quiet",
                "-algorithm",
                "RSA",
                "-outform",
                "DER",
                "-pkeyopt",
                "rsa_keygen_bits:2048",
            ])
            .output()
            .expect("openssl is on the path");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Its versions disagree about the format.
        let pair = RsaKeyPair::from_pkcs8(&made.stdout).or_else(|_| RsaKeyPair::from_der(&made.stdout));
        Self { kid, pair: Pair::Rsa(pair.unwrap()) }
    }

    fn ec(kid: &'static str, curve: &'static EcdsaSigningAlgorithm) -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Self { kid, pair: Pair::Ec(EcdsaKeyPair::from_pkcs8(curve, made.as_ref(), &random).unwrap()) }
    }

    pub fn p256(kid: &'static str) -> Self {
        Self::ec(kid, &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub fn p384(kid: &'static str) -> Self {
        Self::ec(kid, &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    pub fn ed25519(kid: &'static str) -> Self {
        let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { kid, pair: Pair::Ed(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()) }
    }

    /// The public key as bytes; of RSA, its modulus.
    pub fn public(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair) => RsaPublicKeyComponents::<Vec<u8>>::from(pair.public()).n,
            Pair::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub fn jwk(&self) -> Value {
        let public = self.public();
        match &self.pair {
            Pair::Rsa(pair) => {
                let e = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public()).e;
                json!({"kty": "RSA", "kid": self.kid, "n": base64(public), "e": base64(e)})
            }
            Pair::Ec(_) => {
                let (x, y) = public[1..].split_at(public.len() / 2);
                let crv = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "kid": self.kid, "crv": crv, "x": base64(x), "y": base64(y)})
            }
            Pair::Ed(_) => json!({"kty": "OKP", "kid": self.kid, "crv": "Ed25519", "x": base64(public)}),
        }
    }

    /// Signs as `alg` says; the key need not be of the kind that a reader expects for it.
    pub fn signature(&self, alg: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &dyn ring::signature::RsaEncoding = match alg {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with exactly this header and these claims, as JSON text.
    pub fn token(&self, header: &str, claims: &str) -> String {
        let message = format!("{}.{}", base64(header), base64(claims));
        let alg = serde_json::from_str::<Value>(header)
            .ok()
            .and_then(|value| Some(value["alg"].as_str()?.to_owned()));
        let signature = self.signature(alg.as_deref().unwrap_or_default(), message.as_bytes());
        format!("{message}.{}", base64(signature))
    }

    /// A token as it should be.
    pub fn sign(&self, alg: &str, claims: &Value) -> String {
        self.token(&json!({"alg": alg, "kid": self.kid, "typ": "at+jwt"}).to_string(), &claims.to_string())
    }
}

/// Claims that pass at [`NOW`].
pub fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "workspace_id": "team-a",
        "scope": "automation:write automation:read", "iat": NOW, "nbf": NOW, "exp": NOW + 300,
    })
}

/// [`claims`] with `name` replaced, or taken away.
pub fn with(name: &str, value: impl Into<Option<Value>>) -> Value {
    let mut claims = claims();
    let members = claims.as_object_mut().unwrap();
    match value.into() {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
    claims
}

pub fn trusted(keys: Source) -> Trusted {
    Trusted {
        issuer: Issuer::parse(ISSUER).unwrap(),
        audiences: vec![AUDIENCE.to_owned()],
        keys,
        patience: Duration::from_secs(5),
        algorithms: Algorithm::ALL.map(|(_, algorithm)| algorithm).to_vec(),
        leeway: Duration::from_secs(60),
        workspace: "workspace_id".to_owned(),
        subject: "sub".to_owned(),
        scopes: "scope".to_owned(),
    }
}

pub fn trusting(issuers: Vec<Trusted>, clock: &Arc<Hand>) -> Authenticator {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    super::authenticator().trusting(issuers, &clock).unwrap()
}

/// A key set as text.
pub fn set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// How a key set is served.
#[derive(Clone)]
pub enum Served {
    /// The whole answer after its head.
    Set(String),
    /// Another status, with this header.
    Status(&'static str, String),
    /// Never.
    Nothing,
    /// The same as a set, once this is true.
    Held(tokio::sync::watch::Receiver<bool>, String),
    /// So many bytes.
    Large(usize),
}

/// Serves a key set.
pub struct Provider {
    pub address: SocketAddr,
    pub served: Arc<Mutex<Served>>,
    hits: Arc<AtomicUsize>,
}

impl Provider {
    pub async fn start(served: Served) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (served, hits) = (Arc::new(Mutex::new(served)), Arc::new(AtomicUsize::new(0)));
        let (now, counted) = (Arc::clone(&served), Arc::clone(&hits));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let served = now.lock().unwrap().clone();
                tokio::spawn(answer(stream, served));
            }
        });
        Self { address, served, hits }
    }

    pub fn source(&self) -> Source {
        Source::Url(format!("http://{}/jwks.json", self.address))
    }

    pub fn serve(&self, served: Served) {
        *self.served.lock().unwrap() = served;
    }

    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream, served: Served) {
    let (mut read, mut chunk) = (Vec::new(), [0; 1024]);
    while !read.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(got) => read.extend_from_slice(&chunk[..got]),
        }
    }
    let (status, header, body) = match served {
        Served::Set(body) => ("200 OK", String::new(), body),
        Served::Status(status, header) => (status, header, String::new()),
        Served::Large(size) => {
            ("200 OK", String::new(), format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(size)))
        }
        Served::Held(mut held, body) => {
            let _released = held.wait_for(|released| *released).await;
            ("200 OK", String::new(), body)
        }
        Served::Nothing => {
            let _ended = stream.read(&mut chunk).await;
            return;
        }
    };
    let head =
        format!("HTTP/1.1 {status}\r\n{header}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _sent = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
}
