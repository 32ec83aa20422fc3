//! How the gateway knows that an API server asks.
//!
//! Reviews of evictions lead to writes, and API servers mostly show no certificate: whoever reaches the port could have pods asked to leave in
//! anybody's name. So the path that is registered for them ends with a key that only readers of the configuration and of the manager's
//! Secret know. Reviews without it are not answered, and the API server lets the eviction pass.

use std::hash::{BuildHasher as _, RandomState};

use parking_lot::RwLock;

use crate::admission::Endpoint;

/// The key of this cluster, once it is known.
#[derive(Debug, Default)]
pub struct GatewayKey(RwLock<Option<String>>);

impl GatewayKey {
    /// A new one that nobody can guess.
    pub fn make() -> String {
        // Keys of a `RandomState` come from the system's random source; the hash of nothing is as secret as they are.
        (0..4_u8).map(|part| format!("{:016x}", RandomState::new().hash_one(part))).collect()
    }

    /// From now on this is the key.
    pub fn set(&self, key: &str) {
        *self.0.write() = Some(key.to_owned());
    }

    /// The path that is registered.
    pub fn path(key: &str) -> String {
        format!("{}/{key}", Endpoint::Gateway.path())
    }

    /// Whether whoever uses this path knows the key. It takes as long wherever the first difference is.
    pub fn is_known_to(&self, path: &str) -> bool {
        let known = self.0.read();
        let Some(wanted) = known.as_deref().filter(|key| !key.is_empty()).map(Self::path) else {
            return false;
        };
        let differences = wanted.bytes().zip(path.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        wanted.len() == path.len() && differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_opens_the_gateway() {
        let key = GatewayKey::default();
        let path = Endpoint::Gateway.path();
        for path in [path.to_owned(), format!("{path}/"), GatewayKey::path("")] {
            assert!(!key.is_known_to(&path), "there is no key yet: {path}");
        }
        let secret = GatewayKey::make();
        assert_ne!(secret, GatewayKey::make());
        assert_eq!(secret.len(), 64);
        key.set(&secret);
        assert!(key.is_known_to(&GatewayKey::path(&secret)));
        for other in ["", "/", &secret[1..], &format!("{secret}0"), &GatewayKey::make()] {
            assert!(!key.is_known_to(&GatewayKey::path(other)), "{other}");
        }
        assert!(!key.is_known_to(path));
    }
}
