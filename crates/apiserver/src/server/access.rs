//! Who is asking, and whether they may.

use http::{HeaderMap, header};

use super::Server;
use crate::attributes::{Attributes, User};
use crate::auth::{self, Rbac};
use crate::error::{ApiError, ApiResult};
use crate::store::Object;

const ROLES: [&str; 4] = [
    "rbac.authorization.k8s.io/roles",
    "rbac.authorization.k8s.io/rolebindings",
    "rbac.authorization.k8s.io/clusterroles",
    "rbac.authorization.k8s.io/clusterrolebindings",
];

impl Server {
    /// The caller by bearer token; `trusted` is who a caller without any token is.
    pub(super) fn authenticate(&self, headers: &HeaderMap, trusted: Option<&User>) -> ApiResult<User> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(trusted.cloned().unwrap_or_else(auth::users::anonymous));
        };
        value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .and_then(|(_, token)| self.users.authenticate(token.trim(), self.now()))
            .ok_or_else(|| ApiError::new(401, "Unauthorized", "Unauthorized"))
    }

    /// The rights as the RBAC objects give them now.
    pub(crate) fn rbac(&self) -> std::sync::Arc<Rbac> {
        self.rbac.get(&self.store, &ROLES, || {
            let [roles, role_bindings, cluster_roles, cluster_role_bindings] = ROLES.map(|resource| {
                let objects = self.store.list(resource, None).objects;
                objects.iter().map(|object: &std::sync::Arc<Object>| object.value()).collect::<Vec<_>>()
            });
            Rbac::build(
                roles.iter(),
                role_bindings.iter(),
                cluster_roles.iter(),
                cluster_role_bindings.iter(),
            )
        })
    }

    pub(super) fn authorize(&self, user: &User, attributes: &Attributes) -> ApiResult<()> {
        if auth::rbac::is_superuser(user) {
            return Ok(());
        }
        let decision = self.rbac().authorize(user, attributes);
        if decision.allowed { Ok(()) } else { Err(auth::forbidden(user, attributes, &decision.reason)) }
    }
}
