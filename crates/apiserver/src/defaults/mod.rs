//! What the server adds to and takes from objects of built-in kinds before it looks at them: defaults
//! ([`apply_defaults`]), what a new object gets ([`prepare_create`], [`admit_pod`]), and the checks of decoding
//! ([`check_types`], [`drop_unknown`]).

mod admit;
mod create;
mod decode;
mod image;
mod qos;
mod rules;
mod table;
mod time;
mod walk;

pub(crate) use admit::{PodPriority, admit_pod};
pub(crate) use create::prepare_create;
pub(crate) use decode::{check_types, drop_unknown, refused, strict_error, type_problem};
#[cfg(test)]
pub(crate) use qos::qos_class;
pub(crate) use walk::{apply_defaults, fill_in};

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
