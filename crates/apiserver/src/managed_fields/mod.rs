//! Who owns which field: `metadata.managedFields`, and server-side apply on top of it.
//!
//! Start with [`update`] (upkeep for create, update and patch) and [`apply`]. Both work on plain JSON and the
//! schema, and read no clock. A custom resource's entries of other versions are read with the schema of the
//! request's version.

mod apply;
mod check;
mod compare;
mod entries;
mod field_set;
mod last_applied;
mod merge;
mod path;
mod remove;
#[cfg(test)]
mod replay;
mod set_of;
mod shape;
mod texts;
mod update;

pub(crate) use apply::apply;
pub(crate) use check::misfits;
#[cfg(test)]
pub(crate) use compare::compare;
#[cfg(test)]
pub(crate) use entries::is_reset;
pub(crate) use merge::merge;
#[cfg(test)]
pub(crate) use set_of::set_of;
pub(crate) use texts::{EntryText, update_text};
pub(crate) use update::update;

/// Who writes, how and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    /// The field manager's name; empty becomes `unknown`.
    pub manager: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
    /// `group/version` of the request.
    pub api_version: &'a str,
    /// RFC 3339, UTC, whole seconds.
    pub now: &'a str,
    /// Fields that this endpoint resets, so that writing them claims nothing: `status` on the main resource of a
    /// kind with a status subresource, `spec` and some metadata on that subresource.
    pub reset: &'a [&'a [&'a str]],
}

/// The longest name of a field manager, in bytes.
const MAX_MANAGER: usize = 128;

/// The field manager of a request that names none: what stands before the first slash of its user agent.
pub(crate) fn manager_from_user_agent(user_agent: &str) -> String {
    let mut manager = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars() {
        if c.is_control() {
            continue;
        }
        if manager.len() + c.len_utf8() > MAX_MANAGER {
            break;
        }
        manager.push(c);
    }
    if manager.is_empty() { "unknown".to_string() } else { manager }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
