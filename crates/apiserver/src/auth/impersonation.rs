//! Acting as somebody else: the `Impersonate-*` headers, as `kubectl --as` sends them.
//!
//! Since v1.36 there are two ways to be allowed. The old one: the verb `impersonate` on users, groups, service
//! accounts. The constrained one: `impersonate:MODE` on these, in the group authentication.k8s.io, *and*
//! `impersonate-on:MODE:VERB` on what the request is about. The constrained modes are tried first, and the first
//! refusal is the one that is told.

use std::collections::BTreeMap;

use http::HeaderMap;

use super::forbidden::forbidden;
use super::rbac::Rbac;
use super::service_account;
use super::{ANONYMOUS, AUTHENTICATED, MASTERS, UNAUTHENTICATED};
use crate::attributes::{Attributes, User};
use crate::error::{ApiError, ApiResult};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From so many groups on, a right to impersonate every group is looked for first.
const MANY: usize = 4;

/// Whom a request wants to act as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    pub user: User,
    /// Checked, but not kept: users have no extra values here.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Reads the headers. `None`: the request acts as itself.
pub(crate) fn wanted(headers: &HeaderMap) -> ApiResult<Option<Wanted>> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let first = |name: &str| headers.get(name).map(text).unwrap_or_default();
    let user = User {
        name: first(USER),
        uid: first(UID),
        groups: headers.get_all(GROUP).iter().map(text).collect(),
    };
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            extra.entry(unescape(key)).or_default().push(text(value));
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(Wanted { user, extra }));
    }
    if user.uid.is_empty() && user.groups.is_empty() && extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!(
        "requested {} without impersonating a user name",
        shown(&Wanted { user, extra })
    )))
}

/// The user to go on with, if `caller` may act as the wanted one for this request.
pub(crate) fn impersonate(
    caller: &User,
    wanted: &Wanted,
    attributes: &Attributes,
    rbac: &Rbac,
) -> ApiResult<User> {
    let mut refusal = None;
    for mode in Mode::ALL {
        match mode.check(caller, wanted, attributes, rbac) {
            Some(Ok(user)) => return Ok(user),
            Some(Err(error)) => {
                refusal.get_or_insert(error);
            }
            None => {}
        }
    }
    Err(refusal.unwrap_or_else(|| forbidden(caller, attributes, "all impersonation modes failed")))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    Legacy,
}

impl Mode {
    const ALL: [Self; 4] = [Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    /// Whether this mode is for users of that sort at all.
    fn applies(self, wanted: &Wanted) -> bool {
        let (node, account) = (node(&wanted.user.name), service_account::split_username(&wanted.user.name));
        let only_name =
            wanted.user.uid.is_empty() && wanted.user.groups.is_empty() && wanted.extra.is_empty();
        match self {
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => only_name && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }

    fn check(
        self,
        caller: &User,
        wanted: &Wanted,
        attributes: &Attributes,
        rbac: &Rbac,
    ) -> Option<ApiResult<User>> {
        self.applies(wanted).then(|| {
            let allow = |attributes: &Attributes| {
                let decision = rbac.authorize(caller, attributes);
                if decision.allowed { Ok(()) } else { Err(forbidden(caller, attributes, &decision.reason)) }
            };
            if self != Self::Legacy {
                let verb = format!("impersonate-on:{}:{}", self.name(), attributes.verb);
                allow(&Attributes { verb, ..attributes.clone() })?;
            }
            self.check_identity(caller, wanted, allow)
        })
    }

    fn check_identity(
        self,
        caller: &User,
        wanted: &Wanted,
        allow: impl Fn(&Attributes) -> ApiResult<()>,
    ) -> ApiResult<User> {
        let constrained = self != Self::Legacy;
        let verb =
            if constrained { format!("impersonate:{}", self.name()) } else { "impersonate".to_string() };
        let about = |group: &str, resource: &str, name: &str| Attributes {
            verb: verb.clone(),
            group: group.to_string(),
            version: "v1".to_string(),
            resource: resource.to_string(),
            name: name.to_string(),
            ..Default::default()
        };
        let group = if constrained { AUTHENTICATION } else { "" };
        let mut user = wanted.user.clone();

        let mut identity = about(group, "users", &user.name);
        if let Some(name) = node(&wanted.user.name).filter(|_| constrained) {
            identity = about(group, "nodes", name);
            user.groups = vec!["system:nodes".to_string()];
        }
        if let Some((namespace, name)) = service_account::split_username(&wanted.user.name) {
            identity =
                Attributes { namespace: namespace.to_string(), ..about(group, "serviceaccounts", name) };
            if user.groups.is_empty() {
                user.groups = service_account::groups(namespace);
            }
        }
        allow(&identity)?;

        if !user.uid.is_empty() {
            allow(&about(AUTHENTICATION, "uids", &user.uid))?;
        }

        let groups = &wanted.user.groups;
        if constrained && groups.iter().any(String::is_empty) {
            let reason = "impersonating the empty string group is not allowed";
            return Err(forbidden(caller, &about(group, "groups", ""), reason));
        }
        if constrained && groups.iter().any(|g| g == MASTERS) {
            let reason = "impersonating the system:masters group is not allowed";
            return Err(forbidden(caller, &about(group, "groups", MASTERS), reason));
        }
        let all_groups = constrained && groups.len() >= MANY && allow(&about(group, "groups", "*")).is_ok();
        if !all_groups {
            for name in groups {
                allow(&about(group, "groups", name))?;
            }
        }

        for (key, values) in &wanted.extra {
            for value in values {
                let subresource = key.clone();
                allow(&Attributes { subresource, ..about(AUTHENTICATION, "userextras", value) })?;
            }
        }

        let ensure = if user.name == ANONYMOUS {
            UNAUTHENTICATED
        } else if user.groups.iter().any(|g| g == UNAUTHENTICATED) {
            return Ok(user);
        } else {
            AUTHENTICATED
        };
        if !user.groups.iter().any(|g| g == ensure) {
            user.groups.push(ensure.to_string());
        }
        Ok(user)
    }
}

fn node(username: &str) -> Option<&str> {
    username.strip_prefix("system:node:").filter(|name| service_account::is_dns_subdomain(name))
}

/// Keys of extra values are percent-encoded in the header's name.
fn unescape(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let bytes = key.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%').then(|| key.get(i + 1..i + 3)).flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(byte);
            i += 3;
        } else {
            out.push(bytes[i]);
            i += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_string())
}

/// The API server prints its own structure in this error; so do we.
fn shown(wanted: &Wanted) -> String {
    let quoted = |list: &[String]| list.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ");
    let groups = match wanted.user.groups.as_slice() {
        [] => "[]string(nil)".to_string(),
        some => format!("[]string{{{}}}", quoted(some)),
    };
    let extra = if wanted.extra.is_empty() {
        "map[string][]string(nil)".to_string()
    } else {
        let entries: Vec<String> =
            wanted.extra.iter().map(|(k, v)| format!("{k:?}:[]string{{{}}}", quoted(v))).collect();
        format!("map[string][]string{{{}}}", entries.join(", "))
    };
    let (name, uid) = (&wanted.user.name, &wanted.user.uid);
    format!("&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
#[path = "impersonation_tests.rs"]
mod tests;
