//! Label selectors, as lists of requirements and as text.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use usher_api::domain::is_subdomain;

use crate::cluster::Labels;

/// Requirements that must all hold. One without any selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    pub key: String,
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Test {
    /// Sorted, and each once.
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Test {
    pub fn admits(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(values), Some(value)) => has(values, value),
            (Self::NotIn(values), Some(value)) => !has(values, value),
            (Self::Exists, value) => value.is_some(),
            (Self::DoesNotExist, value) => value.is_none(),
            (Self::GreaterThan(than), Some(value)) => value.parse::<i64>().is_ok_and(|value| value > *than),
            (Self::LessThan(than), Some(value)) => value.parse::<i64>().is_ok_and(|value| value < *than),
            (Self::NotIn(_), None) => true,
            (Self::In(_) | Self::GreaterThan(_) | Self::LessThan(_), None) => false,
        }
    }
}

fn has(values: &[String], value: &str) -> bool {
    values.binary_search_by(|one| one.as_str().cmp(value)).is_ok()
}

fn sorted(mut values: Vec<String>) -> Vec<String> {
    values.sort();
    values.dedup();
    values
}

/// Why a selector is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("{operator:?} is not an operator of label selectors")]
    Operator { operator: String },
    #[error("{operator} of {key} {wants}")]
    Values { key: String, operator: String, wants: &'static str },
    #[error("{rest:?} is not understood in a label selector")]
    Text { rest: String },
    #[error("a requirement has no key")]
    NoKey,
}

impl Requirement {
    /// A requirement as it is written in lists of expressions.
    pub fn new(key: &str, operator: &str, values: &[String]) -> Result<Self, SelectorError> {
        if key.is_empty() {
            return Err(SelectorError::NoKey);
        }
        let wrong =
            |wants| SelectorError::Values { key: key.to_owned(), operator: operator.to_owned(), wants };
        let number = || match values {
            [one] => one.parse::<i64>().map_err(|_| wrong("wants a number")),
            _ => Err(wrong("wants one number")),
        };
        let test = match operator {
            "In" | "NotIn" if values.is_empty() => return Err(wrong("wants values")),
            "In" => Test::In(sorted(values.to_vec())),
            "NotIn" => Test::NotIn(sorted(values.to_vec())),
            "Exists" | "DoesNotExist" if !values.is_empty() => return Err(wrong("wants no values")),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            "Gt" => Test::GreaterThan(number()?),
            "Lt" => Test::LessThan(number()?),
            _ => return Err(SelectorError::Operator { operator: operator.to_owned() }),
        };
        Ok(Self { key: key.to_owned(), test })
    }
}

impl Selector {
    pub fn new(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort();
        requirements.dedup();
        Self { requirements }
    }

    /// The selector of an object. One without anything selects everything.
    pub fn of(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) });
        }
        for expression in selector.match_expressions.iter().flatten() {
            if !matches!(expression.operator.as_str(), "In" | "NotIn" | "Exists" | "DoesNotExist") {
                return Err(SelectorError::Operator { operator: expression.operator.clone() });
            }
            let values = expression.values.as_deref().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, &expression.operator, values)?);
        }
        Ok(Self::new(requirements))
    }

    /// A selector as text: `a=b, c!=d, e in (f, g), !h, i`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (requirement, after) = parse_one(rest)?;
            requirements.push(requirement);
            rest = after.trim_start();
            if !rest.is_empty() {
                let next = rest.strip_prefix(',').map(str::trim_start).filter(|next| !next.is_empty());
                rest = next.ok_or_else(|| SelectorError::Text { rest: rest.to_owned() })?;
            }
        }
        Ok(Self::new(requirements))
    }

    /// The same, and these labels too.
    pub fn and_labels<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut requirements = self.requirements.clone();
        for (key, value) in labels {
            requirements.push(Requirement { key: key.to_owned(), test: Test::In(vec![value.to_owned()]) });
        }
        Self::new(requirements)
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|one| one.test.admits(labels.get(&one.key)))
    }

    /// Keys and values that no label can have: who selects by them means another one.
    pub fn wrong_labels(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for Requirement { key, test } in &self.requirements {
            if !is_label_key(key) {
                wrong.push(format!(
                    "{key:?} is no key of a label: letters, digits, '-', '_' and '.', at most 63, after a domain and '/' if it has one"
                ));
            }
            if let Test::In(values) | Test::NotIn(values) = test {
                wrong.extend(values.iter().filter(|value| !value.is_empty() && !is_label_name(value)).map(
                    |value| {
                        format!(
                            "{value:?} is no value of a label: letters, digits, '-', '_' and '.', at most 63"
                        )
                    },
                ));
            }
        }
        wrong
    }

    /// A label that everything selected carries, if there is one: what selectors are looked up by.
    pub(crate) fn certain_label(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|one| match &one.test {
            Test::In(values) => match values.as_slice() {
                [value] => Some((one.key.as_str(), value.as_str())),
                _ => None,
            },
            _ => None,
        })
    }
}

/// A name, after the domain of who gives it meaning if it has one.
fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_label_name(name),
        None => is_label_name(key),
    }
}

fn is_label_name(name: &str) -> bool {
    let inner = |one: u8| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_' | b'.');
    let outer = |one: Option<&u8>| one.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 63 && outer(bytes.first()) && outer(bytes.last()) && bytes.iter().copied().all(inner)
}

fn parse_one(text: &str) -> Result<(Requirement, &str), SelectorError> {
    let misread = || SelectorError::Text { rest: text.to_owned() };
    if let Some(rest) = text.strip_prefix('!') {
        let (key, rest) = word(rest.trim_start());
        if key.is_empty() {
            return Err(misread());
        }
        return Ok((Requirement { key: key.to_owned(), test: Test::DoesNotExist }, rest));
    }
    let (key, rest) = word(text);
    if key.is_empty() {
        return Err(misread());
    }
    let rest = rest.trim_start();
    let requirement = |test| Requirement { key: key.to_owned(), test };
    for (operator, is_in) in [("==", true), ("!=", false), ("=", true)] {
        if let Some(rest) = rest.strip_prefix(operator) {
            let (value, rest) = word(rest.trim_start());
            let values = vec![value.to_owned()];
            return Ok((requirement(if is_in { Test::In(values) } else { Test::NotIn(values) }), rest));
        }
    }
    for (operator, is_greater) in [('>', true), ('<', false)] {
        if let Some(rest) = rest.strip_prefix(operator) {
            let (value, rest) = word(rest.trim_start());
            let value = value.parse().map_err(|_| misread())?;
            let test = if is_greater { Test::GreaterThan(value) } else { Test::LessThan(value) };
            return Ok((requirement(test), rest));
        }
    }
    let (operator, after) = word(rest);
    if operator == "in" || operator == "notin" {
        let list = after.trim_start().strip_prefix('(').ok_or_else(misread)?;
        let (list, rest) = list.split_once(')').ok_or_else(misread)?;
        let values = sorted(list.split(',').map(|one| one.trim().to_owned()).collect());
        return Ok((
            requirement(if operator == "in" { Test::In(values) } else { Test::NotIn(values) }),
            rest,
        ));
    }
    Ok((requirement(Test::Exists), rest))
}

/// A key, a value or a word, and what follows.
fn word(text: &str) -> (&str, &str) {
    let is_of_word = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.' | '/');
    text.split_at(text.find(|one| !is_of_word(one)).unwrap_or(text.len()))
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, one) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match &one.test {
                Test::In(values) if values.len() == 1 => write!(f, "{}={}", one.key, values[0])?,
                Test::In(values) => write!(f, "{} in ({})", one.key, values.join(","))?,
                Test::NotIn(values) => write!(f, "{} notin ({})", one.key, values.join(","))?,
                Test::Exists => write!(f, "{}", one.key)?,
                Test::DoesNotExist => write!(f, "!{}", one.key)?,
                Test::GreaterThan(than) => write!(f, "{}>{than}", one.key)?,
                Test::LessThan(than) => write!(f, "{}<{than}", one.key)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::of(pairs.iter().copied())
    }

    #[test]
    fn selectors_as_text_are_read_as_kubectl_reads_them() {
        let web = labels(&[("app", "web"), ("cores", "8")]);
        let cases = [
            ("", true),
            ("app=web", true),
            ("app == web, cores", true),
            ("app!=web", false),
            ("zone!=a", true),
            ("app in (db, web),!zone", true),
            ("app notin (web)", false),
            ("zone notin (a)", true),
            ("cores>4", true),
            ("cores < 4", false),
            ("!app", false),
        ];
        for (text, expected) in cases {
            assert_eq!(Selector::parse(text).unwrap().matches(&web), expected, "{text}");
        }
        for text in ["app in web", "app=web,", "=web", "cores>x", "app web", "a in (b"] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_selector_prints_is_read_as_the_same_selector() {
        for text in ["a=b,c notin (d,e),!f,g,h>5", "x in (y,z)", ""] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector, "{text}");
        }
    }
}
