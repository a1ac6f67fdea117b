//! TLS of our own: a certificate and its key from PEM files, read again when told to.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead to its root: PEM.
    pub cert: PathBuf,
    /// Its private key: PEM.
    pub key: PathBuf,
}

/// Why a certificate cannot be used. Names the file and nothing of what is in it.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// The certificate's file cannot be read, or holds none.
    #[error("{0} holds no certificate that can be read")]
    Certificate(PathBuf),
    /// The key's file cannot be read, or holds none.
    #[error("{0} holds no private key that can be read")]
    Key(PathBuf),
    /// They cannot be used together.
    #[error("the certificate and the key cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// The certificate in use.
pub struct Certificates {
    files: Files,
    current: RwLock<Arc<ServerConfig>>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`BadCertificate`]
    pub fn load(files: Files) -> Result<Self, BadCertificate> {
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, current })
    }

    /// Reads the files again, for connections to come.
    ///
    /// # Errors
    /// [`BadCertificate`]: the old certificate stays in use.
    pub fn reload(&self) -> Result<(), BadCertificate> {
        let anew = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = anew;
        Ok(())
    }

    pub(super) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn read(files: &Files) -> Result<Arc<ServerConfig>, BadCertificate> {
    let no_certificate = || BadCertificate::Certificate(files.cert.clone());
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(|_| no_certificate())?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|_| no_certificate())?;
    if chain.is_empty() {
        return Err(no_certificate());
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|_| BadCertificate::Key(files.key.clone()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(BadCertificate::Pair)?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, key).map_err(BadCertificate::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
