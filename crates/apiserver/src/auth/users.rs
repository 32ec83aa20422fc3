//! Bearer tokens and the users they stand for.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use serde_json::json;

use super::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, service_account};
use crate::attributes::User;

/// The audience of tokens that are meant for this API server, also its issuer name.
pub(crate) const API_AUDIENCE: &str = "https://kubernetes.default.svc";

/// The table of all tokens: those given at start, and those issued to service accounts.
#[derive(Debug, Default)]
pub(crate) struct Users {
    tokens: RwLock<HashMap<String, Entry>>,
}

#[derive(Debug, Clone)]
struct Entry {
    user: User,
    /// Never, for tokens given at start.
    expires: Option<Timestamp>,
    audiences: Vec<String>,
}

/// What a valid token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub user: User,
    /// Those of the asked audiences that the token is meant for.
    pub audiences: Vec<String>,
}

impl Users {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A token that is valid for ever. Every user is also in `system:authenticated`.
    pub(crate) fn add(&self, token: impl Into<String>, mut user: User) {
        if !user.groups.iter().any(|g| g == AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_string());
        }
        let entry = Entry { user, expires: None, audiences: vec![API_AUDIENCE.to_string()] };
        self.tokens.write().insert(token.into(), entry);
    }

    /// A new token for a service account. It has the form of a JSON web token, as clients look into it for the
    /// expiry, but it counts only because it is in this table: the signature is random.
    pub(crate) fn issue(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        audiences: &[String],
        now: Timestamp,
        lifetime: SignedDuration,
    ) -> String {
        let expires = now.saturating_add(lifetime).unwrap_or(Timestamp::MAX);
        let header = json!({"alg": "none", "typ": "JWT"});
        let claims = json!({
            "aud": audiences, "iss": API_AUDIENCE, "sub": service_account::username(namespace, name),
            "iat": now.as_second(), "nbf": now.as_second(), "exp": expires.as_second(),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        });
        let part = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signature = fastrand::u128(..).to_be_bytes();
        let token = format!(
            "{}.{}.{}",
            part(header.to_string().as_bytes()),
            part(claims.to_string().as_bytes()),
            part(&signature)
        );
        let entry = Entry {
            user: service_account::user(namespace, name, uid),
            expires: Some(expires),
            audiences: audiences.to_vec(),
        };
        let mut tokens = self.tokens.write();
        tokens.retain(|_, entry| entry.expires.is_none_or(|at| at > now));
        tokens.insert(token.clone(), entry);
        token
    }

    /// The caller behind a token for this API server.
    pub(crate) fn authenticate(&self, token: &str, now: Timestamp) -> Option<User> {
        self.identify(token, &[], now).map(|identity| identity.user)
    }

    /// Whom a token stands for at any of these audiences; without any, at this API server.
    pub(crate) fn identify(&self, token: &str, audiences: &[String], now: Timestamp) -> Option<Identity> {
        let tokens = self.tokens.read();
        let entry = tokens.get(token).filter(|entry| entry.expires.is_none_or(|at| at > now))?;
        let for_api = [API_AUDIENCE.to_string()];
        let wanted = if audiences.is_empty() { &for_api } else { audiences };
        let common: Vec<String> = wanted.iter().filter(|a| entry.audiences.contains(a)).cloned().collect();
        (!common.is_empty()).then(|| Identity { user: entry.user.clone(), audiences: common })
    }

    /// Tokens of a service account stop working once it is deleted.
    pub(crate) fn revoke_service_account(&self, uid: &str) {
        self.tokens.write().retain(|_, entry| entry.expires.is_none() || entry.user.uid != uid);
    }
}

/// The caller without credentials.
pub(crate) fn anonymous() -> User {
    User { name: ANONYMOUS.to_string(), uid: String::new(), groups: vec![UNAUTHENTICATED.to_string()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_issued_token_expires() {
        let users = Users::new();
        let audiences = [API_AUDIENCE.to_string()];
        let token = users.issue("shop", "cart", "u1", &audiences, at(0), SignedDuration::from_secs(600));
        assert_eq!(users.authenticate(&token, at(599)).unwrap().name, "system:serviceaccount:shop:cart");
        assert_eq!(users.authenticate(&token, at(600)), None);
    }

    #[test]
    fn a_token_for_another_audience_is_no_use_here() {
        let users = Users::new();
        let vault = ["vault".to_string()];
        let token = users.issue("shop", "cart", "u1", &vault, at(0), SignedDuration::from_secs(600));
        assert_eq!(users.authenticate(&token, at(1)), None);
        let asked = ["vault".to_string(), "bank".to_string()];
        assert_eq!(users.identify(&token, &asked, at(1)).unwrap().audiences, vault);
    }

    #[test]
    fn deleting_a_service_account_revokes_its_tokens_only() {
        let users = Users::new();
        users.add("static", User { name: "alice".into(), uid: "u1".into(), groups: vec![] });
        let audiences = [API_AUDIENCE.to_string()];
        let life = SignedDuration::from_secs(600);
        let gone = users.issue("shop", "cart", "u1", &audiences, at(0), life);
        let kept = users.issue("shop", "till", "u2", &audiences, at(0), life);
        users.revoke_service_account("u1");
        assert!(users.authenticate(&gone, at(1)).is_none());
        assert!(users.authenticate(&kept, at(1)).is_some());
        assert!(users.authenticate("static", at(1)).is_some());
    }
}
