//! Sending the corpus to a cluster.

use super::normalise::Normaliser;
use super::recorded::{RecordedAnswer, RecordedTopic};
use super::template::Scope;
use super::topic::{Case, Compare, Step, Topic};
use crate::cluster::{ADMIN, Answer, Request, TestCluster};
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Cases that run side by side.
const SIDE_BY_SIDE: usize = 8;

/// How long a step with `until` asks again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs all cases and returns the normalised answers, by topic.
///
/// # Errors
/// A case could not be run: the connection failed, or a step needs something an earlier answer lacks. The
/// error names the case.
pub async fn run(cluster: &TestCluster, topics: &[Topic]) -> Result<BTreeMap<String, RecordedTopic>> {
    let cases = topics.iter().flat_map(|topic| topic.cases.iter().map(move |case| (topic, case)));
    let mut results = futures::stream::iter(cases)
        .map(async |(topic, case)| {
            let answers = run_case(cluster, topic, case).await;
            let place = || format!("{}: case {} on the {} cluster", topic.name, case.name, cluster.name());
            Ok::<_, anyhow::Error>((topic, case, answers.with_context(place)?))
        })
        .buffer_unordered(SIDE_BY_SIDE);
    let mut answers: BTreeMap<String, RecordedTopic> = BTreeMap::new();
    while let Some(result) = results.next().await {
        let (topic, case, case_answers) = result?;
        answers.entry(topic.name.clone()).or_default().insert(case.name.clone(), case_answers);
    }
    Ok(answers)
}

/// A step that cannot be sent is recorded as such and ends its case: on the judged cluster that is a difference
/// like any other, and must not hide the other cases.
async fn run_case(cluster: &TestCluster, topic: &Topic, case: &Case) -> Result<Vec<RecordedAnswer>> {
    let mut scope = Scope { variables: topic.variables.clone(), answers: BTreeMap::new() };
    scope.variables.insert("ns".to_owned(), case.name.clone());
    if case.namespace {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}});
        let request = Request::with_json(http::Method::POST, "/api/v1/namespaces", &namespace);
        let answer = cluster.send(ADMIN, request).await?;
        ensure!(answer.status == 201, "the namespace cannot be created: {}", answer.body);
    }
    let mut normaliser = Normaliser::default();
    let mut answers = Vec::new();
    for step in &case.steps {
        let answer = match run_step(cluster, step, &scope).await {
            Ok(answer) => answer,
            Err(error) => {
                answers.push(RecordedAnswer::unsent(&format!("{error:#}")));
                break;
            }
        };
        answers.push(RecordedAnswer {
            status: answer.status,
            warnings: answer.warnings(),
            retry_after: answer.header("retry-after").map(str::to_owned),
            content_type: answer
                .header("content-type")
                .filter(|kind| *kind != "application/json")
                .map(str::to_owned),
            body: match step.compare {
                // What is not compared is not kept either.
                Compare::Status => Value::Null,
                _ => normaliser.normalise(&without(answer.body.clone(), &step.ignore)),
            },
        });
        if let Some(alias) = &step.alias {
            scope.answers.insert(alias.clone(), answer.body);
        }
    }
    Ok(answers)
}

/// Takes out what a step says is not compared.
fn without(mut body: Value, pointers: &[String]) -> Value {
    for pointer in pointers {
        if let Some((parent, last)) = pointer.rsplit_once('/')
            && let Some(Value::Object(fields)) = body.pointer_mut(parent)
        {
            fields.remove(last);
        }
    }
    body
}

async fn run_step(cluster: &TestCluster, step: &Step, scope: &Scope) -> Result<Answer> {
    let request = request(step, scope)?;
    let user = step.user.as_deref().unwrap_or(ADMIN);
    let started = Instant::now();
    loop {
        let answer = match step.watch {
            Some(count) => cluster.watch(user, request.clone(), count).await,
            None => cluster.send(user, request.clone()).await,
        };
        let done = match (&answer, step.until) {
            (Ok(answer), Some(status)) => answer.status == status,
            _ => true,
        };
        if done || started.elapsed() > PATIENCE {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn request(step: &Step, scope: &Scope) -> Result<Request> {
    let (method, path) = step.target()?;
    let mut request = Request::new(method, &scope.fill(path)?);
    request.body = match (&step.body, &step.raw) {
        (Some(body), _) => scope.fill_value(body)?.to_string().into_bytes(),
        (None, Some(raw)) => repeated(&scope.fill(raw)?, step.repeat_to),
        (None, None) => Vec::new(),
    };
    let content_type = match step.content_type.as_deref() {
        None if request.body.is_empty() => None,
        None | Some("json") => Some("application/json"),
        Some("merge") => Some("application/merge-patch+json"),
        Some("strategic") => Some("application/strategic-merge-patch+json"),
        Some("jsonpatch") => Some("application/json-patch+json"),
        Some("apply") => Some("application/apply-patch+yaml"),
        Some("none") => None,
        Some(other) => Some(other),
    };
    let accept = step.accept.as_deref().map(|accept| match accept {
        "table" => "application/json;as=Table;v=v1;g=meta.k8s.io",
        "meta" => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "metalist" => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        other => other,
    });
    let named = [("content-type", content_type), ("accept", accept)];
    for (name, value) in named.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        request.headers.push((name.to_owned(), value.to_owned()));
    }
    for (name, value) in &step.headers {
        request.headers.push((name.clone(), scope.fill(value)?));
    }
    Ok(request)
}

fn repeated(text: &str, length: Option<usize>) -> Vec<u8> {
    match length {
        Some(length) => text.bytes().cycle().take(length).collect(),
        None => text.as_bytes().to_vec(),
    }
}
