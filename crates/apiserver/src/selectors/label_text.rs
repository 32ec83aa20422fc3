//! The text form of label selectors: `app=web,tier in (a,b),!old`.

use super::labels::{Op, Requirement};
use crate::validation::names;

/// All requirements of the text, or what is wrong with it in the API server's words.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    Parser { tokens: tokenize(text), at: 0 }.selector()
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

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
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
        Ok(requirements)
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
