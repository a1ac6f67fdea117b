//! Clusters that ask who comes in: by TLS, with a certificate of an authority of the test's own, or by a password alone.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::NamedTempFile;

use super::cluster::Cluster;

/// An authority that certifies hosts.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, as a PEM file.
    pub file: NamedTempFile,
}

impl Authority {
    /// A new one, which nobody else knows.
    #[must_use]
    pub fn fresh() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages.push(KeyUsagePurpose::KeyCertSign);
        let key = KeyPair::generate().unwrap();
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), parameters.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(parameters, key), file }
    }

    /// Certificate and key for `host`, as PEM.
    #[must_use]
    pub fn certify(&self, host: &str) -> (String, String) {
        let parameters = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Who comes in how: `secure` over TLS with a password, everybody else as they please.
const RULES: &str = "
hostssl all secure 127.0.0.1/32 scram-sha-256
hostnossl all secure 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
";

/// A cluster whose certificate, by `authority`, is for `localhost`.
#[must_use]
pub fn encrypted(authority: &Authority) -> Cluster {
    let (certificate, key) = authority.certify("localhost");
    let settings = [
        "ssl=on",
        "ssl_cert_file=FOLDER/server.crt",
        "ssl_key_file=FOLDER/server.key",
        "hba_file=FOLDER/rules.conf",
        "fsync=off",
    ];
    let files = [("server.crt", &*certificate), ("server.key", &*key), ("rules.conf", RULES)];
    Cluster::equipped(&settings, &files)
}

/// A cluster that asks `secure` for a password, without TLS, and lets everybody else in.
#[must_use]
pub fn guarded() -> Cluster {
    let rules = "host all secure 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    Cluster::equipped(&["hba_file=FOLDER/rules.conf", "fsync=off"], &[("rules.conf", rules)])
}
