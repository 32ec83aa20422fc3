//! `matchConstraints` of a policy and `matchResources` of a binding.

use serde_json::Value;

use crate::admission::request::{Operation, Request};
use crate::admission::rules::Rule;
use crate::admission::selection::Selectors;
use crate::attributes::Attributes;
use crate::error::ApiResult;

#[derive(Debug)]
pub(super) struct MatchResources {
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    selectors: Selectors,
    /// Only the versions that the rules name, not those that objects can be converted to.
    exact: bool,
}

#[derive(Debug)]
struct NamedRule {
    rule: Rule,
    /// Empty: any name.
    names: Vec<String>,
}

/// How a request was found to match: in its own version, or in another that a rule names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Matched {
    AsSent,
    InVersion(String),
}

impl MatchResources {
    pub(super) fn parse(resources: &Value) -> Self {
        Self {
            rules: named_rules(&resources["resourceRules"]),
            excluded: named_rules(&resources["excludeResourceRules"]),
            selectors: Selectors::parse(resources),
            exact: resources["matchPolicy"] == "Exact",
        }
    }

    /// Whether a rule may name such a request. Cheap, and enough to rule out most.
    pub(super) fn may_match(&self, attributes: &Attributes, operation: Operation) -> bool {
        self.rules.is_empty()
            || self.rules.iter().any(|named| match self.exact {
                true => named.rule.matches(attributes, operation),
                false => named.rule.matches_in_any_version(attributes, operation),
            })
    }

    pub(super) fn matches(&self, request: &Request<'_>, object: &Value) -> ApiResult<Option<Matched>> {
        if !self.may_match(request.attributes, request.operation) {
            return Ok(None);
        }
        let selected = self.selectors.select(request, object);
        if matches!(selected, Ok(false)) || self.named_by(&self.excluded, request, object).is_some() {
            return Ok(None);
        }
        let matched = match self.rules.is_empty() {
            true => Some(Matched::AsSent),
            false => self.named_by(&self.rules, request, object),
        };
        if matched.is_some() {
            selected?;
        }
        Ok(matched)
    }

    fn named_by(&self, rules: &[NamedRule], request: &Request<'_>, object: &Value) -> Option<Matched> {
        let attributes = request.attributes;
        let names = |rule: &NamedRule, attributes: &Attributes| {
            rule.rule.matches(attributes, request.operation)
                && (rule.names.is_empty() || rule.names.iter().any(|name| name == request.name(object)))
        };
        if rules.iter().any(|rule| names(rule, attributes)) {
            return Some(Matched::AsSent);
        }
        if self.exact || rules.is_empty() {
            return None;
        }
        let others = request.lookup.versions(&attributes.group, &attributes.resource);
        others.into_iter().filter(|version| *version != attributes.version).find_map(|version| {
            let other = Attributes { version: version.clone(), ..attributes.clone() };
            rules.iter().any(|rule| names(rule, &other)).then_some(Matched::InVersion(version))
        })
    }
}

fn named_rules(list: &Value) -> Vec<NamedRule> {
    let rules = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string)).collect()
    };
    rules
        .iter()
        .flat_map(|rule| {
            let names = strings(&rule["resourceNames"]);
            Rule::parse(rule).map(|rule| NamedRule { rule, names })
        })
        .collect()
}
