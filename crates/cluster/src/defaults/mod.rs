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

pub use admit::{PodPriority, admit_pod};
pub use create::prepare_create;
pub use decode::{check_types, drop_unknown, refused, strict_error, type_problem};
pub use qos::qos_class;
pub use walk::{apply_defaults, fill_in};

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
