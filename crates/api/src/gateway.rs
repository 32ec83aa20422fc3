//! The gateway: plain evictions, of callers that know nothing of eviction requests. What becomes of them ([`GatewayMode`]), in whose
//! name they are asked for ([`requester_of_user`]), and how that is remembered on the request ([`Ask`]).

use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::names::{ASK_ANNOTATION_PREFIX, REQUESTER_FINALIZER_PREFIX, RequesterName, room_behind};

/// What becomes of a plain eviction of a pod that has interceptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GatewayMode {
    /// It is carried out, as without Usher.
    #[default]
    Off,
    /// It is refused until no interceptor is left; somebody has to ask by an EvictionRequest.
    Block,
    /// It is refused until no interceptor is left, and asked for by an EvictionRequest in the caller's name.
    Request,
}

impl GatewayMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Block, Self::Request];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Block => "block",
            Self::Request => "request",
        }
    }
}

/// No mode has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode {0:?}: use off, block or request")]
pub struct NoMode(pub String);

impl FromStr for GatewayMode {
    type Err = NoMode;

    fn from_str(text: &str) -> Result<Self, NoMode> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| NoMode(text.to_owned()))
    }
}

/// Requesters of the gateway end so. A service account keeps its name and namespace, so that people find it again.
const OF_SERVICE_ACCOUNTS: &str = ".sa.gateway";
const OF_USERS: &str = ".user.gateway";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Hexadecimal digits that tell apart users whose names are not subdomains.
const DIGITS: usize = 12;

/// The requester in whose name the gateway asks for this user. Different users have different ones, and each has the same every time.
pub fn requester_of_user(user: &str) -> RequesterName {
    let account = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
    if let Some((namespace, name)) = account {
        let requester = RequesterName::new(&format!("{name}.{namespace}{OF_SERVICE_ACCOUNTS}"));
        if let Ok(requester) = requester
            && !namespace.contains('.')
        {
            return requester;
        }
    }
    let end = if account.is_some() { OF_SERVICE_ACCOUNTS } else { OF_USERS };
    let readable = account.map_or(user, |(_, name)| name);
    let room = room_behind(REQUESTER_FINALIZER_PREFIX) - end.len() - DIGITS - 1;
    let mut slug = String::new();
    for letter in readable.chars().take(4 * room) {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => slug.push(letter),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(room);
    let slug = slug.trim_end_matches('-');
    let digits = &format!("{:016x}", fnv(user))[..DIGITS];
    RequesterName(if slug.is_empty() { format!("{digits}{end}") } else { format!("{slug}-{digits}{end}") })
}

/// Whether the gateway asks in this name.
pub fn is_of_gateway(requester: &str) -> bool {
    requester.ends_with(OF_SERVICE_ACCOUNTS) || requester.ends_with(OF_USERS)
}

/// FNV-1a: the same in every version and on every machine. Two users who share it would share a requester, and gain nothing by it.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A plain eviction that the gateway turned into a request, or joined to one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ask {
    /// The user who asked.
    pub by: String,
    /// When it was last asked, give or take half a minute.
    pub at: Time,
    /// The grace period that the caller gave, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
}

/// Names of users may have any length; nobody reads more.
const USER_MAX: usize = 256;

impl Ask {
    /// Asked by this user at this time.
    pub fn new(user: &str, at: Time, grace_period_seconds: Option<i64>) -> Self {
        Self { by: user.chars().take(USER_MAX).collect(), at, grace_period_seconds }
    }

    /// The annotation by which it is remembered.
    pub fn annotation(&self, requester: &str) -> (String, String) {
        let text = serde_json::to_string(self).unwrap_or_default();
        (format!("{ASK_ANNOTATION_PREFIX}{requester}"), text)
    }

    /// The requester and what it asked, if the annotation is one of the gateway's.
    pub fn of_annotation<'a>(key: &'a str, value: &str) -> Option<(&'a str, Self)> {
        let requester = key.strip_prefix(ASK_ANNOTATION_PREFIX)?;
        Some((requester, serde_json::from_str(value).ok()?))
    }
}

/// How somebody's [`Ask`] gets onto the request of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayToAsk {
    /// There is no request: make one.
    Create,
    /// Others have asked: join them.
    Join,
    /// It has asked: remember that it still does.
    Remember,
}

/// What kind of caller asks, as far as its name tells. A label of metrics, so there are few.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallerClass {
    /// Karpenter.
    Karpenter,
    /// The cluster autoscaler.
    ClusterAutoscaler,
    /// Cluster API.
    ClusterApi,
    /// kured, which reboots nodes.
    Kured,
    /// The descheduler.
    Descheduler,
    /// Another service account.
    ServiceAccount,
    /// A component of the control plane, or a node.
    System,
    /// Everybody else: people, mostly with kubectl.
    User,
}

impl CallerClass {
    /// By the name of the user.
    pub fn of_user(user: &str) -> Self {
        let Some((_, name)) = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':')) else {
            return if user.starts_with("system:") { Self::System } else { Self::User };
        };
        let known = [
            ("karpenter", Self::Karpenter),
            ("cluster-autoscaler", Self::ClusterAutoscaler),
            ("capi-", Self::ClusterApi),
            ("kured", Self::Kured),
            ("descheduler", Self::Descheduler),
        ];
        let found = known.into_iter().find(|(part, _)| name.contains(part));
        found.map_or(Self::ServiceAccount, |(_, class)| class)
    }

    /// As metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Karpenter => "karpenter",
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::ClusterApi => "cluster-api",
            Self::Kured => "kured",
            Self::Descheduler => "descheduler",
            Self::ServiceAccount => "serviceaccount",
            Self::System => "system",
            Self::User => "user",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn whoever_evicts_has_a_requester_name_of_its_own() {
        let exact = [
            ("system:serviceaccount:kube-system:karpenter", "karpenter.kube-system.sa.gateway"),
            ("system:serviceaccount:b:a.c", "a.c.b.sa.gateway"),
        ];
        for (user, wanted) in exact {
            assert_eq!(requester_of_user(user).as_str(), wanted);
        }
        let long = "x".repeat(300);
        let users = [
            "alice",
            "Alice",
            "alice@example.com",
            "alice.example.com",
            "",
            "::",
            "\u{1f600}",
            "system:admin",
            "system:serviceaccount:a:",
            "system:serviceaccount:a.b:c",
            "system:serviceaccount:b:c.a",
            &long,
            &format!("system:serviceaccount:default:{long}"),
            "system:serviceaccount:user:x",
            "system:serviceaccount:sa:user",
        ];
        let name_of_user = |user: &str| requester_of_user(user).as_str().to_owned();
        let names: BTreeSet<String> = users.iter().map(|user| name_of_user(user)).collect();
        assert_eq!(names.len(), users.len(), "{names:?}");
        for name in &names {
            assert_eq!(RequesterName::new(name), Ok(RequesterName(name.clone())), "a finalizer can have it");
            assert!(is_of_gateway(name), "{name}");
        }
        assert!(name_of_user("alice@example.com").starts_with("alice-example-com-"));
        assert!(!is_of_gateway("nodemaintenance.k8s.io"));
    }

    #[test]
    fn an_ask_is_read_as_it_was_written() {
        let at: Time = serde_json::from_str("\"2026-01-01T12:00:00Z\"").unwrap();
        let ask = Ask::new("alice", at, Some(30));
        let (key, value) = ask.annotation("alice.user.gateway");
        assert_eq!(key, "gateway.evictionrequest.coordination.k8s.io/alice.user.gateway");
        assert_eq!(value, r#"{"by":"alice","at":"2026-01-01T12:00:00Z","gracePeriodSeconds":30}"#);
        assert_eq!(Ask::of_annotation(&key, &value), Some(("alice.user.gateway", ask)));
        for (key, value) in [("team", "{}"), (key.as_str(), "yes"), (key.as_str(), r#"{"by": "x"}"#)] {
            assert_eq!(Ask::of_annotation(key, value), None, "{key} {value}");
        }
    }

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in GatewayMode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        let refused = "on".parse::<GatewayMode>().unwrap_err().to_string();
        assert_eq!(refused, "there is no mode \"on\": use off, block or request");
    }

    #[test]
    fn callers_are_told_apart_by_their_names() {
        for (user, wanted) in [
            ("system:serviceaccount:kube-system:karpenter", CallerClass::Karpenter),
            ("system:serviceaccount:kube-system:cluster-autoscaler-aws", CallerClass::ClusterAutoscaler),
            ("system:serviceaccount:capi-system:capi-manager", CallerClass::ClusterApi),
            ("system:serviceaccount:shop:karpenter-lookalike", CallerClass::Karpenter),
            ("system:serviceaccount:shop:web", CallerClass::ServiceAccount),
            ("system:node:n1", CallerClass::System),
            ("karpenter", CallerClass::User),
        ] {
            assert_eq!(CallerClass::of_user(user), wanted, "{user}");
        }
    }
}
