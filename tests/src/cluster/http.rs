//! Requests and answers as they go over the wire.

use super::USER_AGENT;
use anyhow::{Context, Result};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// No single answer takes longer, unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// One request. Headers are sent as they are; only `Authorization` is added, and a `User-Agent` where it names none.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: http::Method,
    /// Path and query, already encoded.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// One answer. The body is JSON where it can be read as such, text otherwise.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The texts of all `Warning` headers.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let values = self.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
        values.map(warning_text).collect()
    }

    /// The value of a header, where it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// `299 - "text"`, with quotes and backslashes inside escaped.
fn warning_text(value: &str) -> String {
    let text = value.split_once('"').map_or(value, |(_, text)| text);
    text.strip_suffix('"').unwrap_or(text).replace("\\\"", "\"").replace("\\\\", "\\")
}

fn build(request: Request) -> Result<http::Request<Body>> {
    let mut builder = http::Request::builder().method(request.method).uri(&request.path);
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let mut built = builder
        .body(Body::from(request.body))
        .with_context(|| format!("no valid request: {}", request.path))?;
    let user_agent = HeaderValue::from_static(USER_AGENT);
    built.headers_mut().entry(USER_AGENT_HEADER).or_insert(user_agent);
    Ok(built)
}

pub(crate) async fn send(client: &kube::Client, request: Request) -> Result<Answer> {
    timeout(PATIENCE, async {
        let (parts, body) = client.send(build(request)?).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: json_or_text(&bytes) })
    })
    .await
    .context("no answer in time")?
}

pub(super) async fn watch(client: &kube::Client, request: Request, count: usize) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let response =
        timeout_at(deadline, client.send(build(request)?)).await.context("no answer in time")??;
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    let is_watch = parts.status.is_success();
    while let Ok(Some(frame)) = timeout_at(deadline, body.frame()).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if is_watch && events(&bytes).len() >= count {
            break;
        }
    }
    let body = if is_watch {
        let mut events = events(&bytes);
        events.truncate(count);
        Value::Array(events)
    } else {
        json_or_text(&bytes)
    };
    Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
}

/// All events that have come whole.
fn events(bytes: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(bytes).into_iter().map_while(Result::ok).collect()
}

fn json_or_text(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(method: http::Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), ..Self::default() }
    }

    /// A request with a JSON body.
    #[must_use]
    pub fn with_json(method: http::Method, path: &str, body: &Value) -> Self {
        let mut request = Self::new(method, path);
        request.headers.push((CONTENT_TYPE.to_string(), "application/json".to_owned()));
        request.body = body.to_string().into_bytes();
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_what_stands_between_the_outer_quotes() {
        assert_eq!(warning_text(r#"299 - "unknown field \"a\"""#), r#"unknown field "a""#);
    }

    #[test]
    fn an_event_that_has_not_come_whole_is_not_counted() {
        assert_eq!(events(b"{\"type\":\"ADDED\"}\n{\"type\":").len(), 1);
    }
}
