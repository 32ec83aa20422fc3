//! Taking out of answers what differs from run to run, and nothing else.
//!
//! Identifiers are replaced by the order in which a case first sees them, so that "the same uid" and "a new
//! resourceVersion" stay visible. Times written by the corpus itself lie before [`FIRST_YEAR`] and are kept.

use serde_json::{Map, Value};

/// Times from this year on come from a clock.
const FIRST_YEAR: u32 = 2026;

/// Remembers the identifiers of one case.
#[derive(Debug, Default)]
pub struct Normaliser {
    uids: Vec<String>,
    resource_versions: Vec<String>,
    generated_names: Vec<(String, String)>,
}

impl Normaliser {
    /// The answer without what cannot be the same twice.
    pub fn normalise(&mut self, body: &Value) -> Value {
        self.learn_generated_names(body);
        self.value(body)
    }

    fn learn_generated_names(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let text = |key: &str| fields.get(key).and_then(Value::as_str);
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
                    && name.len() > prefix.len()
                    && name.starts_with(prefix)
                    && !self.generated_names.iter().any(|(known, _)| known == name)
                {
                    let alias = format!("{prefix}<{}>", self.generated_names.len() + 1);
                    self.generated_names.push((name.to_owned(), alias));
                }
                fields.values().for_each(|value| self.learn_generated_names(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn_generated_names(item)),
            _ => {}
        }
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(fields) => self.object(fields),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item)).collect()),
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>) -> Value {
        let is_list = fields.contains_key("items") || fields.contains_key("rows");
        let is_table = fields.get("kind").is_some_and(|kind| kind == "Table");
        let is_definition = fields.get("kind").is_some_and(|kind| kind == "CustomResourceDefinition");
        let is_bookmark = fields.get("type").is_some_and(|kind| kind == "BOOKMARK");
        let mut out = Map::new();
        for (key, value) in fields {
            let normal = match (key.as_str(), value) {
                ("resourceVersion", Value::String(version)) => Value::String(self.resource_version(version)),
                ("metadata", Value::Object(meta)) if is_list => self.without_version(meta),
                ("object", object) if is_bookmark => self.bookmark(object),
                ("rows", Value::Array(rows)) if is_table => rows.iter().map(|row| self.row(row)).collect(),
                ("managedFields", Value::Array(entries)) => self.managed_fields(entries),
                ("clusterIP", Value::String(ip)) => address(ip),
                ("clusterIPs", Value::Array(ips)) => {
                    ips.iter().map(|ip| ip.as_str().map_or(Value::Null, address)).collect()
                }
                ("nodePort" | "healthCheckNodePort", Value::Number(_)) => "<port>".into(),
                ("continue", Value::String(token)) if !token.is_empty() => "<continue>".into(),
                ("token", Value::String(token)) if token.len() > 100 => "<token>".into(),
                ("serverAddress", Value::String(_)) => "<address>".into(),
                _ => self.value(value),
            };
            out.insert(self.text(key), normal);
        }
        if is_definition {
            sort_conditions(&mut out);
        }
        Value::Object(out)
    }

    /// A list has the version of the whole store, which other cases move.
    fn without_version(&mut self, meta: &Map<String, Value>) -> Value {
        let mut meta = meta.clone();
        if let Some(version) = meta.get_mut("resourceVersion")
            && version.as_str().is_some_and(|version| !version.is_empty())
        {
            *version = "<of-list>".into();
        }
        let mut normal = self.object(&meta);
        if let Some(fields) = normal.as_object_mut()
            && meta.get("resourceVersion").is_some_and(|version| version == "<of-list>")
        {
            fields.insert("resourceVersion".into(), "<of-list>".into());
        }
        normal
    }

    /// Every version in a bookmark is that of the whole store, however the object is shown.
    fn bookmark(&mut self, object: &Value) -> Value {
        match object {
            Value::Object(fields) => {
                let normal = fields.iter().map(|(key, value)| match key.as_str() {
                    "resourceVersion" => (key.clone(), "<of-list>".into()),
                    _ => (key.clone(), self.bookmark(value)),
                });
                Value::Object(normal.collect())
            }
            Value::Array(items) => items.iter().map(|item| self.bookmark(item)).collect(),
            other => self.value(other),
        }
    }

    /// Cells such as `12s` are ages, and addresses are given out by the server.
    fn row(&mut self, row: &Value) -> Value {
        let mut row = self.value(row);
        for cell in row.get_mut("cells").and_then(Value::as_array_mut).into_iter().flatten() {
            match cell.as_str() {
                Some(text) if is_age(text) => *cell = "<age>".into(),
                Some(text) => *cell = address(text),
                None => {}
            }
        }
        row
    }

    /// Entries are ordered by their second, which cannot be compared.
    fn managed_fields(&mut self, entries: &[Value]) -> Value {
        let mut entries: Vec<Value> = entries.iter().map(|entry| self.value(entry)).collect();
        let key = |entry: &Value| {
            ["operation", "manager", "subresource", "apiVersion"]
                .map(|field| entry.get(field).and_then(Value::as_str).unwrap_or_default().to_owned())
        };
        entries.sort_by_key(key);
        Value::Array(entries)
    }

    fn resource_version(&mut self, version: &str) -> String {
        if version.is_empty() || version == "0" || version == "<of-list>" {
            return version.to_owned();
        }
        format!("<rv-{}>", position(&mut self.resource_versions, version))
    }

    fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(uid) = rest.get(..36).filter(|text| is_uuid(text)) {
                out.push_str(&format!("<uid-{}>", position(&mut self.uids, uid)));
                rest = &rest[36..];
            } else if let Some((length, alias)) = time(rest) {
                out.push_str(&alias);
                rest = &rest[length..];
            } else {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..length]);
                rest = &rest[length..];
            }
        }
        for (name, alias) in &self.generated_names {
            out = out.replace(name.as_str(), alias);
        }
        for phrase in VERSION_PHRASES {
            out = without_number_after(&out, phrase);
        }
        out
    }
}

/// Several controllers of the API server write the conditions of a definition, in whatever order they get to it.
fn sort_conditions(definition: &mut Map<String, Value>) {
    let conditions = definition.get_mut("status").and_then(|status| status.get_mut("conditions"));
    if let Some(Value::Array(conditions)) = conditions {
        conditions.sort_by_key(|condition| condition["type"].as_str().unwrap_or_default().to_owned());
    }
}

/// Resource versions inside messages follow one of these.
const VERSION_PHRASES: [&str; 10] = [
    "ResourceVersion in precondition: ",
    "ResourceVersion in object meta: ",
    "ResourceVersion in the precondition (",
    "ResourceVersion in record (",
    "too old resource version: ",
    "Too large resource version: ",
    ", current: ",
    "\"resourceVersion\":\"",
    r#"\"resourceVersion\":\""#,
    "resourceVersion: \"",
];

/// Replaces the number behind every `phrase`.
fn without_number_after(text: &str, phrase: &str) -> String {
    let mut parts = text.split(phrase);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        out.push_str(phrase);
        out.push_str(if rest.len() == part.len() { "" } else { "<rv>" });
        out.push_str(rest);
    }
    out
}

/// The number of `item`, counted from 1 in the order of first appearance.
fn position(known: &mut Vec<String>, item: &str) -> usize {
    known.iter().position(|known| known == item).unwrap_or_else(|| {
        known.push(item.to_owned());
        known.len() - 1
    }) + 1
}

fn address(ip: &str) -> Value {
    if ip.parse::<std::net::IpAddr>().is_ok() { "<ip>".into() } else { ip.into() }
}

fn is_age(cell: &str) -> bool {
    let digits = cell.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &cell[digits.len()..];
    !digits.is_empty()
        && matches!(unit, "s" | "m" | "h" | "d" | "y")
        && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, 'm' | 'h' | 'd' | 'y'))
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// A time of a clock at the start of `text`: how long it is, and what stands for it. The number of digits of the
/// second is kept, because it tells the two time types of Kubernetes apart.
fn time(text: &str) -> Option<(usize, String)> {
    const PATTERN: &[u8] = b"0000-00-00T00:00:00";
    let head = text.as_bytes().get(..PATTERN.len())?;
    let fits = head.iter().zip(PATTERN).all(|(byte, pattern)| match pattern {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    if !fits || text.get(..4)?.parse::<u32>().ok()? < FIRST_YEAR {
        return None;
    }
    let rest = &text[PATTERN.len()..];
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (digits, &rest[digits..])
        }
        None => (0, rest),
    };
    let rest = rest.strip_prefix('Z')?;
    let alias = if fraction == 0 { "<time>".to_owned() } else { format!("<time.{fraction}>") };
    Some((text.len() - rest.len(), alias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_identifier_gets_the_same_alias_and_a_new_one_another() {
        let mut normaliser = Normaliser::default();
        let object = |version: &str| json!({"metadata": {"uid": "0dd1e3a0-52f6-4a77-8a75-1f0c3a4b5c6d", "resourceVersion": version}});
        let first = normaliser.normalise(&object("812"));
        assert_eq!(first, json!({"metadata": {"uid": "<uid-1>", "resourceVersion": "<rv-1>"}}));
        assert_eq!(normaliser.normalise(&object("812")), first, "a write that changes nothing");
        assert_eq!(normaliser.normalise(&object("830"))["metadata"]["resourceVersion"], "<rv-2>");
    }

    #[test]
    fn times_of_a_clock_go_and_times_of_the_corpus_stay() {
        let mut normaliser = Normaliser::default();
        assert_eq!(normaliser.normalise(&json!("2026-11-15T02:34:36Z")), "<time>");
        assert_eq!(normaliser.normalise(&json!("at 2026-11-15T02:34:36.123456Z.")), "at <time.6>.");
        assert_eq!(normaliser.normalise(&json!("2020-01-01T00:00:00Z")), "2020-01-01T00:00:00Z");
    }

    #[test]
    fn generated_names_are_replaced_wherever_they_stand() {
        let mut normaliser = Normaliser::default();
        normaliser.normalise(&json!({"metadata": {"generateName": "web-", "name": "web-x7k2p"}}));
        assert_eq!(
            normaliser.normalise(&json!("pods \"web-x7k2p\" not found")),
            "pods \"web-<1>\" not found"
        );
    }

    #[test]
    fn the_version_of_a_list_is_not_compared_but_those_of_its_items_are() {
        let list =
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"resourceVersion": "9"}}]});
        let normal = Normaliser::default().normalise(&list);
        assert_eq!(normal["metadata"]["resourceVersion"], "<of-list>");
        assert_eq!(normal["items"][0]["metadata"]["resourceVersion"], "<rv-1>");
    }

    #[test]
    fn ages_in_tables_go() {
        let table =
            json!({"kind": "Table", "rows": [{"cells": ["web", "0/1", "3s", "2m10s", "6y320d", "5y"]}]});
        let normal = Normaliser::default().normalise(&table);
        assert_eq!(normal["rows"][0]["cells"], json!(["web", "0/1", "<age>", "<age>", "<age>", "<age>"]));
    }
}
