//! Who asks for what: the facts of a request that authorization and admission judge by.

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
}

/// What a request is about, as RBAC and admission see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attributes {
    /// get, list, watch, create, update, patch, delete, deletecollection; for paths the HTTP method in lower case.
    pub verb: String,
    pub group: String,
    pub version: String,
    /// Plural, empty for a request that is not about a resource.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The URL path, for requests that are not about a resource.
    pub path: String,
}
