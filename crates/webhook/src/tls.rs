//! The certificate of a running server, and how it is swapped without a restart.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::clients::Clients;

/// Why a certificate cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No PEM, or nothing of the kind in it.
    #[error("no certificate chain and private key in PEM: {0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// The two do not belong together, or the key is of an unknown kind.
    #[error("the certificate cannot be used with its key: {0}")]
    Key(#[from] rustls::Error),
}

/// The certificate that new connections see. Until there is one, they are refused.
#[derive(Debug, Default)]
pub struct ServingCertificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl ServingCertificate {
    /// Takes over another certificate; connections that are open stay.
    ///
    /// # Errors
    /// It cannot be served with; the one before stays.
    pub fn replace(&self, certificate_pem: &str, key_pem: &str) -> Result<(), Unusable> {
        let chain =
            CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)?;
        *self.current.write() = Some(Arc::new(certified));
        Ok(())
    }

    /// Whether there is one, so that the server can be called ready.
    pub fn is_present(&self) -> bool {
        self.current.read().is_some()
    }

    /// The settings of a server that shows this certificate, whichever it is at the time, and talks to these clients or to all.
    ///
    /// # Errors
    /// TLS cannot be set up at all.
    pub fn server_config(
        self: &Arc<Self>,
        clients: Option<Clients>,
    ) -> Result<rustls::ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::new(clients)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }
}
