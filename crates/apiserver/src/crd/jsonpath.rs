//! The JSON paths of printer columns and selectable fields: dotted names, quoted names, indexes, wildcards
//! and filters by equality.

use serde_json::Value;

use crate::error::go_float;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
    /// A path that cannot be read finds nothing, like a missing field.
    broken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    Filter { path: Vec<String>, equal: bool, value: Value },
}

impl JsonPath {
    /// Reads `.spec.replicas`, `.metadata.annotations['a.b/c']`, `.status.conditions[?(@.type=="Ready")].status`.
    pub(crate) fn parse(text: &str) -> JsonPath {
        match parse_steps(text.trim().trim_start_matches('{').trim_end_matches('}')) {
            Some(steps) => JsonPath { steps, broken: false },
            None => JsonPath { steps: Vec::new(), broken: true },
        }
    }

    pub(crate) fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.all(root).into_iter().next()
    }

    pub(crate) fn all<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        if self.broken {
            return Vec::new();
        }
        self.steps
            .iter()
            .fold(vec![root], |found, step| found.into_iter().flat_map(|value| step.apply(value)).collect())
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Step::Index(index), Value::Array(items)) => {
                let position = if *index < 0 { index + items.len() as i64 } else { *index };
                usize::try_from(position).ok().and_then(|p| items.get(p)).into_iter().collect()
            }
            (Step::All, Value::Array(items)) => items.iter().collect(),
            (Step::All, Value::Object(fields)) => fields.values().collect(),
            (Step::Filter { path, equal, value: wanted }, Value::Array(items)) => items
                .iter()
                .filter(|item| {
                    let found = path.iter().try_fold(*item, |v, name| v.get(name));
                    found.is_some_and(|found| (found == wanted) == *equal)
                })
                .collect(),
            _ => Vec::new(),
        }
    }
}

fn parse_steps(text: &str) -> Option<Vec<Step>> {
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after)?;
            steps.push(parse_bracket(after[..end].trim())?);
            rest = &after[end + 1..];
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let end = name_end(rest);
        match &rest[..end] {
            "" if rest.is_empty() => {}
            "" => {
                if !rest.starts_with('[') {
                    return None;
                }
            }
            "*" => steps.push(Step::All),
            name => steps.push(Step::Field(name.replace("\\.", "."))),
        }
        rest = &rest[end..];
    }
    Some(steps)
}

/// Names end at a dot or bracket; a backslash keeps a dot inside the name.
fn name_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .find(|&i| bytes[i] == b'[' || bytes[i] == b'.' && (i == 0 || bytes[i - 1] != b'\\'))
        .unwrap_or(bytes.len())
}

/// The position of the bracket's end, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (position, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(position),
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
    }
    None
}

fn parse_bracket(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = inside.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        let (equal, (left, right)) = match filter.split_once("==") {
            Some(sides) => (true, sides),
            None => (false, filter.split_once("!=")?),
        };
        let path = left.trim().strip_prefix("@.")?.split('.').map(str::to_string).collect();
        return Some(Step::Filter { path, equal, value: literal(right.trim())? });
    }
    if let Some(name) = unquoted(inside) {
        return Some(Step::Field(name.to_string()));
    }
    inside.parse().ok().map(Step::Index)
}

fn literal(text: &str) -> Option<Value> {
    match unquoted(text) {
        Some(inner) => Some(Value::from(inner)),
        None => serde_json::from_str(text).ok(),
    }
}

fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|q| text.strip_prefix(q)?.strip_suffix(q))
}

/// A value as a column of type string shows it.
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_string(),
        Value::Number(n) if n.is_f64() => go_float(n.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}
