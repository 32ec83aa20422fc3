//! Telling people what happens, by events on the request, the pod and its owner.
//!
//! Events are written beside the work and never hold it up. The same event of the same object is written once in a
//! while, with how often it happened, and what cannot be written is dropped.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use usher_api::EvictionRequest;
use usher_api::names::FIELD_MANAGER;
use usher_client::Clock;
use usher_decide::decision::{About, Notice};
use usher_decide::snapshot::{Pod, Request};

/// The same event of the same object is written at most this often.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// So many events may wait to be written, and so many are remembered.
const WAITING: usize = 1024;
const REMEMBERED: usize = 16 * 1024;
/// So long each may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where events are handed in. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    sender: mpsc::Sender<Handed>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Handed {
    Event(Box<PendingEvent>),
    /// To be answered when all that was handed in before is written.
    Flush(oneshot::Sender<()>),
}

#[derive(Debug)]
struct PendingEvent {
    about: ObjectReference,
    reason: &'static str,
    message: String,
    is_warning: bool,
    /// Whether another message of the same reason is the same event: an owner has many pods.
    is_counted: bool,
}

impl Events {
    /// Starts writing. Ends when all clones are gone.
    pub fn start(client: Client, clock: Clock) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Handed>(WAITING);
        tokio::spawn(async move {
            let mut writer = Writer { client, clock, known: HashMap::new(), written: 0 };
            while let Some(handed) = receiver.recv().await {
                match handed {
                    Handed::Event(event) => writer.write(*event).await,
                    Handed::Flush(done) => drop(done.send(())),
                }
            }
        });
        Self { sender, dropped: Arc::default() }
    }

    /// How many could not be taken because too many were waiting.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all that was handed in is written, but not for ever: for who is about to end.
    pub async fn flush(&self) {
        let (done, mut flushed) = oneshot::channel();
        let handed = tokio::time::timeout(LAST_WORDS, self.sender.send(Handed::Flush(done))).await;
        if !matches!(handed, Ok(Ok(()))) {
            return;
        }
        // A client that may ask only so often takes its time, and goes on.
        loop {
            let before = self.sender.capacity();
            let is_flushed = tokio::time::timeout(LAST_WORDS, &mut flushed).await.is_ok();
            if is_flushed || self.sender.capacity() <= before {
                return;
            }
        }
    }

    /// An event of one object.
    pub(crate) fn record_on(
        &self,
        about: ObjectReference,
        reason: &'static str,
        message: String,
        is_warning: bool,
    ) {
        self.hand_in(PendingEvent { about, reason, message, is_warning, is_counted: false });
    }

    /// Of the owner of a pod, of which it has many: another one is the same event.
    pub(crate) fn record_on_owner(
        &self,
        owner: ObjectReference,
        reason: &'static str,
        pod: &str,
        message: &str,
    ) {
        let message = format!("pod {pod}: {message}");
        self.hand_in(PendingEvent { about: owner, reason, message, is_warning: false, is_counted: true });
    }

    fn hand_in(&self, event: PendingEvent) {
        if self.sender.try_send(Handed::Event(Box::new(event))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn record(&self, request: &Request, pod: Option<&Pod>, notice: &Notice) {
        for about in notice.about {
            let Some((subject, message)) = subject(*about, request, pod, &notice.message) else { continue };
            self.hand_in(PendingEvent {
                about: subject,
                reason: notice.reason,
                message,
                is_warning: notice.is_warning,
                is_counted: *about == About::Owner,
            });
        }
    }
}

/// Where events on objects without a namespace are kept, as everybody keeps them.
const CLUSTER_EVENTS: &str = "default";

/// The object that the event is about, and what it says there: an owner needs to hear which pod is meant.
fn subject(
    about: About,
    request: &Request,
    pod: Option<&Pod>,
    message: &str,
) -> Option<(ObjectReference, String)> {
    let namespace = Some(request.key.namespace.to_string());
    match about {
        About::Request => {
            let reference = ObjectReference {
                api_version: Some(EvictionRequest::api_version(&()).into_owned()),
                kind: Some(EvictionRequest::kind(&()).into_owned()),
                name: Some(request.key.name.to_string()),
                uid: Some(request.uid.to_string()),
                namespace,
                ..ObjectReference::default()
            };
            Some((reference, message.to_string()))
        }
        About::Pod => {
            let reference = ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(request.pod_name.to_string()),
                uid: Some(request.pod_uid.to_string()),
                namespace,
                ..ObjectReference::default()
            };
            Some((reference, message.to_string()))
        }
        About::Owner => {
            let owner = pod?.owner.as_ref()?;
            let reference = ObjectReference {
                api_version: Some(owner.api_version.to_string()),
                kind: Some(owner.kind.to_string()),
                name: Some(owner.name.to_string()),
                uid: Some(owner.uid.to_string()),
                namespace,
                ..ObjectReference::default()
            };
            Some((reference, format!("pod {}: {message}", request.pod_name)))
        }
    }
}

struct Writer {
    client: Client,
    clock: Clock,
    /// By the UID of the object, the reason, and the message where another one is another event.
    known: HashMap<(String, &'static str, String), WrittenEvent>,
    written: i128,
}

struct WrittenEvent {
    name: String,
    at: Timestamp,
    count: i32,
}

impl Writer {
    async fn write(&mut self, pending: PendingEvent) {
        let now = self.clock.now();
        let namespace = pending.about.namespace.clone().unwrap_or_else(|| CLUSTER_EVENTS.to_string());
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let words = if pending.is_counted { String::new() } else { pending.message.clone() };
        let key = (pending.about.uid.clone().unwrap_or_default(), pending.reason, words);
        if let Some(known) = self.known.get_mut(&key) {
            known.count += 1;
            if now < known.at + PAUSE {
                return;
            }
            known.at = now;
            let patch = json!({"count": known.count, "message": pending.message, "lastTimestamp": Time(now)});
            let name = known.name.clone();
            match events.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => return,
                // It has expired: it is told anew.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(why) => {
                    tracing::debug!(%why, "an event could not be counted");
                    return;
                }
            }
        }
        if self.known.len() >= REMEMBERED {
            self.known.retain(|_, known| now < known.at + PAUSE);
        }
        // Named as others name their events, by object and time; the number keeps two of one time apart.
        self.written += 1;
        let unique = now.as_nanosecond() + self.written;
        let name = format!("{}.{unique:x}", pending.about.name.as_deref().unwrap_or_default());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: pending.about,
            reason: Some(pending.reason.to_string()),
            message: Some(pending.message),
            type_: Some(if pending.is_warning { "Warning" } else { "Normal" }.to_string()),
            source: Some(EventSource { component: Some(FIELD_MANAGER.to_string()), host: None }),
            reporting_component: Some(FIELD_MANAGER.to_string()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        if let Err(why) = events.create(&PostParams::default(), &event).await {
            tracing::debug!(%why, reason = pending.reason, "an event could not be written");
            return;
        }
        self.known.insert(key, WrittenEvent { name, at: now, count: 1 });
    }
}
