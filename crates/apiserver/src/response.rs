//! What the server answers with: whole bodies, lists that are written as they are read, and watches.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use futures::Stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;

use crate::error::ApiError;
use crate::store::Object;

pub type ServerBody = UnsyncBoxBody<Bytes, Infallible>;
pub type ServerResponse = Response<ServerBody>;

/// Is among the extensions of an answer where a patch read and wrote the status alone: tests see by it which way was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusAlone;

fn respond(code: u16, content_type: &'static str, body: ServerBody) -> ServerResponse {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

pub(crate) fn bytes(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> ServerResponse {
    respond(code, content_type, Full::new(body.into()).boxed_unsync())
}

pub(crate) fn json_bytes(code: u16, body: Bytes) -> ServerResponse {
    bytes(code, "application/json", body)
}

pub(crate) fn json(code: u16, value: &Value) -> ServerResponse {
    json_bytes(code, value.to_string().into())
}

pub(crate) fn text(code: u16, body: &'static str) -> ServerResponse {
    bytes(code, "text/plain; charset=utf-8", body)
}

pub(crate) fn error(error: &ApiError) -> ServerResponse {
    let mut response = json(error.code, &error.status());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A stream of watch events, each already a line of JSON.
pub(crate) fn watch(events: impl Stream<Item = Bytes> + Send + 'static) -> ServerResponse {
    let frames = futures::StreamExt::map(events, |chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    respond(200, "application/json", BodyExt::boxed_unsync(StreamBody::new(frames)))
}

/// Warnings go into headers of their own, code 299 as Kubernetes sends them.
pub(crate) fn add_warnings(response: &mut ServerResponse, warnings: &[String]) {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// A list written straight from the stored bytes, a chunk at a time, so that a large one is never held twice.
/// Items of built-in kinds come without kind and apiVersion.
pub(crate) fn list(head: String, objects: Vec<Arc<Object>>, typed: bool) -> ServerResponse {
    let body = ListBody { head: Some(head), objects, typed, at: 0, done: false };
    respond(200, "application/json", body.boxed_unsync())
}

struct ListBody {
    /// Everything up to and including `"items":[`.
    head: Option<String>,
    objects: Vec<Arc<Object>>,
    typed: bool,
    at: usize,
    done: bool,
}

const CHUNK: usize = 256 << 10;

impl Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let left: usize = self.objects[self.at..].iter().take(256).map(|o| o.text().len() + 1).sum();
        let mut chunk = BytesMut::with_capacity(left.min(CHUNK + (CHUNK >> 2)) + 512);
        if let Some(head) = self.head.take() {
            chunk.put_slice(head.as_bytes());
        }
        while let Some(object) = self.objects.get(self.at)
            && chunk.len() < CHUNK
        {
            if self.at > 0 {
                chunk.put_u8(b',');
            }
            if self.typed {
                chunk.put_slice(object.text().as_bytes());
            } else {
                chunk.put_u8(b'{');
                chunk.put_slice(object.untyped_fields().as_bytes());
            }
            self.at += 1;
        }
        if self.at == self.objects.len() {
            chunk.put_slice(b"]}");
            self.done = true;
        }
        Poll::Ready(Some(Ok(Frame::data(chunk.freeze()))))
    }
}
