//! From an HTTP request to its answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request};
use http_body::Body;
use http_body_util::BodyExt;

use super::Server;
use crate::attributes::{Attributes, User};
use crate::auth::impersonation;
use crate::discovery;
use crate::error::{ApiError, ApiResult};
use crate::negotiate;
use crate::request::{Path, Query};
use crate::response::{self, ServerResponse};
use crate::rest::{self, Call};
use crate::table::IncludeObject;

/// The largest body that is read, as kube-apiserver has it.
const MAX_BODY: usize = 3 * 1024 * 1024;

impl Server {
    /// Answers one request; `trusted` is who a caller without a token is.
    pub(crate) async fn respond<B>(
        self: &Arc<Self>,
        request: Request<B>,
        trusted: Option<&User>,
    ) -> ServerResponse
    where
        B: Body<Data = Bytes>,
    {
        let (parts, body) = request.into_parts();
        let mut warnings = Vec::new();
        let answer = match read_body(body).await {
            Ok(body) => {
                self.answer(&parts.method, &parts.uri, parts.headers, body, trusted, &mut warnings).await
            }
            Err(error) => Err(error),
        };
        let mut response = answer.unwrap_or_else(|error| response::error(&error));
        response::add_warnings(&mut response, &warnings);
        response
    }

    /// Boxed, so that all handlers are compiled in this crate, with its optimisation level, and not again in each crate that sends
    /// requests.
    fn answer<'a>(
        self: &'a Arc<Self>,
        method: &'a Method,
        uri: &'a http::Uri,
        headers: HeaderMap,
        body: Bytes,
        trusted: Option<&'a User>,
        warnings: &'a mut Vec<String>,
    ) -> BoxFuture<'a, ApiResult<ServerResponse>> {
        Box::pin(self.dispatch(method, uri, headers, body, trusted, warnings))
    }

    async fn dispatch(
        self: &Arc<Self>,
        method: &Method,
        uri: &http::Uri,
        headers: HeaderMap,
        body: Bytes,
        trusted: Option<&User>,
        warnings: &mut Vec<String>,
    ) -> ApiResult<ServerResponse> {
        let caller = self.authenticate(&headers, trusted)?;
        let query = Query::parse(uri.query());
        let path = Path::parse(uri.path());
        let attributes = attributes(method, uri.path(), &path, &query);
        let user = match impersonation::wanted(&headers)? {
            None => caller,
            Some(wanted) => impersonation::impersonate(&caller, &wanted, &attributes, &self.rbac())?,
        };
        self.authorize(&user, &attributes)?;
        let Path::Resource(path) = path else {
            return discovery::answer(self, method, uri.path(), &headers);
        };
        let verb = attributes.verb.as_str();
        if *method == Method::HEAD {
            return Err(rest::errors::method_not_allowed());
        }
        let registry = self.registry();
        let found = registry.find(&path.group, &path.version, &path.resource);
        // A namespaced kind is listed across namespaces, but a named one needs its namespace; the others have none.
        let Some(kind) = found.filter(|kind| match &path.namespace {
            Some(_) => kind.namespaced,
            None => !kind.namespaced || path.name.is_none(),
        }) else {
            // Custom kinds are behind another handler than built-in groups, and each has its own way to say no.
            let built_in = registry.iter().any(|kind| kind.group == path.group && !kind.is_custom());
            return if built_in {
                Err(rest::errors::no_such_path())
            } else {
                Ok(response::text(404, "404 page not found\n"))
            };
        };
        if kind.namespaced && path.namespace.is_none() && !matches!(verb, "list" | "watch") {
            return Err(rest::errors::method_not_allowed());
        }
        let form = negotiate::form(&headers)?;
        if let (negotiate::Form::Table(_), Some(include)) = (form, query.get("includeObject"))
            && IncludeObject::parse(include).is_none()
        {
            return Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \"{include}\": must be \
                 'Metadata', 'Object', 'None', or empty"
            )));
        }
        let mut call = Call {
            server: self,
            kind: kind.clone(),
            path,
            attributes: attributes.clone(),
            query,
            headers,
            user,
            form,
            body,
            warnings: Vec::new(),
        };
        if !call.kind.warning.is_empty() {
            warnings.push(call.kind.warning.clone());
        }
        let answer = rest::handle(&mut call, verb).await;
        warnings.append(&mut call.warnings);
        answer
    }
}

/// What the request is about, as rights and webhooks see it.
fn attributes(method: &Method, url: &str, path: &Path, query: &Query) -> Attributes {
    let Path::Resource(path) = path else {
        let verb = method.as_str().to_lowercase();
        return Attributes { verb, path: url.to_string(), ..Attributes::default() };
    };
    Attributes {
        verb: rest::verb(method, path, query).to_string(),
        group: path.group.clone(),
        version: path.version.clone(),
        resource: path.resource.clone(),
        subresource: path.subresource.clone().unwrap_or_default(),
        // A namespace is its own namespace, as rights on it are granted there.
        namespace: path
            .namespace
            .clone()
            .or_else(|| path.name.clone().filter(|_| path.group.is_empty() && path.resource == "namespaces"))
            .unwrap_or_default(),
        name: path.name.clone().unwrap_or_default(),
        path: String::new(),
    }
}

async fn read_body<B: Body<Data = Bytes>>(body: B) -> ApiResult<Bytes> {
    let mut body = std::pin::pin!(body);
    let mut whole = BytesMut::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.as_mut().frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::bad_request("the body of the request could not be read"));
        };
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > MAX_BODY {
            return Err(ApiError::new(
                413,
                "RequestEntityTooLarge",
                format!("Request entity too large: limit is {MAX_BODY}"),
            ));
        }
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(earlier) => {
                whole.extend_from_slice(&earlier);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}
