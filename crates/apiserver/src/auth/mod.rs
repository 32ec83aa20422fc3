//! Who may do what: tokens to users, RBAC, access reviews, impersonation and the wording of a refusal.
//!
//! Everything here is a pure function over objects as `serde_json::Value`; the server holds the tables and calls.
//! Start with [`rbac::Rbac`], which is built from the RBAC objects and answers [`rbac::Rbac::authorize`].

pub(crate) mod access_reviews;
pub(crate) mod bootstrap;
pub(crate) mod escalation;
pub(crate) mod forbidden;
pub(crate) mod identity_reviews;
pub(crate) mod impersonation;
pub(crate) mod rbac;
pub(crate) mod rule;
pub(crate) mod service_account;
pub(crate) mod users;

pub(crate) use bootstrap::bootstrap_objects;
pub(crate) use forbidden::forbidden;
pub(crate) use rbac::{Decision, Rbac};
pub(crate) use users::Users;

/// Every caller that proved who it is.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Every caller that did not.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of a caller without credentials.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Members may do anything, whatever RBAC says.
pub const MASTERS: &str = "system:masters";
