//! Whom HTTPS to webhooks trusts: the certificates in `caBundle` and nobody else.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// TLS that trusts the bundle, in PEM.
pub(super) fn trusting(ca_bundle: &[u8]) -> Result<tokio_rustls::TlsConnector, String> {
    let unreadable = |problem: &dyn std::fmt::Display| format!("unreadable caBundle: {problem}");
    let mut roots = RootCertStore::empty();
    let mut bundle = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(ca_bundle) {
        let certificate = certificate.map_err(|problem| unreadable(&problem))?;
        roots.add(certificate.clone()).map_err(|problem| unreadable(&problem))?;
        bundle.push(certificate);
    }
    if bundle.is_empty() {
        return Err("tls: failed to verify certificate: x509: certificate signed by unknown authority \
                    (the webhook has no caBundle, and this cluster trusts no other authority)"
            .to_string());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|problem| problem.to_string())?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|problem| problem.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(BundleVerifier { signed, bundle }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tokio_rustls::TlsConnector::from(Arc::new(config)))
}

/// The usual checks, but a server may also present a certificate of the bundle itself, even one that is marked as
/// an authority: self-signed certificates often are, and the API server accepts them.
#[derive(Debug)]
struct BundleVerifier {
    signed: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for BundleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict =
            self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            // `Other` is where "an authority used as a server" ends up; an expired certificate does not.
            Err(Error::InvalidCertificate(CertificateError::Other(_)))
                if self.bundle.iter().any(|trusted| trusted == end_entity) =>
            {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
