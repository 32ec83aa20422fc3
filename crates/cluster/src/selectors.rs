//! Label and field selectors: parsing with the API server's errors, and matching against stored objects.

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::kinds::Kind;
use crate::store::{Key, Meta, Object};
use crate::validation::names;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Op {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    op: Op,
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.op {
            Op::Exists => value.is_some(),
            Op::Absent => value.is_none(),
            Op::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
            Op::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
            Op::Greater(bound) => number().is_some_and(|n| n > *bound),
            Op::Less(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

/// All requirements must hold; an empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// The text form of query parameters: `app=web,tier in (a,b),!old`.
    pub fn parse(text: &str) -> ApiResult<Self> {
        let mut parser = Parser { tokens: tokenize(text), at: 0 };
        parser.selector().map_err(ApiError::bad_request)
    }

    /// The object form, `matchLabels` and `matchExpressions`; `None` when it breaks the form's rules.
    pub fn from_object(selector: &Value) -> Option<Self> {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                requirements
                    .push(Requirement { key: key.clone(), op: Op::In(vec![value.as_str()?.to_string()]) });
            }
        }
        if let Some(expressions) = selector.get("matchExpressions").and_then(Value::as_array) {
            for expression in expressions {
                let values: Vec<String> = expression
                    .get("values")
                    .and_then(Value::as_array)
                    .map(|list| list.iter().filter_map(|v| v.as_str().map(String::from)).collect())
                    .unwrap_or_default();
                let op = match (expression.get("operator")?.as_str()?, values.is_empty()) {
                    ("In", false) => Op::In(values),
                    ("NotIn", false) => Op::NotIn(values),
                    ("Exists", true) => Op::Exists,
                    ("DoesNotExist", true) => Op::Absent,
                    _ => return None,
                };
                requirements.push(Requirement { key: expression.get("key")?.as_str()?.to_string(), op });
            }
        }
        Some(Self { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Against labels by name.
    pub fn matches_map(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    pub fn matches(&self, meta: &Meta) -> bool {
        self.requirements.iter().all(|r| r.matches(meta.label(&r.key)))
    }

    /// Against `metadata.labels` of an object.
    pub fn matches_labels(&self, labels: &Value) -> bool {
        self.matches_with(|key| labels.get(key).and_then(Value::as_str))
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Comma,
    Open,
    Close,
    Equals,
    DoubleEquals,
    NotEquals,
    Bang,
    Greater,
    Less,
}

fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(&c) = chars.peek() {
        if c.is_whitespace() {
            chars.next();
            continue;
        }
        if !"(),=!<>".contains(c) {
            let mut word = String::new();
            while let Some(&c) = chars.peek()
                && !c.is_whitespace()
                && !"(),=!<>".contains(c)
            {
                word.push(c);
                chars.next();
            }
            tokens.push(Token::Word(word));
            continue;
        }
        chars.next();
        let followed_by_equals = chars.peek() == Some(&'=');
        tokens.push(match (c, followed_by_equals) {
            ('=', true) => {
                chars.next();
                Token::DoubleEquals
            }
            ('!', true) => {
                chars.next();
                Token::NotEquals
            }
            ('=', _) => Token::Equals,
            ('!', _) => Token::Bang,
            ('<', _) => Token::Less,
            ('>', _) => Token::Greater,
            ('(', _) => Token::Open,
            (')', _) => Token::Close,
            _ => Token::Comma,
        });
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn found(token: Option<&Token>) -> String {
        match token {
            None => "found ''".to_string(),
            Some(Token::Word(word)) => format!("found '{word}'"),
            Some(other) => format!("found '{}'", symbol(other)),
        }
    }

    fn selector(&mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        while self.at < self.tokens.len() {
            if !matches!(self.tokens.get(self.at), Some(Token::Bang | Token::Word(_))) {
                let found = Self::found(self.tokens.get(self.at));
                return Err(format!("{found}, expected: !, identifier, or 'end of string'"));
            }
            requirements
                .push(self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                None => break,
                Some(Token::Comma) if self.at < self.tokens.len() => {}
                Some(Token::Comma) => return Err("found '', expected: identifier after ','".to_string()),
                other => {
                    return Err(format!("{}, expected: ',' or 'end of string'", Self::found(other.as_ref())));
                }
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.tokens.get(self.at) == Some(&Token::Bang);
        if negated {
            self.at += 1;
        }
        let key = match self.next() {
            Some(Token::Word(word)) => word,
            other => return Err(format!("{}, expected: identifier", Self::found(other.as_ref()))),
        };
        check_label_key(&key)?;
        let op = match self.tokens.get(self.at).cloned() {
            None | Some(Token::Comma) => {
                if negated {
                    Op::Absent
                } else {
                    Op::Exists
                }
            }
            // What follows is for the caller to refuse.
            _ if negated => Op::Absent,
            Some(Token::Equals | Token::DoubleEquals) => self.single().map(|v| Op::In(vec![v]))?,
            Some(Token::NotEquals) => self.single().map(|v| Op::NotIn(vec![v]))?,
            Some(Token::Greater) => Op::Greater(self.number()?),
            Some(Token::Less) => Op::Less(self.number()?),
            Some(Token::Word(word)) if word == "in" => Op::In(self.values()?),
            Some(Token::Word(word)) if word == "notin" => Op::NotIn(self.values()?),
            other => {
                return Err(format!(
                    "{}, expected: in, notin, =, ==, !=, gt, lt",
                    Self::found(other.as_ref())
                ));
            }
        };
        Ok(Requirement { key, op })
    }

    fn single(&mut self) -> Result<String, String> {
        self.at += 1;
        match self.tokens.get(self.at).cloned() {
            Some(Token::Word(word)) => {
                self.at += 1;
                check_label_value(&word)?;
                Ok(word)
            }
            None | Some(Token::Comma) => Ok(String::new()),
            other => Err(format!("{}, expected: identifier", Self::found(other.as_ref()))),
        }
    }

    fn number(&mut self) -> Result<i64, String> {
        let text = self.single()?;
        text.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn values(&mut self) -> Result<Vec<String>, String> {
        self.at += 1;
        match self.next() {
            Some(Token::Open) => {}
            other => return Err(format!("{} expected: '('", Self::found(other.as_ref()))),
        }
        let mut values = vec![String::new()];
        loop {
            match self.next() {
                Some(Token::Word(word)) => {
                    check_label_value(&word)?;
                    if let Some(last) = values.last_mut() {
                        *last = word;
                    }
                }
                Some(Token::Comma) => values.push(String::new()),
                Some(Token::Close) => break,
                other => {
                    return Err(format!("{}, expected: ',', ')' or identifier", Self::found(other.as_ref())));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

fn symbol(token: &Token) -> &str {
    match token {
        Token::Word(word) => word,
        Token::Comma => ",",
        Token::Open => "(",
        Token::Close => ")",
        Token::Equals => "=",
        Token::DoubleEquals => "==",
        Token::NotEquals => "!=",
        Token::Bang => "!",
        Token::Greater => ">",
        Token::Less => "<",
    }
}

fn check_label_key(key: &str) -> Result<(), String> {
    match names::qualified_name(key).first() {
        None => Ok(()),
        Some(problem) => Err(format!("<nil>: Invalid value: \"{key}\": {problem}")),
    }
}

fn check_label_value(value: &str) -> Result<(), String> {
    match names::label_value(value).first() {
        None => Ok(()),
        Some(problem) => Err(format!("values[0][]: Invalid value: \"{value}\": {problem}")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// Index into `Meta::fields`.
    Stored(usize),
}

/// Field requirements; every one must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<(Field, bool, String)>,
}

impl FieldSelector {
    pub fn parse(text: &str, kind: &Kind) -> ApiResult<Self> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = term.split_once("==") {
                (key, true, value)
            } else if let Some((key, value)) = term.split_once('=') {
                (key, true, value)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                )));
            };
            let field = match key {
                "metadata.name" => Field::Name,
                "metadata.namespace" if kind.namespaced => Field::Namespace,
                _ => match kind.selectable.iter().position(|(name, _)| name == key) {
                    Some(index) => Field::Stored(index),
                    None => return Err(unsupported_field(key, kind)),
                },
            };
            let value = unescape(value).map_err(|c| {
                ApiError::bad_request(format!(
                    "invalid field selector: unescaped character in value: {}",
                    c as u32
                ))
            })?;
            requirements.push((field, equal, value));
        }
        Ok(Self { requirements })
    }

    pub fn matches(&self, key: &Key, meta: &Meta) -> bool {
        self.requirements.iter().all(|(field, equal, wanted)| {
            let actual = match field {
                Field::Name => &*key.name,
                Field::Namespace => &*key.namespace,
                Field::Stored(index) => meta.fields.get(*index).map_or("", |v| &**v),
            };
            // An absent boolean reads as false, an absent count as 0.
            let same = actual == wanted || (actual.is_empty() && matches!(wanted.as_str(), "false" | "0"));
            same == *equal
        })
    }

    /// The one name this selector allows, where it names one.
    pub fn single_name(&self) -> Option<&str> {
        self.requirements
            .iter()
            .find(|(field, equal, _)| *field == Field::Name && *equal)
            .map(|(_, _, v)| v.as_str())
    }
}

/// Kinds with selectable fields of their own and those without word it differently.
fn unsupported_field(key: &str, kind: &Kind) -> ApiError {
    ApiError::bad_request(if kind.is_custom() || !kind.selectable.is_empty() {
        format!("field label not supported: {key}")
    } else {
        format!("\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// The error is a character that should have been escaped.
fn unescape(value: &str) -> Result<String, char> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            '=' | ',' => return Err(c),
            _ => out.push(c),
        }
    }
    Ok(out)
}

/// Both selectors of a list or watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selection {
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.requirements.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        self.labels.matches(&object.meta) && self.fields.matches(&object.key, &object.meta)
    }
}
