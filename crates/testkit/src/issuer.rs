//! An issuer of signed tokens: a key pair made now, its key set as a file, and whatever it is told to sign.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil::{Clock as _, SystemClock};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A key of ES256 (RFC 7518), named `k`.
#[derive(Debug)]
pub struct Signer(EcdsaKeyPair);

impl Signer {
    /// A new key.
    #[must_use]
    pub fn fresh() -> Self {
        let (random, curve) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let made = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(curve, made.as_ref(), &random).unwrap())
    }

    /// Its key set (RFC 7517), as text.
    #[must_use]
    pub fn set(&self) -> String {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let key = json!({"kty": "EC", "kid": "k", "crv": "P-256", "x": spelled(x), "y": spelled(y)});
        json!({ "keys": [key] }).to_string()
    }

    /// A token with these claims and an hour to live.
    #[must_use]
    pub fn sign(&self, mut claims: Value) -> String {
        claims["exp"] = json!(SystemClock.now().micros() / 1_000_000 + 3600);
        let header = json!({"alg": "ES256", "kid": "k", "typ": "at+jwt"});
        let message = format!("{}.{}", spelled(header.to_string()), spelled(claims.to_string()));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", spelled(signature.as_ref()))
    }
}

fn spelled(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
