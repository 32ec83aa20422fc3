//! A scripted session: each step says what a person would type, sends the request, and prints what the server answers.

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt as _;
use usher_cluster::{Cluster, ClusterService};

pub struct Session {
    service: ClusterService,
}

/// The server's answer: its code and object.
pub struct Answer {
    pub code: u16,
    pub body: Value,
}

impl Session {
    pub fn on(cluster: &Cluster) -> Self {
        Self { service: cluster.service() }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).context("the request is not well formed")?;
        let Ok(response) = self.service.clone().oneshot(request).await;
        let code = response.status().as_u16();
        let Ok(body) = response.into_body().collect().await;
        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        Ok(Answer { code, body })
    }

    /// Creates an object and prints what `kubectl create` would.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Answer> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let done = format!("{} {name} created", object["kind"].as_str().unwrap_or("object"));
        self.post(path, object, &done).await
    }

    /// Sends an object and prints what was done, or why not.
    pub async fn post(&self, path: &str, object: &Value, done: &str) -> anyhow::Result<Answer> {
        let json = [(header::CONTENT_TYPE, "application/json")];
        let answer = self.send(Method::POST, path, &json, Some(object)).await?;
        answer.print(done);
        Ok(answer)
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, &[], None).await
    }

    pub async fn patch(&self, path: &str, patch: &Value, done: &str) -> anyhow::Result<Answer> {
        let merge = [(header::CONTENT_TYPE, "application/merge-patch+json")];
        let answer = self.send(Method::PATCH, path, &merge, Some(patch)).await?;
        answer.print(done);
        Ok(answer)
    }

    /// Prints a list as the table that the server makes of it.
    pub async fn show(&self, command: &str, path: &str) -> anyhow::Result<()> {
        println!("\n$ {command}");
        let accept = [(header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let answer = self.send(Method::GET, path, &accept, None).await?;
        if answer.code != 200 {
            answer.print("");
            return Ok(());
        }
        print_table(&answer.body);
        Ok(())
    }
}

impl Answer {
    /// One line: what was done, or why not.
    fn print(&self, done: &str) {
        if self.code < 300 {
            println!("  {done}");
        } else {
            println!("  {} {}", self.code, self.body["message"].as_str().unwrap_or("no message"));
            for cause in self.body["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice) {
                if let Some(message) = cause["message"].as_str() {
                    println!("      {message}");
                }
            }
        }
    }
}

/// Columns of priority 0, as wide as they need to be.
fn print_table(table: &Value) {
    let columns: Vec<(usize, String)> = table["columnDefinitions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .enumerate()
        .filter(|(_, column)| column["priority"] == 0)
        .map(|(index, column)| (index, column["name"].as_str().unwrap_or_default().to_uppercase()))
        .collect();
    let cell = |row: &Value, index: usize| match &row["cells"][index] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|(_, name)| name.clone()).collect()];
    for row in table["rows"].as_array().map_or(&[][..], Vec::as_slice) {
        lines.push(columns.iter().map(|(index, _)| cell(row, *index)).collect());
    }
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or_default())
        .collect();
    for line in lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}")).collect();
        println!("  {}", padded.join("   ").trim_end());
    }
}
