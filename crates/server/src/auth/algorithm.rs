//! The signatures that are taken: an allow-list without `none` and without shared secrets (RFC 8725, section 3.1).

use ring::signature::{self, EcdsaVerificationAlgorithm, RsaParameters};

/// A signature algorithm of RFC 7518 or RFC 8037, with a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519; also spelled `Ed25519` (RFC 9864).
    EdDsa,
}

/// What a key must be to verify with an algorithm.
pub(super) enum Scheme {
    Rsa(&'static RsaParameters),
    Ecdsa(&'static EcdsaVerificationAlgorithm),
    Ed25519,
}

impl Algorithm {
    /// Every one, by the name it has in a header.
    pub const ALL: [(&'static str, Algorithm); 9] = [
        ("RS256", Algorithm::Rs256),
        ("RS384", Algorithm::Rs384),
        ("RS512", Algorithm::Rs512),
        ("PS256", Algorithm::Ps256),
        ("PS384", Algorithm::Ps384),
        ("PS512", Algorithm::Ps512),
        ("ES256", Algorithm::Es256),
        ("ES384", Algorithm::Es384),
        ("EdDSA", Algorithm::EdDsa),
    ];

    /// The algorithm of this name; names are case-sensitive.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    pub(super) fn scheme(self) -> Scheme {
        match self {
            Algorithm::Rs256 => Scheme::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Scheme::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Scheme::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Scheme::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Scheme::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Scheme::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::Es256 => Scheme::Ecdsa(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::Es384 => Scheme::Ecdsa(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDsa => Scheme::Ed25519,
        }
    }
}
