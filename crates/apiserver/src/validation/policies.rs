//! Rules of admission policies and their bindings.

use serde_json::{Value, json};

use super::fields::{list_at, str_at, strings};
use super::names;
use super::selectors::label_selector;
use super::webhooks::rule;
use crate::admission::cel::{Declared, Expression, Type};
use crate::error::{FieldError, FieldErrorKind};

type Errors = Vec<FieldError>;

const MUTATING_OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_CONDITIONS: usize = 64;

pub(crate) fn validating(object: &Value) -> Errors {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let mut declared = common(spec, &mut errors);
    variables(spec, &mut declared, &mut errors);
    let (validations, annotations) = (list_at(spec, "validations"), list_at(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let message = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required("spec.validations", message));
        errors.push(FieldError::required("spec.auditAnnotations", message));
    }
    for (index, validation) in validations.iter().enumerate() {
        self::validation(validation, &declared, &format!("spec.validations[{index}]"), &mut errors);
    }
    for (index, annotation) in annotations.iter().enumerate() {
        let path = format!("spec.auditAnnotations[{index}].valueExpression");
        match str_at(annotation, "valueExpression").trim() {
            "" => errors.push(FieldError::required(path, "valueExpression is not specified")),
            source => compile(source, &declared, &[Type::String, Type::Null], &path, &mut errors),
        }
    }
    errors
}

pub(crate) fn mutating(object: &Value) -> Errors {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let mut declared = common(spec, &mut errors);
    mutating_operations(&spec["matchConstraints"], "spec.matchConstraints", &mut errors);
    variables(spec, &mut declared, &mut errors);
    declared.patch_types = true;
    let mutations = list_at(spec, "mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (index, mutation) in mutations.iter().enumerate() {
        self::mutation(mutation, &declared, &format!("spec.mutations[{index}]"), &mut errors);
    }
    match str_at(spec, "reinvocationPolicy") {
        "" => errors.push(FieldError::required("spec.reinvocationPolicy", "")),
        "Never" | "IfNeeded" => {}
        other => {
            let accepted = ["IfNeeded", "Never"];
            errors.push(FieldError::not_supported("spec.reinvocationPolicy", other, &accepted));
        }
    }
    errors
}

pub(crate) fn validating_binding(object: &Value) -> Errors {
    let mut errors = binding(object);
    let (path, given) = ("spec.validationActions", &object["spec"]["validationActions"]);
    let actions = strings(given);
    for (index, action) in actions.iter().enumerate() {
        if !matches!(*action, "Audit" | "Deny" | "Warn") {
            let accepted = ["Audit", "Deny", "Warn"];
            errors.push(FieldError::not_supported(format!("{path}[{index}]"), *action, &accepted));
        }
        if actions[..index].contains(action) {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), *action));
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let message = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                       API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, given.clone(), message));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    errors
}

pub(crate) fn mutating_binding(object: &Value) -> Errors {
    let mut errors = binding(object);
    mutating_operations(&object["spec"]["matchResources"], "spec.matchResources", &mut errors);
    errors
}

/// What both kinds of policies begin with; the names that their expressions may use.
fn common(spec: &Value, errors: &mut Errors) -> Declared {
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], "spec", errors);
    let kind = &spec["paramKind"];
    if kind.is_object() {
        param_kind(kind, errors);
    }
    let constraints = &spec["matchConstraints"];
    if constraints.is_object() {
        match_resources(constraints, "spec.matchConstraints", errors);
        if list_at(constraints, "resourceRules").is_empty() {
            errors.push(FieldError::required("spec.matchConstraints.resourceRules", ""));
        }
    } else {
        errors.push(FieldError::required("spec.matchConstraints", ""));
    }
    let declared = Declared { params: kind.is_object(), authorizer: true, ..Declared::default() };
    match_conditions(spec, &declared, "spec.matchConditions", errors);
    declared
}

fn one_of(parent: &Value, field: &str, accepted: &[&str], path: &str, errors: &mut Errors) {
    match str_at(parent, field) {
        "" => errors.push(FieldError::required(format!("{path}.{field}"), "")),
        value if !accepted.contains(&value) => {
            errors.push(FieldError::not_supported(format!("{path}.{field}"), value, accepted));
        }
        _ => {}
    }
}

fn param_kind(kind: &Value, errors: &mut Errors) {
    let version = str_at(kind, "apiVersion");
    match version.split('/').collect::<Vec<_>>().as_slice() {
        _ if version.is_empty() => errors.push(FieldError::required("spec.paramKind.apiVersion", "")),
        [_] | [_, _] => {}
        _ => {
            let message = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid("spec.paramKind.apiVersion", version, message));
        }
    }
    if str_at(kind, "kind").is_empty() {
        errors.push(FieldError::required("spec.paramKind.kind", ""));
    }
}

fn match_resources(resources: &Value, path: &str, errors: &mut Errors) {
    one_of(resources, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        errors.extend(label_selector(&resources[field], &format!("{path}.{field}")));
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        for (index, named) in list_at(resources, field).iter().enumerate() {
            rule(named, &format!("{path}.{field}[{index}]"), errors);
        }
    }
}

/// Objects that go cannot be changed.
fn mutating_operations(resources: &Value, path: &str, errors: &mut Errors) {
    for named in list_at(resources, "resourceRules") {
        for operation in strings(&named["operations"]) {
            if !MUTATING_OPERATIONS.contains(&operation) {
                let field = format!("{path}.resourceRules.operations");
                errors.push(FieldError::not_supported(field, operation, &MUTATING_OPERATIONS));
            }
        }
    }
}

/// `matchConditions`, of policies and of webhooks.
pub(super) fn match_conditions(parent: &Value, declared: &Declared, path: &str, errors: &mut Errors) {
    let conditions = list_at(parent, "matchConditions");
    if conditions.len() > MAX_CONDITIONS {
        errors.push(FieldError::too_many(path, conditions.len() as u64, MAX_CONDITIONS as u64));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in conditions.iter().enumerate() {
        let here = format!("{path}[{index}]");
        match str_at(condition, "expression").trim() {
            "" => errors.push(FieldError::required(format!("{here}.expression"), "")),
            source => compile(source, declared, &[Type::Bool], &format!("{here}.expression"), errors),
        }
        let name = str_at(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{here}.name"), ""));
        }
        for problem in if name.is_empty() { Vec::new() } else { names::qualified_name(name) } {
            errors.push(FieldError::invalid(format!("{here}.name"), name, problem));
        }
        if !name.is_empty() && seen.contains(&name) {
            errors.push(FieldError::duplicate(format!("{here}.name"), name));
        }
        seen.push(name);
    }
}

fn variables(spec: &Value, declared: &mut Declared, errors: &mut Errors) {
    for (index, variable) in list_at(spec, "variables").iter().enumerate() {
        let path = format!("spec.variables[{index}]");
        let (name, source) = (str_at(variable, "name"), str_at(variable, "expression"));
        if name.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), "name is not specified"));
        } else if !is_identifier(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), name, "must be a valid CEL identifier"));
        }
        if source.trim().is_empty() {
            errors.push(FieldError::required(format!("{path}.expression"), "expression is not specified"));
            continue;
        }
        let expression = Expression::compile(source, declared, &[]);
        if let Some(problem) = expression.problem() {
            errors.push(FieldError::invalid(format!("{path}.expression"), source, problem));
        }
        expression.declare(name, declared);
    }
}

fn is_identifier(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !crate::crd::RESERVED.contains(&name)
}

fn validation(validation: &Value, declared: &Declared, path: &str, errors: &mut Errors) {
    let source = str_at(validation, "expression");
    match source.trim() {
        "" => errors.push(FieldError::required(format!("{path}.expression"), "expression is not specified")),
        _ => compile(source, declared, &[Type::Bool], &format!("{path}.expression"), errors),
    }
    let of_message = Declared { authorizer: false, ..declared.clone() };
    let message_expression = str_at(validation, "messageExpression");
    let field = format!("{path}.messageExpression");
    match (message_expression, message_expression.trim()) {
        ("", _) => {}
        (given, "") => errors.push(FieldError::invalid(field, given, "must be non-empty if specified")),
        (given, _) => compile(given, &of_message, &[Type::String], &field, errors),
    }
    let message = str_at(validation, "message");
    let field = format!("{path}.message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(field, message, "must be non-empty if specified"));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(field, message, "must not contain line breaks"));
    }
    if let Some(reason) = validation["reason"].as_str()
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, &REASONS));
    }
}

fn mutation(mutation: &Value, declared: &Declared, path: &str, errors: &mut Errors) {
    let (own, other, wanted) = match str_at(mutation, "patchType") {
        "" => return errors.push(FieldError::required(format!("{path}.patchType"), "")),
        "JSONPatch" => {
            let patches = Type::List(Box::new(Type::Named("JSONPatch".into())));
            ("jsonPatch", "applyConfiguration", patches)
        }
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Type::Named("Object".into())),
        unknown => {
            let accepted = ["ApplyConfiguration", "JSONPatch"];
            return errors.push(FieldError::not_supported(format!("{path}.patchType"), unknown, &accepted));
        }
    };
    let patch_type = str_at(mutation, "patchType");
    let field = format!("{path}.{own}");
    match (mutation[own].is_object(), str_at(&mutation[own], "expression").trim()) {
        (false, _) => {
            errors.push(FieldError::required(
                field,
                format!("must be specified when patchType is {patch_type}"),
            ));
        }
        (true, "") => errors.push(FieldError::required(format!("{field}.expression"), "")),
        (true, source) => compile(source, declared, &[wanted], &format!("{field}.expression"), errors),
    }
    if mutation[other].is_object() {
        let message = format!("must not be specified when patchType is {patch_type}");
        errors.push(FieldError::invalid(format!("{path}.{other}"), format!("{{{other}}}"), message));
    }
}

fn compile(source: &str, declared: &Declared, wanted: &[Type], path: &str, errors: &mut Errors) {
    let expression = Expression::compile(source, declared, wanted);
    if let Some(problem) = expression.problem() {
        errors.push(FieldError::invalid(path, source, problem));
    }
}

fn binding(object: &Value) -> Errors {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    match str_at(spec, "policyName") {
        "" => errors.push(FieldError::required("spec.policyName", "")),
        name => {
            let problems = names::dns_subdomain(name);
            errors.extend(problems.into_iter().map(|p| FieldError::invalid("spec.policyName", name, p)));
        }
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &mut errors);
    }
    if spec["matchResources"].is_object() {
        match_resources(&spec["matchResources"], "spec.matchResources", &mut errors);
    }
    errors
}

fn param_ref(reference: &Value, errors: &mut Errors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (path, name) = ("spec.paramRef", str_at(reference, "name"));
    let selects = reference["selector"].is_object();
    if !name.is_empty() && selects {
        errors.push(FieldError::forbidden(format!("{path}.name"), EXCLUSIVE));
    }
    if selects {
        errors.extend(label_selector(&reference["selector"], &format!("{path}.selector")));
    }
    if !name.is_empty() && selects {
        errors.push(FieldError::forbidden(format!("{path}.selector"), EXCLUSIVE));
    }
    if name.is_empty() && !selects {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    let field = format!("{path}.parameterNotFoundAction");
    match str_at(reference, "parameterNotFoundAction") {
        "" => errors.push(FieldError::required(field, "")),
        "Allow" | "Deny" => {}
        other => errors.push(FieldError::new(
            FieldErrorKind::NotSupported,
            field,
            json!(other),
            "supported values: \"Deny\", \"Allow\"",
        )),
    }
}
