//! CEL as admission has it: the expressions of match conditions and policies, compiled once and run for each request.
//!
//! An [`Expression`] is parsed, [adapted](adapt) to what the interpreter lacks (`Object{}` literals, variables that are
//! computed when somebody reads them, optional values that are compared), and checked for names and for the type it
//! must have. A [`Scope`] holds the variables of one request and runs expressions in it.

mod adapt;
mod authorizer;
mod expression;
mod json;
mod scope;
mod types;

pub(crate) use expression::{Declared, Expression, Variable};
pub(super) use json::to_json;
pub(super) use scope::{Inputs, Scope};
pub(crate) use types::Type;

#[cfg(test)]
mod tests;
