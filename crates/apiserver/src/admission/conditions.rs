//! `matchConditions` of webhooks and policies: expressions that must all be true.

use serde_json::Value;

use super::cel::{Declared, Expression, Inputs, Type};

/// The conditions of one webhook or policy, in the order written.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    pub(super) list: Vec<Expression>,
}

impl Conditions {
    /// What does not compile is an error of each request that it would be asked about.
    pub(super) fn compile(list: &Value, declared: &Declared) -> Self {
        let conditions = list.as_array().into_iter().flatten();
        let expressions = conditions.map(|condition| condition["expression"].as_str().unwrap_or_default());
        Self { list: expressions.map(|e| Expression::compile(e, declared, &[Type::Bool])).collect() }
    }

    /// Whether all hold. One that is false decides, even if others fail; otherwise the errors are told.
    ///
    /// Each is given what it reads and no more: most requests are none of a policy's by who sends them, long before their objects matter.
    pub(super) fn hold(&self, inputs: &Inputs<'_>) -> Result<bool, String> {
        let mut problems = Vec::new();
        // They come before the variables of a policy.
        let inputs = Inputs { variables: &[], ..*inputs };
        for condition in &self.list {
            match inputs.scope(&[condition], |scope| scope.holds(condition)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(problem) => problems.push(problem),
            }
        }
        match problems.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}
