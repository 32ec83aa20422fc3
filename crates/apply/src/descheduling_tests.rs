//! What is told of pods that are asked, and of what cannot be saved.

use std::sync::Arc;

use http::{Request as HttpRequest, Response};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use usher_client::Clock;
use usher_descheduler::Reason;
use usher_descheduler::policy::PluginName;

use super::*;

#[test]
fn only_who_says_that_there_is_no_pod_tells_that_it_is_gone() {
    let status = |details: serde_json::Value| -> Status {
        let said = serde_json::json!({"status": "Failure", "code": 404, "reason": "NotFound", "details": details, "message": "no such thing"});
        serde_json::from_value(said).unwrap()
    };
    assert!(says_that_there_is_no_pod(&status(serde_json::json!({"kind": "pods", "name": "web"}))));
    for other in [
        serde_json::json!({"kind": "namespaces", "name": "shop"}),
        serde_json::json!({}),
        serde_json::Value::Null,
    ] {
        assert!(!says_that_there_is_no_pod(&status(other.clone())), "{other}");
        let (asked, why) = not_asked(Error::Api(Box::new(status(other))));
        assert!(
            asked == AskOutcome::Refused && why == "no such thing",
            "it is told, and tried later and later"
        );
    }
}

#[test]
fn who_had_no_answer_may_have_been_asked() {
    let asked = |code: u16| {
        let status = Status { code, ..Status::failure("no", "") };
        not_asked(Error::Api(Box::new(status))).0
    };
    assert_eq!(asked(403), AskOutcome::Refused);
    assert_eq!(asked(503), AskOutcome::Unknown);
    assert_eq!(not_asked(Error::Service("no".into())).0, AskOutcome::Unknown);
}

/// The lines of the log, each with its level and fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("usher_apply")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            line.push_str(&format!(" {field}={value:?}"));
        });
        self.0.lock().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn proposal() -> Proposal {
    let text = |text: &str| text.to_owned();
    Proposal {
        pod: PodRef { namespace: text("shop"), name: text("web"), uid: text("u-1"), node: text("n-1") },
        profile: text("default"),
        plugin: PluginName::RemoveFailedPods,
        reason: Reason::Failed { reason: None },
        fits_on: None,
        owner: None,
    }
}

/// Asks by a server that answers everything so. What is logged.
async fn logged(by: Way, code: u16, answer: &Value) -> Vec<String> {
    let lines = Lines::default();
    let _here = tracing::subscriber::set_default(lines.clone());
    let answer = answer.to_string();
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        // A request that was made is sent back.
        let (answer, is_made) = (answer.clone(), code == 201);
        async move {
            let made = request.into_body().collect_bytes().await?.to_vec();
            let answer = if is_made { made } else { answer.into_bytes() };
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
                Response::builder().status(code).body(Body::from(answer))?,
            )
        }
    });
    let client = Client::new(service, "default");
    let name = DeschedulerName { namespace: "usher-system".to_owned(), name: "usher-descheduler".to_owned() };
    let events = Events::start(client.clone(), Clock::system());
    let policy = Policy::read("apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n").unwrap();
    Descheduling::new(client, events, name).ask(&proposal(), by, &policy).await;
    let lines = lines.0.lock();
    lines.iter().filter(|line| line.starts_with("INFO")).cloned().collect()
}

#[tokio::test]
async fn whoever_is_asked_is_named_in_the_log_with_why_and_by_which_request() {
    let failed = |code: u16| json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": "no"});
    let who = "namespace=\"shop\" pod=\"web\" node=\"n-1\" plugin=RemoveFailedPods profile=\"default\" reason=failed";
    let request = "request=\"u-1\"";
    let evicted = json!({"kind": "Status", "status": "Success", "code": 200});
    for (by, code, answer, parts) in [
        (Way::Request, 201, json!({}), vec![who, request, "asked to leave by an EvictionRequest"]),
        (
            Way::Request,
            409,
            failed(409),
            vec![who, request, "already by an EvictionRequest of somebody else"],
        ),
        (Way::Request, 403, failed(403), vec![]),
        (Way::Eviction { in_background: false }, 200, evicted, vec![who, "evicted by the eviction API"]),
    ] {
        let lines = logged(by, code, &answer).await;
        assert_eq!(lines.len(), usize::from(!parts.is_empty()), "{code}: {lines:?}");
        for part in parts {
            assert!(lines[0].contains(part), "{code} {part}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_saved_is_told_in_a_sentence() {
    let service = tower::service_fn(|_: HttpRequest<Body>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
    });
    let client = Client::new(service, "default");
    let name = DeschedulerName { namespace: "usher-system".to_owned(), name: "usher-descheduler".to_owned() };
    let apply = Descheduling::new(client.clone(), Events::start(client, Clock::system()), name);
    let place = "what is to be remembered could not be saved in ConfigMap usher-system/usher-descheduler-cool-downs: ";
    let refused = |reason| Failure::Refused { reason, message: "configmaps is forbidden".to_owned() };
    for (failure, why) in [
        (
            refused(RefusedWrite::NotAllowed),
            "configmaps is forbidden; let the descheduler create and update it, as the role in deploy/descheduler/role.yaml does",
        ),
        (refused(RefusedWrite::NoNamespace), "configmaps is forbidden"),
        (Failure::Later("the server did not answer".to_owned()), "the server did not answer"),
        (Failure::Outdated, "it has changed meanwhile, or is gone"),
    ] {
        assert_eq!(apply.not_saved(&failure), format!("{place}{why}"));
    }
}
