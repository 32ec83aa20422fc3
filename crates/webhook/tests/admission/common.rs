//! What the tests of admission have in common.

use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use usher_webhook::Admission;

/// Admission that asks this API server.
pub fn admission<F>(answer: impl Fn(Request<Body>) -> F + Clone + Send + 'static) -> Admission
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    Admission::new(kube::Client::new(service, "default"))
}
