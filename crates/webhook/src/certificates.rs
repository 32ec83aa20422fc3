//! Certificates: what is held, and how each step of the rotation makes it.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

use crate::gateway_key::GatewayKey;
use crate::rotation::{Dates, Lifetimes, Step, Validity, after};

/// Certificates start a little in the past, for clocks that are behind.
const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// A certificate authority with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The subject, which its certificates name as their issuer.
    name: String,
    certificate: String,
    key: String,
    validity: Validity,
}

/// An authority that is trusted and does not sign yet.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Next {
    authority: Authority,
    since: Timestamp,
}

/// An authority that is trusted and signs no longer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Previous {
    certificate: String,
    until: Timestamp,
}

/// The certificate that is served.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// Its PEM.
    pub certificate: String,
    /// Its key, PEM too.
    pub key: String,
    names: Vec<String>,
    validity: Validity,
}

/// All that is held; the content of the Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    authority: Authority,
    #[serde(default)]
    next: Option<Next>,
    #[serde(default)]
    previous: Option<Previous>,
    /// What the server shows.
    pub serving: Serving,
    /// What API servers show with reviews of evictions.
    pub gateway_key: String,
}

impl std::fmt::Debug for Certificates {
    /// Without the keys: this may end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Certificates").field(&self.dates(&self.serving.names)).finish()
    }
}

impl Certificates {
    /// A new authority, and a certificate for these names.
    ///
    /// # Errors
    /// A name is no DNS name and no address, or no key can be made.
    pub fn create(names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Result<Self, rcgen::Error> {
        let authority = Authority::create(lifetimes, now)?;
        let serving = authority.sign(names, lifetimes, now)?;
        let gateway_key = GatewayKey::make();
        Ok(Self { authority, next: None, previous: None, serving, gateway_key })
    }

    /// What the decision needs to know of it.
    pub fn dates(&self, names: &[String]) -> Dates {
        Dates {
            authority: self.authority.validity,
            next: self.next.as_ref().map(|next| (next.authority.validity, next.since)),
            previous_until: self.previous.as_ref().map(|previous| previous.until),
            serving: self.serving.validity,
            names_match: self.serving.names == names,
        }
    }

    /// What is held after a step.
    ///
    /// # Errors
    /// As for [`Certificates::create`].
    pub fn after(
        &self,
        step: Step,
        names: &[String],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> Result<Self, rcgen::Error> {
        let mut held = self.clone();
        match step {
            Step::Create => return Self::create(names, lifetimes, now),
            Step::IntroduceAuthority => {
                held.next = Some(Next { authority: Authority::create(lifetimes, now)?, since: now });
            }
            Step::Promote => {
                if let Some(next) = held.next.take() {
                    let certificate = std::mem::replace(&mut held.authority, next.authority).certificate;
                    held.previous = Some(Previous { certificate, until: after(now, lifetimes.overlap) });
                }
                held.serving = held.authority.sign(names, lifetimes, now)?;
            }
            Step::RenewServing => held.serving = held.authority.sign(names, lifetimes, now)?,
            Step::DropPrevious => held.previous = None,
            Step::Wait(_) => {}
        }
        Ok(held)
    }

    /// Every authority to trust, as PEM: the content of `caBundle`.
    pub fn bundle(&self) -> String {
        let next = self.next.iter().map(|next| next.authority.certificate.as_str());
        let previous = self.previous.iter().map(|previous| previous.certificate.as_str());
        std::iter::once(self.authority.certificate.as_str()).chain(next).chain(previous).collect()
    }
}

impl Authority {
    fn create(lifetimes: &Lifetimes, now: Timestamp) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        // Authorities have different names, so that verifiers do not mistake one for another.
        let name = format!("usher webhook {now}");
        let validity = valid_for(lifetimes.authority, now);
        let mut params = authority_params(&name);
        set_validity(&mut params, validity);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { name, certificate, key: key.serialize_pem(), validity })
    }

    fn sign(&self, names: &[String], lifetimes: &Lifetimes, now: Timestamp) -> Result<Serving, rcgen::Error> {
        let issuer = Issuer::new(authority_params(&self.name), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let mut validity = valid_for(lifetimes.serving, now);
        validity.not_after = validity.not_after.min(self.validity.not_after);
        let mut params = CertificateParams::new(names.to_vec())?;
        params.distinguished_name = named("usher webhook");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, validity);
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Serving { certificate, key: key.serialize_pem(), names: names.to_vec(), validity })
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    named
}

fn valid_for(life: SignedDuration, now: Timestamp) -> Validity {
    let not_before = now.saturating_sub(BACKDATED).unwrap_or(Timestamp::MIN);
    Validity { not_before, not_after: after(now, life) }
}

fn set_validity(params: &mut CertificateParams, validity: Validity) {
    let date = |at: Timestamp| {
        let seconds = u64::try_from(at.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    params.not_before = date(validity.not_before);
    params.not_after = date(validity.not_after);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;
    use crate::rotation::next_step;

    const HOUR: i64 = 3600;

    /// Whether a client that trusts the bundle accepts the certificate for the name at that time.
    fn accepts(bundle: &str, serving: &str, name: &str, now: Timestamp) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let certificate = CertificateDer::from_pem_slice(serving.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
        verifier.verify_server_cert(&certificate, &[], &name, &[], now).map(drop)
    }

    fn names() -> Vec<String> {
        vec!["usher-webhook.usher-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    #[test]
    fn what_is_made_is_accepted_for_its_names_and_its_time_only() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let made = Certificates::create(&names(), &Lifetimes::default(), now).unwrap();
        for name in names() {
            accepts(&made.bundle(), &made.serving.certificate, &name, now).unwrap();
        }
        assert!(accepts(&made.bundle(), &made.serving.certificate, "example.com", now).is_err());
        let end = after(now, SignedDuration::from_hours(24 * 91));
        assert!(accepts(&made.bundle(), &made.serving.certificate, "127.0.0.1", end).is_err());
        let other = Certificates::create(&names(), &Lifetimes::default(), now).unwrap();
        assert!(accepts(&other.bundle(), &made.serving.certificate, "127.0.0.1", now).is_err());
    }

    /// Five years in which the Secret is looked at every few hours: whoever still trusts what was in the configurations half a
    /// day ago accepts what is served now, and whoever trusts the present bundle accepts what a slow replica still serves.
    #[test]
    fn through_all_rotations_every_api_server_trusts_every_replica() {
        let lifetimes = Lifetimes::default();
        let start = 1_800_000_000;
        let mut held =
            Certificates::create(&names(), &lifetimes, Timestamp::from_second(start).unwrap()).unwrap();
        let mut half_a_day_ago = std::collections::VecDeque::from([held.clone()]);
        let (mut steps, mut accepted) = (Vec::new(), 0);
        for hour in (0..5 * 365 * 24).step_by(6) {
            let now = Timestamp::from_second(start + hour * HOUR).unwrap();
            while let step @ (Step::Create
            | Step::IntroduceAuthority
            | Step::Promote
            | Step::RenewServing
            | Step::DropPrevious) = next_step(Some(&held.dates(&names())), &lifetimes, now)
            {
                held = held.after(step, &names(), &lifetimes, now).unwrap();
                steps.push(step);
            }
            half_a_day_ago.push_back(held.clone());
            if half_a_day_ago.len() > 3 {
                half_a_day_ago.pop_front();
            }
            let old = &half_a_day_ago[0];
            if *old != held {
                accepts(&old.bundle(), &held.serving.certificate, "127.0.0.1", now).unwrap();
                accepts(&held.bundle(), &old.serving.certificate, "127.0.0.1", now).unwrap();
                accepted += 1;
            }
            accepts(&held.bundle(), &held.serving.certificate, "127.0.0.1", now).unwrap();
        }
        let count = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
        assert_eq!(count(Step::Create), 0, "nothing ever expired");
        assert_eq!(
            (count(Step::IntroduceAuthority), count(Step::Promote), count(Step::DropPrevious)),
            (2, 2, 2)
        );
        assert!(count(Step::RenewServing) > 20 && accepted > 20, "{steps:?}");
    }
}
