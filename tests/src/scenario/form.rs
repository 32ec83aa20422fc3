//! What a scenario file says, typed. `tests/README.md` has the table of steps.

use super::selector::Selector;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::time::Duration;

/// One scenario: a file, or one case of a file that has a table of cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Scenario {
    /// The folder of the file.
    #[serde(skip)]
    pub topic: String,
    /// The file's name, and the case's. It names the namespace and the nodes too.
    #[serde(skip)]
    pub name: String,
    /// Changes with everything that decides how the scenario ends. A recording of another fingerprint is out of date.
    #[serde(skip)]
    pub fingerprint: String,
    /// The rule, in a sentence.
    pub title: String,
    /// Why this takes too long, or needs too much, for real time.
    pub embedded_only: Option<String>,
    /// `make test-real` plays this on the real cluster, whose behaviour it depends on. The others are compared with their recordings.
    #[serde(default)]
    pub judge: bool,
    /// Nodes of pods belong to what is compared: where the scheduler has no choice between equals.
    #[serde(default)]
    pub placement: bool,
    /// Kinds besides pods whose effects are noted.
    #[serde(default)]
    pub watch: Vec<String>,
    #[serde(default)]
    pub given: Given,
    /// What holds from the moment it first does until the end.
    #[serde(default)]
    pub always: Vec<Always>,
    #[serde(deserialize_with = "steps")]
    pub steps: Vec<Step>,
}

impl Scenario {
    /// It ends what other scenarios on the same cluster rely on.
    #[must_use]
    pub fn runs_alone(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Restart | What::Deschedule(_)))
    }
}

/// What is there before the first step.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Given {
    pub nodes: Nodes,
    /// Manifests, whole or in short form.
    pub objects: Vec<Value>,
}

/// So many nodes, or each of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Nodes {
    Count(usize),
    Each(Vec<Node>),
}

impl Default for Nodes {
    fn default() -> Self {
        Self::Count(0)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Node {
    pub name: String,
    pub cpu: Option<u32>,
    pub zone: Option<String>,
    pub labels: Map<String, Value>,
    pub taints: Vec<Value>,
}

/// A bound on the pods of a selector.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Always {
    pub pods: Selector,
    /// Ready, and not on their way out.
    pub ready: Option<Bound>,
    /// Neither ended nor on their way out.
    pub there: Option<Bound>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Bound {
    pub at_least: Option<usize>,
    pub at_most: Option<usize>,
}

/// One thing to do or to see.
#[derive(Debug, Clone)]
pub struct Step {
    /// `evict pod/a`, as failures name it.
    pub title: String,
    /// Who does it; the administrator where nobody is named.
    pub user: Option<String>,
    /// What the request has to be answered with; success where nothing is said.
    pub answer: Option<Answer>,
    pub what: What,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    pub code: u16,
    /// What the body has.
    #[serde(default)]
    pub has: Value,
}

#[derive(Debug, Clone)]
pub enum What {
    Wait(Duration),
    Create(Vec<Value>),
    Apply(Vec<Value>),
    Patch(Patch),
    Delete(Delete),
    Scale(Scale),
    Cordon(String),
    Uncordon(String),
    Evict(Evict),
    Drain(Drain),
    Kubelet(Kubelet),
    /// Of the controllers beside the cluster.
    Restart,
    Deschedule(Deschedule),
    Expect(Expect),
    Order(Order),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    pub patch: String,
    pub with: Value,
    /// `status` or another subresource.
    pub subresource: Option<String>,
    #[serde(default, rename = "type")]
    pub kind: PatchKind,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchKind {
    #[default]
    Merge,
    Strategic,
    Json,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    pub delete: String,
    /// Fields of `DeleteOptions`.
    #[serde(default)]
    pub options: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub scale: String,
    pub to: u32,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evict {
    pub evict: String,
    /// Fields of `DeleteOptions` in the eviction.
    #[serde(default)]
    pub options: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub drain: String,
    #[serde(default = "default_drain", deserialize_with = "duration")]
    pub within: Duration,
    /// It must not come to an end in that time.
    #[serde(default)]
    pub blocked: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kubelet {
    pub kubelet: String,
    pub state: KubeletState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KubeletState {
    Down,
    Up,
}

/// A descheduler for the nodes of the scenario, until its end or the next one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Deschedule {
    /// The policy, but for its version, kind and nodes.
    pub deschedule: Map<String, Value>,
    #[serde(deserialize_with = "duration")]
    pub every: Duration,
    #[serde(default = "default_ttl", deserialize_with = "duration")]
    pub ttl: Duration,
    #[serde(default = "default_ttl", deserialize_with = "duration")]
    pub cool_down: Duration,
}

fn default_ttl() -> Duration {
    Duration::from_secs(3600)
}

/// What must become so, and then perhaps stay so.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// `deployment/web`, or `pods` with an optional selector: `pods app=web`.
    pub expect: String,
    #[serde(default = "default_within", deserialize_with = "duration")]
    pub within: Duration,
    #[serde(default, deserialize_with = "duration")]
    pub stays: Duration,
    /// What the one object has.
    pub has: Option<Value>,
    #[serde(default)]
    pub absent: bool,
    /// Only those of the list that have this.
    #[serde(rename = "where")]
    pub filter: Option<Value>,
    pub count: Option<Value>,
    /// Every one of the list has this.
    pub all: Option<Value>,
    /// For each of these, another one of the list has it.
    #[serde(default)]
    pub some: Vec<Value>,
    /// None of the list has this.
    pub none: Option<Value>,
}

/// Effects in order: all of a line come before all of the next.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub order: Vec<String>,
    #[serde(default = "default_within", deserialize_with = "duration")]
    pub within: Duration,
}

fn default_within() -> Duration {
    Duration::from_secs(15)
}

fn default_drain() -> Duration {
    Duration::from_secs(30)
}

const VERBS: &str = "wait, create, apply, patch, delete, scale, cordon, uncordon, evict, drain, kubelet, restart, deschedule, expect, order";

fn steps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Step>, D::Error> {
    let raw = Vec::<Map<String, Value>>::deserialize(from)?;
    let numbered = raw.into_iter().enumerate();
    numbered
        .map(|(number, fields)| step(fields).with_context(|| format!("step {}", number + 1)))
        .collect::<Result<_>>()
        .map_err(|why| serde::de::Error::custom(format!("{why:#}")))
}

fn step(mut fields: Map<String, Value>) -> Result<Step> {
    let user = fields.remove("as").map(serde_json::from_value).transpose().context("as: a user's name")?;
    let answer = fields.remove("answer").map(serde_json::from_value).transpose().context("answer")?;
    let verbs: Vec<String> =
        fields.keys().filter(|key| VERBS.split(", ").any(|verb| verb == *key)).cloned().collect();
    let [verb] = verbs.as_slice() else {
        let keys: Vec<_> = fields.keys().cloned().collect();
        bail!("a step has exactly one of {VERBS}; this one has {}", keys.join(", "));
    };
    let subject = fields[verb].as_str().map_or_else(String::new, |text| format!(" {text}"));
    let title = format!("{verb}{subject}");
    let what = what(verb, fields).with_context(|| title.clone())?;
    Ok(Step { title, user, answer, what })
}

fn what(verb: &str, fields: Map<String, Value>) -> Result<What> {
    let alone = |fields: &Map<String, Value>| -> Result<String> {
        let text = fields[verb].as_str().map(str::to_owned);
        if fields.len() > 1 {
            let others: Vec<_> = fields.keys().filter(|key| *key != verb).cloned().collect();
            bail!("{verb} has no further fields, such as {}", others.join(", "));
        }
        text.ok_or_else(|| anyhow!("a text is wanted"))
    };
    let objects = |fields: Map<String, Value>| -> Result<Vec<Value>> {
        // `create: {kind: ..}`, or a list of those.
        if fields.len() > 1 {
            bail!("{verb} has no further fields: the object stands below it");
        }
        match fields.into_iter().next() {
            Some((_, Value::Array(objects))) => Ok(objects),
            Some((_, object @ Value::Object(_))) => Ok(vec![object]),
            _ => bail!("an object or a list of objects is wanted"),
        }
    };
    let whole = |fields| Value::Object(fields);
    Ok(match verb {
        "wait" => What::Wait(parse_duration(&alone(&fields)?)?),
        "create" => What::Create(objects(fields)?),
        "apply" => What::Apply(objects(fields)?),
        "patch" => What::Patch(serde_json::from_value(whole(fields))?),
        "delete" => What::Delete(serde_json::from_value(whole(fields))?),
        "scale" => What::Scale(serde_json::from_value(whole(fields))?),
        "cordon" => What::Cordon(alone(&fields)?),
        "uncordon" => What::Uncordon(alone(&fields)?),
        "evict" => What::Evict(serde_json::from_value(whole(fields))?),
        "drain" => What::Drain(serde_json::from_value(whole(fields))?),
        "kubelet" => What::Kubelet(serde_json::from_value(whole(fields))?),
        "restart" => match alone(&fields)?.as_str() {
            "usher" => What::Restart,
            other => bail!("only usher can be restarted, not {other}"),
        },
        "deschedule" => What::Deschedule(serde_json::from_value(whole(fields))?),
        "expect" => What::Expect(checked(serde_json::from_value(whole(fields))?)?),
        _ => What::Order(serde_json::from_value(whole(fields))?),
    })
}

/// An expectation that expects nothing would always hold.
fn checked(expect: Expect) -> Result<Expect> {
    let of_list = expect.count.is_some()
        || expect.all.is_some()
        || !expect.some.is_empty()
        || expect.none.is_some()
        || expect.filter.is_some();
    let of_one = expect.has.is_some() || expect.absent;
    match (expect.expect.contains('/') && !expect.expect.contains(' '), of_one, of_list) {
        (true, true, false) | (false, false, true) => Ok(expect),
        (true, ..) => bail!("one object is expected with `has` or `absent`"),
        (false, ..) => bail!("a list is expected with `count`, `all`, `some` or `none`, and `where`"),
    }
}

pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse_duration(&text).map_err(|why| serde::de::Error::custom(why.to_string()))
}

/// `500ms`, `10s`, `2m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration> {
    let wrong = || anyhow!("{text:?} is no time: 500ms, 10s, 2m and 1h are");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let millis = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_millis(number * millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn why(step: Value) -> String {
        let scenario = json!({"title": "t", "steps": [step]});
        serde_json::from_value::<Scenario>(scenario).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_step_is_told_with_its_place_and_what_is_allowed() {
        for (step, said) in [
            (json!({"evct": "pod/a"}), "step 1: a step has exactly one of wait, create"),
            (json!({"evict": "pod/a", "drain": "n1"}), "this one has"),
            (
                json!({"evict": "pod/a", "option": {}}),
                "step 1: evict pod/a: unknown field `option`, expected `evict` or `options`",
            ),
            (json!({"wait": "5"}), "\"5\" is no time: 500ms, 10s, 2m and 1h are"),
            (json!({"expect": "pod/a"}), "`has` or `absent`"),
            (json!({"expect": "pods app=web", "has": {}}), "`count`, `all`, `some` or `none`"),
            (json!({"restart": "kubelet"}), "only usher can be restarted"),
            (json!({"cordon": "n1", "within": "5s"}), "no further fields, such as within"),
        ] {
            let why = why(step);
            assert!(why.contains(said), "{why}\nshould say\n{said}");
        }
    }

    #[test]
    fn times_are_whole_numbers_with_a_unit() {
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), millis);
        }
    }
}
