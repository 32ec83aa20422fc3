//! Spans of what is done, for whoever traces. Unless somebody asked for them, one costs a look at a flag.
//!
//! Work on an object has a span ([`work`]); the calls to the API server that it makes are its children.

use tracing::field::Empty;
use tracing::{Span, trace_span};
use usher_decide::snapshot::{Key, Request};

use crate::requests::Failure;

/// By this they are told apart from what is logged.
pub const TARGET: &str = "usher::spans";

/// The work on an object, as in "reconcile Node"; the namespace is empty where there is none.
pub fn work(what: &'static str, namespace: &str, name: &str) -> Span {
    let namespace = (!namespace.is_empty()).then_some(namespace);
    trace_span!(target: TARGET, "work", otel.name = what, usher.object = name, k8s.namespace.name = namespace)
}

/// A call about a pod or its request.
pub(crate) fn about_pod(call: &'static str, pod: &Key, uid: &str) -> Span {
    trace_span!(target: TARGET, "call", otel.name = call, otel.kind = "client", otel.status_code = Empty,
        otel.status_description = Empty, usher.answer = Empty, k8s.namespace.name = &*pod.namespace,
        k8s.pod.name = &*pod.name, k8s.pod.uid = uid)
}

pub(crate) fn about_request(call: &'static str, request: &Request) -> Span {
    about_pod(call, &request.pod_key(), &request.pod_uid)
}

pub(crate) fn about_node(call: &'static str, node: &str) -> Span {
    trace_span!(target: TARGET, "call", otel.name = call, otel.kind = "client", otel.status_code = Empty,
        otel.status_description = Empty, k8s.node.name = node)
}

pub(crate) fn about_maintenance(call: &'static str, maintenance: &str) -> Span {
    trace_span!(target: TARGET, "call", otel.name = call, otel.kind = "client", otel.status_code = Empty,
        otel.status_description = Empty, usher.maintenance = maintenance)
}

/// How the call ended.
pub(crate) fn end<T>(span: &Span, result: &Result<T, Failure>) {
    if let Err(failure) = result
        && !span.is_disabled()
    {
        let why = match failure {
            Failure::Outdated => "it has changed meanwhile",
            Failure::Panicked => "a defect of Usher",
            Failure::NameTaken => "something else has the name",
            Failure::Later(why) | Failure::Refused { message: why, .. } => why.as_str(),
        };
        span.record("otel.status_code", "error");
        span.record("otel.status_description", why);
    }
}
