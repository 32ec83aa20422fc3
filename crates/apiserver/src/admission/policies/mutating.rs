//! MutatingAdmissionPolicy: expressions that say how an object is to be changed.

use serde_json::{Value, json};

use super::merging;
use super::policy::{Binding, Invocation, Policy, is_exempt, name_of, namespace_object, shown_name};
use crate::admission::cel::{Declared, Expression, Inputs, Type, to_json};
use crate::admission::mutation::Reinvocation;
use crate::admission::patch::{self, Problem};
use crate::admission::request::{Operation, Request};
use crate::attributes::Attributes;
use crate::auth::forbidden::forbidden_because;
use crate::error::{ApiError, ApiResult};
use crate::schema::SchemaRef;

/// All mutating policies that have a binding, compiled.
#[derive(Debug, Default)]
pub(crate) struct MutatingPolicies {
    policies: Vec<MutatingPolicy>,
}

#[derive(Debug)]
struct MutatingPolicy {
    policy: Policy,
    mutations: Vec<Mutation>,
    /// To be evaluated again if a later policy or webhook changed the object.
    reinvoke: bool,
}

#[derive(Debug)]
enum Mutation {
    ApplyConfiguration(Expression),
    JsonPatch(Expression),
}

/// What is known of the kind of the object that is to be changed.
pub(crate) struct Target<'a> {
    pub schema: Option<SchemaRef<'a>>,
    /// Fills in defaults, after each change.
    pub default: &'a (dyn Fn(&mut Value) + Sync),
}

/// Which evaluation: of the policy, by the binding, with the parameters.
type Key = (String, String, String);

impl MutatingPolicies {
    pub(crate) fn compile(policies: &[Value], bindings: &[Value]) -> Self {
        let mut policies: Vec<_> =
            policies.iter().filter_map(|policy| MutatingPolicy::compile(policy, bindings)).collect();
        policies.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
        Self { policies }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Whether any rule names such a request. If not, `mutate` would do nothing.
    pub(crate) fn any_match(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.policies.iter().any(|own| own.policy.may_match(attributes, operation)) && !is_exempt(attributes)
    }

    /// Lets the policies change the object, one after another.
    pub(in crate::admission) fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        target: &Target<'_>,
        reinvocation: &mut Reinvocation<Key>,
    ) -> ApiResult<()> {
        if self.policies.is_empty() || object.is_null() || is_exempt(request.attributes) {
            return Ok(());
        }
        reinvocation.start(object);
        // Whom the request concerns is decided by the object as it came.
        let asked: Vec<_> =
            self.policies.iter().map(|own| (own, own.policy.asked(request, object))).collect();
        let mut problems = Vec::new();
        let mut invocations = Vec::new();
        for (own, asked) in asked {
            for asked in asked {
                match asked {
                    Ok(invocation) => invocations.push((own, invocation)),
                    Err(problem) => own.fail(problem.binding, &problem.message, "Forbidden", &mut problems),
                }
            }
        }
        for (own, invocation) in invocations {
            own.invoke(&invocation, request, object, target, reinvocation, &mut problems);
        }
        reinvocation.finish(object);
        refusal(request, object, &problems)
    }
}

impl MutatingPolicy {
    fn compile(policy: &Value, bindings: &[Value]) -> Option<Self> {
        let spec = &policy["spec"];
        let (policy, declared) = Policy::compile(policy, bindings)?;
        let mutations = spec["mutations"].as_array().into_iter().flatten();
        let mutations = mutations.filter_map(|m| Mutation::compile(m, &declared)).collect();
        Some(Self { policy, mutations, reinvoke: spec["reinvocationPolicy"] == "IfNeeded" })
    }

    fn invoke(
        &self,
        invocation: &Invocation<'_>,
        request: &Request<'_>,
        object: &mut Value,
        target: &Target<'_>,
        reinvocation: &mut Reinvocation<Key>,
        problems: &mut Vec<(String, &'static str)>,
    ) {
        let binding = invocation.binding;
        let params = invocation.params.as_ref().map(name_of).unwrap_or_default();
        let key = (self.policy.name.clone(), binding.name.clone(), params);
        if !reinvocation.is_due(&key) {
            return;
        }
        let namespace = namespace_object(request);
        let before = object.clone();
        let inputs = Inputs {
            request,
            object: &before,
            params: invocation.params.as_ref(),
            namespace: namespace.as_ref(),
            version: invocation.version.as_deref(),
            variables: &self.policy.variables,
        };
        match self.policy.conditions.hold(&inputs) {
            Ok(true) => {}
            Ok(false) => return,
            Err(problem) => return self.fail(Some(binding), &problem, "Invalid", problems),
        }
        for mutation in &self.mutations {
            let changed = Inputs { object, ..inputs }.scope(&[mutation.expression()], |scope| {
                let value = scope.evaluate(mutation.expression())?;
                mutation.apply(object, to_json(&value)?, target)
            });
            match changed {
                Ok(mut changed) => {
                    (target.default)(&mut changed);
                    *object = changed;
                }
                Err(problem) => self.fail(Some(binding), &problem, "Invalid", problems),
            }
        }
        if *object != before {
            reinvocation.changed();
        }
        if self.reinvoke {
            reinvocation.may_see_again(key);
        }
    }

    /// What failed is an error of the request, unless the policy says to ignore it.
    fn fail(
        &self,
        binding: Option<&Binding>,
        problem: &str,
        reason: &'static str,
        problems: &mut Vec<(String, &'static str)>,
    ) {
        let name = &self.policy.name;
        let message = match binding {
            Some(binding) => {
                format!("policy '{name}' with binding '{}' denied request: {problem}", binding.name)
            }
            None => format!("policy {name:?} denied request: {problem}"),
        };
        if self.policy.fail_closed {
            problems.push((message, reason));
        } else {
            tracing::warn!("ignored: {message}");
        }
    }
}

impl Mutation {
    fn compile(mutation: &Value, declared: &Declared) -> Option<Self> {
        let declared = Declared { patch_types: true, ..declared.clone() };
        let expression = |field: &str, wanted| {
            let source = mutation[field]["expression"].as_str().unwrap_or_default().trim();
            Expression::compile(source, &declared, &[wanted])
        };
        match mutation["patchType"].as_str()? {
            "ApplyConfiguration" => {
                Some(Self::ApplyConfiguration(expression("applyConfiguration", Type::Named("Object".into()))))
            }
            "JSONPatch" => {
                let patches = Type::List(Box::new(Type::Named("JSONPatch".into())));
                Some(Self::JsonPatch(expression("jsonPatch", patches)))
            }
            _ => None,
        }
    }

    fn expression(&self) -> &Expression {
        match self {
            Self::ApplyConfiguration(expression) | Self::JsonPatch(expression) => expression,
        }
    }

    fn apply(&self, object: &Value, value: Value, target: &Target<'_>) -> Result<Value, String> {
        match (self, value) {
            (Self::ApplyConfiguration(_), configuration @ Value::Object(_)) => match target.schema {
                Some(schema) => merging::apply(object, configuration, schema)
                    .map_err(|problem| format!("error applying patch: {problem}")),
                None => Err("error applying patch: the kind has no schema".to_string()),
            },
            (Self::JsonPatch(_), Value::Array(operations)) => {
                let mut patched = object.clone();
                match patch::apply(&mut patched, &operations) {
                    // A test that fails is how a patch says that it is not needed.
                    Ok(_) | Err(Problem::TestFailed(_)) => Ok(patched),
                    Err(Problem::Undecodable(why) | Problem::DoesNotApply(why)) => {
                        Err(format!("JSON Patch: {why}"))
                    }
                }
            }
            (Self::ApplyConfiguration(_), other) => {
                Err(format!("unsupported return type from ApplyConfiguration expression: {other}"))
            }
            (Self::JsonPatch(_), _) => {
                Err("type mismatch: JSONPatchType.expression should evaluate to array".to_string())
            }
        }
    }
}

fn refusal(request: &Request<'_>, object: &Value, problems: &[(String, &'static str)]) -> ApiResult<()> {
    let Some((message, reason)) = problems.first() else { return Ok(()) };
    let a = request.attributes;
    let mut error: ApiError = forbidden_because(&a.group, &a.resource, shown_name(request, object), message);
    error.message.clone_from(message);
    error.reason = reason;
    error.details["causes"] = problems.iter().map(|(message, _)| json!({"message": message})).collect();
    Err(error)
}
