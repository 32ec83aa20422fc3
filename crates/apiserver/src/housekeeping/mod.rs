//! What a cluster does by itself to stay clean: garbage collection by owner references, and emptying namespaces that
//! are being deleted. On a real cluster the controller manager does this; here it runs beside the server and acts
//! through the same API, as its own user. Old events go as from etcd: without a request.

mod expiry;
mod garbage;
mod namespaces;

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::attributes::User;
use crate::auth::MASTERS;
use crate::kinds::Kind;
use crate::server::Server;
use crate::store::Object;
use expiry::Expiry;

/// A change that housekeeping may have to follow up.
pub(crate) enum Happened {
    /// `owned_anew`: it names owners that it did not name before.
    Written {
        kind: Arc<Kind>,
        object: Arc<Object>,
        owned_anew: bool,
    },
    Deleted {
        kind: Arc<Kind>,
        object: Arc<Object>,
    },
}

/// Runs until the server is gone.
pub(crate) async fn run(server: Weak<Server>, mut happened: UnboundedReceiver<Happened>) {
    let mut events = Expiry::default();
    loop {
        let left = events.next().and_then(|at| Some(server.upgrade()?.time_until(at)));
        let expired = async {
            match left {
                // Timers of tokio count in milliseconds, rounded up so that it is not too early.
                Some(left) => tokio::time::sleep(left.saturating_add(Duration::from_millis(1))).await,
                None => std::future::pending().await,
            }
        };
        let change = tokio::select! {
            biased;
            change = happened.recv() => change,
            () = expired => {
                let Some(server) = server.upgrade() else { return };
                events.sweep(&server);
                continue;
            }
        };
        let (Some(change), Some(server)) = (change, server.upgrade()) else { return };
        match change {
            Happened::Written { kind, object, owned_anew } => {
                events.written(&kind, &object, server.now());
                garbage::written(&server, &kind, &object, owned_anew).await;
                namespaces::written(&server, &kind, &object).await;
            }
            Happened::Deleted { kind, object } => {
                garbage::deleted(&server, &object).await;
                namespaces::deleted(&server, &kind, &object).await;
            }
        }
    }
}

fn housekeeper() -> User {
    User {
        name: "system:serviceaccount:kube-system:housekeeping".into(),
        uid: String::new(),
        groups: vec![MASTERS.into(), "system:serviceaccounts".into()],
    }
}

/// One request to the API; the answer's code and object.
async fn send(
    server: &Arc<Server>,
    method: Method,
    path: &str,
    content_type: &str,
    body: &Value,
) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::USER_AGENT, "housekeeping/1")
        .body(Full::new(Bytes::from(body.to_string())));
    let Ok(request) = request else {
        tracing::warn!(path, "not a path that can be requested");
        return (0, Value::Null);
    };
    let response = server.respond(request, Some(&housekeeper())).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    (code, serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
}

/// The path of an object.
fn path_of(kind: &Kind, namespace: &str, name: &str) -> String {
    let prefix = if kind.group.is_empty() { "/api".to_string() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    format!("{prefix}/{}{namespace}/{}/{}", kind.version, kind.plural, name.replace(':', "%3A"))
}
