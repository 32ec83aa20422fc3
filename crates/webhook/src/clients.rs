//! Who may ask: whoever shows a client certificate of a given authority, under a given name.
//!
//! A cluster whose API servers are told to show one (by a `kubeConfigFile` in their admission configuration) is asked by nobody
//! else. Without it everybody who reaches the port can ask, and learns what the API server's authorizers say of a right.

use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

/// Why nobody could be let in.
#[derive(Debug, thiserror::Error)]
pub enum NoClients {
    /// No PEM.
    #[error("no certificates in PEM: {0}")]
    Pem(#[from] pem::Error),
    /// A certificate in it is none of an authority.
    #[error("a certificate is none of an authority: {0}")]
    Authority(#[from] Error),
    /// There is none in it.
    #[error("no authority to check clients with: {0}")]
    Nobody(#[from] VerifierBuilderError),
    /// A name that no certificate has.
    #[error("{name:?} is no DNS name: {why}")]
    Name {
        /// As given.
        name: String,
        /// What is wrong with it.
        why: InvalidDnsNameError,
    },
}

/// Clients with a certificate.
#[derive(Debug, Clone)]
pub struct Clients {
    authorities: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl Clients {
    /// Those whose certificate one of these authorities signed, and which has one of these DNS names as a subject alternative name.
    /// Without names, any certificate of these authorities will do.
    ///
    /// # Errors
    /// See [`NoClients`].
    pub fn new(authorities_pem: &[u8], names: &[String]) -> Result<Self, NoClients> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities_pem) {
            roots.add(authority?)?;
        }
        let provider: Arc<CryptoProvider> = Arc::new(default_provider());
        let authorities = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let names = names.iter().map(|name| {
            ServerName::try_from(name.clone()).map_err(|why| NoClients::Name { name: name.clone(), why })
        });
        Ok(Self { authorities, names: names.collect::<Result<_, _>>()? })
    }
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.authorities.verify_client_cert(end_entity, intermediates, now)?;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let is_known = self.names.iter().any(|name| verify_server_name(&certificate, name).is_ok());
        if self.names.is_empty() || is_known {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
