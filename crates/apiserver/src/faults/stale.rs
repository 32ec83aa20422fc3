//! Reads that are answered from the past, as by a server whose cache lags behind.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Uri};
use http_body::Body;

use crate::attributes::User;
use crate::negotiate::{self, Form};
use crate::request::{Query, ResourcePath};
use crate::response::{self, ServerResponse};
use crate::rest::errors;
use crate::server::Server;
use crate::store::Key;

/// Answers a get or list as it was so many revisions ago; as it is now where the past is not kept, and where the
/// request does not allow it: a real server answers from its cache only if a `resourceVersion` is given.
pub(super) async fn read<B>(
    server: &Arc<Server>,
    user: &User,
    request: Request<B>,
    path: &ResourcePath,
    revisions: u64,
) -> ServerResponse
where
    B: Body<Data = Bytes>,
{
    let Some(revision) = revision(server, &request, revisions) else {
        return server.respond(request, Some(user)).await;
    };
    if path.name.is_none() {
        return server.respond(exactly(request, revision), Some(user)).await;
    }
    let as_object = matches!(negotiate::form(request.headers()), Ok(Form::Object));
    let present = server.respond(request, Some(user)).await;
    // Whoever may not read it now gets no older state either.
    let may_read = matches!(present.status().as_u16(), 200 | 404);
    let past = (as_object && may_read).then(|| object_at(server, path, revision)).flatten();
    past.unwrap_or(present)
}

/// The revision to show, if it is not for the request to say.
fn revision<B>(server: &Server, request: &Request<B>, revisions: u64) -> Option<u64> {
    let query = Query::parse(request.uri().query());
    if query.get("continue").is_some() || query.get("resourceVersionMatch") == Some("Exact") {
        return None;
    }
    let least: u64 = query.get("resourceVersion")?.parse().ok()?;
    Some(server.store.revision().saturating_sub(revisions).max(least).max(1))
}

/// The answer to a get at a revision; `None` where it cannot be known, or the stored form is not what is served.
fn object_at(server: &Server, path: &ResourcePath, revision: u64) -> Option<ServerResponse> {
    let (name, None) = (path.name.as_deref()?, &path.subresource) else { return None };
    let registry = server.registry();
    let kind = registry.find(&path.group, &path.version, &path.resource)?;
    if kind.api_version() != kind.storage_api_version {
        return None;
    }
    let then = server.store.list_at(&kind.storage, path.namespace.as_deref(), revision).ok()?;
    let key = Key::new(path.namespace.as_deref().unwrap_or_default(), name);
    Some(match then.objects.iter().find(|object| object.key == key) {
        Some(object) => response::json_bytes(200, object.bytes()),
        None => response::error(&errors::not_found(kind, name)),
    })
}

/// The same list, at exactly this revision.
fn exactly<B>(mut request: Request<B>, revision: u64) -> Request<B> {
    let uri = request.uri();
    let others = uri.query().unwrap_or_default().split('&');
    let mut query: Vec<String> = others
        .filter(|pair| !pair.is_empty() && !pair.starts_with("resourceVersion"))
        .map(str::to_string)
        .collect();
    query.push(format!("resourceVersion={revision}&resourceVersionMatch=Exact"));
    let path = format!("{}?{}", uri.path(), query.join("&"));
    if let Ok(uri) = path.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}
