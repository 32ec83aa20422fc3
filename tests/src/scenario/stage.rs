//! Where a scenario plays: a namespace and nodes of its own, what things are called there, and who watches.

use super::form::Scenario;
use super::observe::Observer;
use super::reach::{ClusterUnderTest, Resource};
use super::short;
use crate::{Answer, Request};
use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often the cluster is asked whether something has become so.
pub const PAUSE: Duration = Duration::from_millis(100);
/// How long nodes and accounts may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes of a scenario are `n1`, `n2` in the file, its maintenances `maintenance-a`, and have the scenario's name before
/// that in the cluster.
#[derive(Debug, Clone)]
pub struct Nicknames {
    prefix: String,
}

impl Nicknames {
    /// The object with the short names of nodes and maintenances in all its texts.
    pub fn shorten(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.shorten_text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.shorten(item)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(key, value)| (key, self.shorten(value))).collect())
            }
            other => other,
        }
    }

    fn shorten_text(&self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let (mut short, mut rest) = (String::new(), text);
        while !rest.is_empty() {
            let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
            short.push_str(self.nickname(word).unwrap_or(word));
            rest = &rest[word.len()..];
            let between = &rest[..rest.find(is_part).unwrap_or(rest.len())];
            short.push_str(between);
            rest = &rest[between.len()..];
        }
        short
    }

    /// What a name in the cluster is in the file, if it is that of a node or a maintenance of this scenario.
    fn nickname<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.prefix).filter(|short| is_nickname(short))
    }

    /// The object without a namespace is one of this scenario's.
    pub fn is_own(&self, object: &Value) -> bool {
        object["metadata"]["labels"][short::OWN].as_str().is_some_and(|own| self.prefix == format!("{own}-"))
    }

    /// The event tells of a node or a maintenance of this scenario.
    fn is_told_of_own(&self, event: &Value) -> bool {
        event["involvedObject"]["name"].as_str().is_some_and(|name| self.nickname(name).is_some())
    }
}

/// `n1`, `n12`: so all nodes of scenarios are called; and `maintenance-a`: so their maintenances are.
fn is_nickname(name: &str) -> bool {
    let is_all = |rest: &str, of: fn(&u8) -> bool| !rest.is_empty() && rest.bytes().all(|byte| of(&byte));
    name.strip_prefix('n').is_some_and(|number| is_all(number, u8::is_ascii_digit))
        || name.strip_prefix("maintenance-").is_some_and(|letters| is_all(letters, u8::is_ascii_lowercase))
}

pub struct Stage {
    pub cluster: Arc<ClusterUnderTest>,
    /// The scenario's name, which is the namespace's.
    pub namespace: String,
    pub nicknames: Nicknames,
    pub observer: Observer,
    pub watched: Vec<Resource>,
    pub started: Instant,
}

/// What a reference in a step stands for.
pub struct Target {
    pub resource: Resource,
    pub name: String,
    pub path: String,
}

impl Stage {
    /// Makes the namespace and the nodes, begins to watch, then makes the given objects.
    ///
    /// # Errors
    /// Something was refused or did not become ready.
    pub async fn set(scenario: &Scenario, cluster: &Arc<ClusterUnderTest>) -> Result<Self> {
        let namespace = scenario.name.clone();
        let nicknames = Nicknames { prefix: format!("{namespace}-") };
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        created(cluster, "/api/v1/namespaces", &made).await?;
        let nodes = short::nodes(&scenario.given.nodes);
        for (turn, node) in nodes.iter().enumerate() {
            created(cluster, "/api/v1/nodes", &short::node(node, turn, &namespace)).await?;
        }
        let mut watched = vec![cluster.resource("pods").await?];
        for kind in &scenario.watch {
            watched.push(cluster.resource(kind).await?);
        }
        let observer = Observer::start(cluster, &namespace, &nicknames, &watched, &scenario.always).await?;
        let stage = Self {
            cluster: cluster.clone(),
            namespace,
            nicknames,
            observer,
            watched,
            started: Instant::now(),
        };
        for node in &nodes {
            stage.until_usable(&node.name).await?;
        }
        stage.until_account().await?;
        for object in &scenario.given.objects {
            stage.create(None, object).await?.accepted().with_context(|| format!("given {object}"))?;
        }
        Ok(stage)
    }

    async fn until_usable(&self, node: &str) -> Result<()> {
        let path = format!("/api/v1/nodes/{}", short::node_name(&self.namespace, node));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let node = self.cluster.get(&path).await?;
            let waiting = node["spec"]["taints"].as_array().into_iter().flatten();
            let waiting = waiting.filter(|taint| taint["key"] == "node.kubernetes.io/not-ready").count();
            if super::observe::is_ready(&node) && waiting == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the node does not become ready: {node}");
            sleep(PAUSE).await;
        }
    }

    /// Where service accounts are made, pods are refused until theirs is there. Elsewhere the time passes in vain, and
    /// it is virtual.
    async fn until_account(&self) -> Result<()> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/default", self.namespace);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if self.cluster.send(None, Request::new(Method::GET, &path)).await?.status == 200 {
                break;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Creates an object, in short form or whole.
    ///
    /// # Errors
    /// It is no form of an object, or the connection failed.
    pub async fn create(&self, user: Option<&str>, object: &Value) -> Result<Answer> {
        let manifest = self.manifest(object).await?;
        let path = self.cluster.resource_of(&manifest).await?.path(&self.namespace, None);
        self.cluster.send(user, Request::with_json(Method::POST, &path, &manifest)).await
    }

    /// The whole manifest, with everything filled in.
    ///
    /// # Errors
    /// It is no form of an object.
    pub async fn manifest(&self, object: &Value) -> Result<Value> {
        let manifest = short::expand(&self.filled(object).await?, &self.namespace)?;
        self.filled(&manifest).await
    }

    /// What `deployment/web` stands for; pods go by their short names too.
    ///
    /// # Errors
    /// There is no such kind, or no such name.
    pub async fn target(&self, reference: &str) -> Result<Target> {
        let reference = reference.replace("{ns}", &self.namespace);
        let Some((kind, name)) = reference.split_once('/') else {
            bail!("{reference} is no KIND/NAME");
        };
        let resource = self.cluster.resource(kind).await?;
        let name = match resource.plural.as_str() {
            "nodes" | "nodemaintenances" => short::node_name(&self.namespace, name),
            plural => self.observer.real_name(plural, name).unwrap_or_else(|| name.to_owned()),
        };
        let path = resource.path(&self.namespace, Some(&name));
        Ok(Target { resource, name, path })
    }

    /// All objects of a kind that are this scenario's, with short names. Events of nodes and maintenances are in no
    /// scenario's namespace, and go by what they tell of.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn items(&self, kind: &str) -> Result<Vec<Value>> {
        let resource = self.cluster.resource(kind).await?;
        let mut path = resource.path(&self.namespace, None);
        if resource.plural == "events" {
            "/api/v1/events".clone_into(&mut path);
        }
        let list = self.cluster.get(&path).await?;
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        items.retain(|item| match resource.plural.as_str() {
            "events" => {
                item["metadata"]["namespace"] == self.namespace.as_str()
                    || self.nicknames.is_told_of_own(item)
            }
            _ => resource.namespaced || self.nicknames.is_own(item),
        });
        Ok(items.into_iter().map(|item| self.nicknames.shorten(item)).collect())
    }

    /// Puts in what only the running scenario knows: `{ns}`, `{now}`, `{node:n1}`, `{name:pod/web-a1}` and
    /// `{uid:pod/web-a1}`.
    ///
    /// # Errors
    /// Something referred to is not there.
    pub async fn filled(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) if text.contains('{') => Value::String(self.filled_text(text).await?),
            Value::Array(items) => {
                let mut new = Vec::new();
                for item in items {
                    new.push(Box::pin(self.filled(item)).await?);
                }
                Value::Array(new)
            }
            Value::Object(fields) => {
                let mut new = serde_json::Map::new();
                for (key, value) in fields {
                    let key = if key.contains('{') { self.filled_text(key).await? } else { key.clone() };
                    new.insert(key, Box::pin(self.filled(value)).await?);
                }
                Value::Object(new)
            }
            other => other.clone(),
        })
    }

    async fn filled_text(&self, text: &str) -> Result<String> {
        let mut text = text.replace("{ns}", &self.namespace);
        if text.contains("{now}") {
            text = text.replace("{now}", &self.cluster.now().strftime("%FT%TZ").to_string());
        }
        for marker in ["{node:", "{name:", "{uid:"] {
            while let Some(start) = text.find(marker) {
                let Some(length) = text[start..].find('}') else { bail!("{text:?} has no closing brace") };
                let reference = text[start + marker.len()..start + length].to_owned();
                let value = match marker {
                    "{node:" => short::node_name(&self.namespace, &reference),
                    "{name:" => self.target(&reference).await?.name,
                    _ => {
                        let object = self.cluster.get(&self.target(&reference).await?.path).await?;
                        object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
                    }
                };
                text.replace_range(start..=start + length, &value);
            }
        }
        Ok(text)
    }
}

async fn created(cluster: &ClusterUnderTest, path: &str, object: &Value) -> Result<()> {
    cluster.send(None, Request::with_json(Method::POST, path, object)).await?.accepted()
}

impl Answer {
    /// # Errors
    /// The request was refused.
    pub fn accepted(&self) -> Result<()> {
        let why = self.body["message"].as_str().map_or_else(|| self.body.to_string(), str::to_owned);
        ensure!(self.status < 300, "{} {why}", self.status);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_maintenances_have_short_names_also_within_sentences() {
        let nicknames = Nicknames { prefix: "example-".to_owned() };
        for (text, short) in [
            ("example-n1", "n1"),
            ("Waiting for example-maintenance-a.", "Waiting for maintenance-a."),
            ("example-maintenance-a,example-maintenance-b", "maintenance-a,maintenance-b"),
            ("example-n", "example-n"),
            ("an-example-n1", "an-example-n1"),
            ("(example-n12) – ", "(n12) – "),
        ] {
            assert_eq!(nicknames.shorten_text(text), short);
        }
    }
}
