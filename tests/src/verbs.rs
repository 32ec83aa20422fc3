//! The requests that scenarios send most, by their verbs. All are sent by the administrator.

use crate::cluster::ADMIN;
use crate::{Answer, Request, TestCluster};
use anyhow::{Result, bail};
use http::Method;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// How long something may take that the cluster does by itself.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

impl TestCluster {
    /// # Errors
    /// The connection failed, as for all of these; any HTTP status is an answer.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(ADMIN, Request::new(Method::GET, path)).await
    }

    /// # Errors
    /// The connection failed.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(ADMIN, Request::with_json(Method::POST, path, body)).await
    }

    /// # Errors
    /// The connection failed.
    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(ADMIN, Request::with_json(Method::PUT, path, body)).await
    }

    /// # Errors
    /// The connection failed.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Answer> {
        let mut request = Request::with_json(Method::PATCH, path, patch);
        request.headers = vec![(CONTENT_TYPE.to_string(), "application/merge-patch+json".to_owned())];
        self.send(ADMIN, request).await
    }

    /// # Errors
    /// The connection failed.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(ADMIN, Request::new(Method::DELETE, path)).await
    }

    /// # Errors
    /// The connection failed.
    pub async fn delete_with(&self, path: &str, options: Value) -> Result<Answer> {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let (Value::Object(body), Value::Object(options)) = (&mut body, options) {
            body.extend(options);
        }
        self.send(ADMIN, Request::with_json(Method::DELETE, path, &body)).await
    }

    /// Creates an object that has to be accepted and gives back what was stored.
    ///
    /// # Errors
    /// It was not created.
    pub async fn created(&self, path: &str, object: &Value) -> Result<Value> {
        let answer = self.post(path, object).await?;
        if answer.status != 201 {
            bail!("{path} on the {} cluster: {} {}", self.name(), answer.status, answer.body);
        }
        Ok(answer.body)
    }

    /// Reads `path` until the answer is as wanted, for what the cluster does in its own time.
    ///
    /// # Errors
    /// It did not become so in time; the last answer is in the error.
    pub async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await?;
            if wanted(&answer) {
                return Ok(answer);
            }
            if Instant::now() > deadline {
                bail!("{path} stays at {} {}", answer.status, answer.body);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until nothing is at `path`.
    ///
    /// # Errors
    /// It did not go in time.
    pub async fn until_gone(&self, path: &str) -> Result<()> {
        self.until(path, |answer| answer.status == 404).await.map(drop)
    }
}
