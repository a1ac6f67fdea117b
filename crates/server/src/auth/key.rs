//! One public key of an issuer, read from a JWK set (RFC 7517), and whether it made a signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use counterfoil_core::json::{self, Bounds, Value};
use ring::signature::{ED25519, RsaPublicKeyComponents, UnparsedPublicKey};

use super::algorithm::{Algorithm, Scheme};

/// Most keys that one set may hold.
const KEYS: usize = 100;
/// A set is flat, and certificate chains make it long.
const BOUNDS: Bounds = Bounds { nesting: 8, values: 10_000 };

/// A public key that verifies signatures.
#[derive(Clone)]
pub(super) struct Key {
    /// Its name in the set.
    pub(super) kid: Option<Box<str>>,
    /// The one algorithm that it is for, if the set says so.
    alg: Option<Algorithm>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    /// The key may be used with `algorithm`: its type fits, and the set does not say otherwise.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        let material = match (&self.material, algorithm) {
            (
                Material::Rsa { .. },
                Algorithm::Rs256
                | Algorithm::Rs384
                | Algorithm::Rs512
                | Algorithm::Ps256
                | Algorithm::Ps384
                | Algorithm::Ps512,
            )
            | (Material::P256(_), Algorithm::Es256)
            | (Material::P384(_), Algorithm::Es384)
            | (Material::Ed25519(_), Algorithm::EdDsa) => true,
            (Material::Rsa { .. } | Material::P256(_) | Material::P384(_) | Material::Ed25519(_), _) => false,
        };
        material && self.alg.is_none_or(|own| own == algorithm)
    }

    /// Did this key sign `message`? Never, with an algorithm that does not fit it.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(algorithm) {
            return false;
        }
        let verified = match (algorithm.scheme(), &self.material) {
            (Scheme::Rsa(scheme), Material::Rsa { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(scheme, message, signature)
            }
            (Scheme::Ecdsa(scheme), Material::P256(point) | Material::P384(point)) => {
                UnparsedPublicKey::new(scheme, point).verify(message, signature)
            }
            (Scheme::Ed25519, Material::Ed25519(point)) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            (Scheme::Rsa(_) | Scheme::Ecdsa(_) | Scheme::Ed25519, _) => return false,
        };
        verified.is_ok()
    }

    /// `None` for a key that is not for signatures, or of a kind that is not known here: a set may hold others' keys.
    fn read(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        let for_signatures = jwk.get("use").is_none_or(|to| to.as_str() == Some("sig"));
        let verifies = match jwk.get("key_ops") {
            None => true,
            Some(Value::Array(ops)) => ops.iter().any(|op| op.as_str() == Some("verify")),
            Some(_) => false,
        };
        // An algorithm that is not known here is not "any".
        let alg = match jwk.get("alg") {
            None => None,
            Some(name) => Some(Algorithm::parse(name.as_str()?)?),
        };
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == length && y.len() == length).then(|| [&[4][..], &x, &y].concat())
        };
        let material = match (text("kty")?, text("crv")) {
            ("RSA", _) => Material::Rsa { n: unpadded(bytes("n")?), e: unpadded(bytes("e")?) },
            ("EC", Some("P-256")) => Material::P256(point(32)?),
            ("EC", Some("P-384")) => Material::P384(point(48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x").filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let key = Self { kid: text("kid").map(Into::into), alg, material };
        (for_signatures && verifies).then_some(key)
    }
}

/// Some providers write the sign byte that DER has and JWK has not.
fn unpadded(bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes[zeros..].to_vec()
}

/// Reads a JWK set; keys that are of no use here are left out.
///
/// # Errors
/// Why this is no set, without quoting it.
pub(super) fn read_set(text: &[u8]) -> Result<Vec<Key>, &'static str> {
    let set = json::parse(text, BOUNDS).map_err(|_| "it is not JSON")?;
    let Some(Value::Array(keys)) = set.get("keys") else { return Err("it has no list `keys`") };
    if keys.len() > KEYS {
        return Err("it has more than 100 keys");
    }
    Ok(keys.iter().filter_map(Key::read).collect())
}

/// How many keys of a set can be used here.
///
/// # Errors
/// As [`read_set`].
pub(crate) fn usable(text: &[u8]) -> Result<usize, &'static str> {
    read_set(text).map(|keys| keys.len())
}
