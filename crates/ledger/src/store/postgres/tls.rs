//! How connections are encrypted, and whether the server must prove who it is.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::fault::OpenError;

/// Whether the server must prove who it is. Whether the connection is encrypted at all is the `ssl_mode` of
/// `tokio_postgres`'s config: `disable`, `prefer` (its default) or `require`.
#[derive(Debug, Clone, Default)]
pub enum Tls {
    /// It need not: as `sslmode=require` of libpq without certificates. Somebody between could read and change
    /// everything; channel binding, if the password is asked by SCRAM, keeps them from that.
    #[default]
    Unproven,
    /// By a certificate of one of these authorities for the host's name: `sslmode=verify-full`. Never unencrypted.
    Proven(Arc<RootCertStore>),
}

impl Tls {
    /// `sslmode=verify-full` with the authorities in the PEM file at `path`: `sslrootcert`.
    ///
    /// # Errors
    /// [`OpenError::Authorities`] for a file that cannot be read or holds none.
    pub fn proven_by(path: &Path) -> Result<Self, OpenError> {
        let refused = |problem: String| OpenError::Authorities { path: path.to_owned(), problem };
        let found = CertificateDer::pem_file_iter(path).map_err(|error| refused(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in found {
            let certificate = certificate.map_err(|error| refused(error.to_string()))?;
            roots.add(certificate).map_err(|error| refused(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(refused("there is no certificate in it".to_owned()));
        }
        Ok(Self::Proven(Arc::new(roots)))
    }

    /// What makes connections, and `config` as it must be for them.
    pub(super) fn prepare(&self, config: &mut Config) -> Result<MakeRustlsConnect, OpenError> {
        let provider = Arc::new(ring::default_provider());
        let verifier: Arc<dyn ServerCertVerifier> = match self {
            Tls::Unproven => Arc::new(Anybody(Arc::clone(&provider))),
            Tls::Proven(roots) => {
                config.ssl_mode(SslMode::Require);
                let roots = Arc::clone(roots);
                let made = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
                made.map_err(|_| OpenError::Damaged("the certificate authorities are of no use"))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|_| OpenError::Damaged("there is no TLS version to speak"))?;
        let mut client = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        client.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(MakeRustlsConnect::new(client))
    }
}

/// Takes every certificate. The handshake is still signed by whoever holds it.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
