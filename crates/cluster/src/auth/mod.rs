//! Who may do what: tokens to users, RBAC, access reviews, impersonation and the wording of a refusal.
//!
//! Everything here is a pure function over objects as `serde_json::Value`; the server holds the tables and calls.
//! Start with [`rbac::Rbac`], which is built from the RBAC objects and answers [`rbac::Rbac::authorize`].

pub mod access_reviews;
pub mod bootstrap;
pub mod escalation;
pub mod forbidden;
pub mod identity_reviews;
pub mod impersonation;
pub mod rbac;
pub mod rule;
pub mod service_account;
pub mod users;

pub use bootstrap::bootstrap_objects;
pub use forbidden::forbidden;
pub use rbac::{Decision, Rbac};
pub use users::Users;

/// Every caller that proved who it is.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Every caller that did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of a caller without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Members may do anything, whatever RBAC says.
pub const MASTERS: &str = "system:masters";
