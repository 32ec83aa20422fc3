//! The gateway: plain evictions become eviction requests.
//!
//! The judgement is `usher_decide::admission::gateway`'s. Here is what it needs, the one write that it may ask for, and the answer. What
//! cannot be found out lets the eviction pass: without Usher it would.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use usher_api::gateway::{Ask, CallerClass, GatewayMode, requester_of_user};
use usher_api::lenient::Lenient;
use usher_api::names::{GATEWAY_MODE_LABEL, requester_finalizer};
use usher_api::{EvictionRequest, LocalPodReference};
use usher_client::kind_of;
use usher_client::requests::new_request;
use usher_decide::admission::gateway::{
    Case, Judgement, Pass, PlainEviction, Write, judge, passes, retry_after_seconds,
};
use usher_decide::admission::{Changes, Verdict};
use usher_decide::snapshot::{Request as KnownRequest, RequestOnWire};

use crate::admission::Admission;
use crate::objects::{self, is_namespace, is_pod_name};
use crate::review::{self, Operation, Request};
use crate::rights::Caller;

/// So many evictions are judged at a time.
const AT_A_TIME: usize = 32;
/// Who has waited for its place so long is told to try again, before the API server lets the eviction pass for want of an answer.
const PLACE_WITHIN: Duration = Duration::from_secs(1);
/// The API server gives 5 seconds, of which some pass on the way.
const JUDGED_WITHIN: Duration = Duration::from_secs(3);
const BUSY: &str = "Eviction is not begun: too many evictions at once, try again";
/// What a namespace says is not read more often than this.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// So many namespaces are remembered.
const NAMESPACES_MAX: usize = 4096;
/// Refusals are counted for as long, to tell callers when to come back.
const LATELY: Duration = Duration::from_secs(10);
/// More are not counted one by one.
const COUNTED_MAX: usize = 10_000;
/// As whom the gateway writes fields.
const FIELD_MANAGER: &str = "usher-gateway";

/// What came of a plain eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// A request was made, and the eviction refused.
    Asked,
    /// A request of others was joined, and the eviction refused.
    Joined,
    /// Refused, as before.
    Refused,
    /// Refused because too many came at once.
    Busy,
    /// Left to the API server.
    Passed,
    /// Left to the API server because something could not be found out, or the request not be made.
    Failed,
}

impl Answer {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Asked, Self::Joined, Self::Refused, Self::Busy, Self::Passed, Self::Failed];

    /// As metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Joined => "joined",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

/// Hears of every plain eviction.
pub type Observer = Arc<dyn Fn(Answer, CallerClass) + Send + Sync>;

/// What an administrator sets for the whole cluster.
#[derive(Clone, Default)]
pub struct GatewayOptions {
    /// Where the namespace does not say otherwise.
    pub mode: GatewayMode,
    /// Users whose evictions pass.
    pub exempt_users: Vec<String>,
    /// The same for groups.
    pub exempt_groups: Vec<String>,
    /// How long all interceptors of a pod may take together.
    pub interceptors_limit: Option<SignedDuration>,
    /// Who counts.
    pub observer: Option<Observer>,
}

impl GatewayOptions {
    /// In this mode, and nobody is exempt.
    pub fn in_mode(mode: GatewayMode) -> Self {
        Self { mode, ..Self::default() }
    }
}

pub(crate) struct Gateway {
    options: GatewayOptions,
    namespaces: Api<Namespace>,
    /// What namespaces say, as of when.
    modes: Mutex<HashMap<String, (Instant, Option<GatewayMode>)>>,
    refused: Mutex<VecDeque<Instant>>,
    at_a_time: Semaphore,
    /// When all places were last taken.
    crowded: Mutex<Option<Instant>>,
}

/// What is done with an eviction, and what is said.
enum Done {
    Pass(Pass),
    /// It passes because something went wrong.
    Failed(String),
    Refuse(Answer, String),
}

impl Gateway {
    pub fn new(client: Client, options: GatewayOptions) -> Self {
        Self {
            options,
            namespaces: Api::all(client),
            modes: Mutex::default(),
            refused: Mutex::default(),
            at_a_time: Semaphore::new(AT_A_TIME),
            crowded: Mutex::default(),
        }
    }

    pub async fn answer(&self, admission: &Admission, request: Request<'_>) -> Value {
        let Request { uid, operation, namespace, name, user_info, object, dry_run, sub_resource, .. } =
            request;
        let pod = LocalPodReference { name, uid: String::new() };
        if operation != Operation::Create || sub_resource != "eviction" {
            return review::malformed(&uid, "this is asked about evictions of pods only");
        }
        // They become parts of paths.
        if !is_namespace(&namespace) || !is_pod_name(&pod) {
            return review::malformed(&uid, "request.namespace or request.name is none of a pod");
        }
        let mut eviction = objects::eviction(object);
        eviction.is_dry_run |= dry_run.unwrap_or_default();
        let class = CallerClass::of_user(&user_info.username);
        let judged = timeout(JUDGED_WITHIN, async {
            let place = timeout(PLACE_WITHIN, self.at_a_time.acquire()).await;
            if self.at_a_time.available_permits() == 0 {
                *self.crowded.lock() = Some(Instant::now());
            }
            let _place = place.ok()?;
            Some(self.judge(admission, &namespace, &pod.name, &user_info, &eviction).await)
        });
        let done = match judged.await {
            Ok(Some(done)) => done,
            // Others are in the way, and soon are not: one that asks again finds a place.
            Ok(None) => Done::Refuse(Answer::Busy, BUSY.to_owned()),
            Err(_) if self.is_crowded() => Done::Refuse(Answer::Busy, BUSY.to_owned()),
            Err(_) => Done::Failed("the cluster did not answer in time".to_owned()),
        };
        let (counted, answer) = match done {
            Done::Pass(why) => {
                tracing::debug!(pod = %pod.name, namespace, ?why, "a plain eviction passes");
                (Answer::Passed, review::answer(&uid, &Verdict::allow()))
            }
            Done::Failed(why) => {
                tracing::warn!(pod = %pod.name, namespace, why, "a plain eviction passes");
                let warnings = vec![format!("Usher lets this eviction pass: {why}")];
                let verdict = Verdict::Allow { changes: Changes::default(), warnings };
                (Answer::Failed, review::answer(&uid, &verdict))
            }
            Done::Refuse(counted, message) => {
                let after = retry_after_seconds(self.refused_lately());
                (counted, review::try_again(&uid, &message, &pod.name, after))
            }
        };
        if let Some(observer) = &self.options.observer {
            observer(counted, class);
        }
        answer
    }

    async fn judge(
        &self,
        admission: &Admission,
        namespace: &str,
        name: &str,
        caller: &Caller,
        eviction: &PlainEviction,
    ) -> Done {
        let mode = self.mode_in(namespace).await;
        if mode == GatewayMode::Off || !admission.enabled.load(Ordering::Relaxed) {
            return Done::Pass(Pass::Off);
        }
        // The API server does not ask about the manager. Should somebody have removed that condition, it must not wait for itself.
        if self.is_exempt(caller) || admission.rights.is_manager(caller).await {
            return Done::Pass(Pass::Exempt);
        }
        let pod = match admission.find_pod(namespace, name, true).await {
            Ok(pod) => pod,
            Err(why) => return Done::Failed(format!("the pod cannot be looked up: {}", kind_of(&why))),
        };
        if let Some(why) = passes(eviction, pod.as_ref()) {
            return Done::Pass(why);
        }
        let Some(pod) = pod else { return Done::Pass(Pass::NoPod) };
        let interceptors = pod.interceptors().interceptors;
        if interceptors.is_empty() {
            return Done::Pass(Pass::NoInterceptors);
        }
        let requests: Api<Lenient<RequestOnWire>> = Api::namespaced(admission.client.clone(), namespace);
        let known = match find_request(&requests, &pod.uid).await {
            Ok(known) => known,
            Err(why) => return Done::Failed(why),
        };
        let requester = requester_of_user(&caller.username);
        let now = admission.clock.now();
        let case = Case {
            mode,
            eviction,
            pod: &format!("{namespace}/{name}"),
            interceptors: &interceptors,
            request: known.as_ref(),
            requester: &requester,
            interceptors_limit: self.options.interceptors_limit,
        };
        let asks = Asks {
            client: &admission.client,
            namespace,
            pod: name,
            uid: &pod.uid,
            requester: &requester,
            ask: Ask::new(&caller.username, whole_second(now), eviction.grace_period_seconds),
        };
        let (write, active, is_claimed, message) = match judge(&case, now) {
            Judgement::Pass(why) => return Done::Pass(why),
            Judgement::Last(write) => {
                if let (Write::Remember, Some(known)) = (write, &known)
                    && let Err(why) = asks.remember(known).await
                {
                    tracing::debug!(%why, "that somebody still asks could not be remembered");
                }
                return Done::Pass(Pass::NobodyLeft);
            }
            Judgement::Refuse { write, active, is_claimed, message } => (write, active, is_claimed, message),
        };
        if is_claimed && admission.rights.answers(caller, namespace, name).await.unwrap_or_default() {
            return Done::Pass(Pass::Interceptor);
        }
        if let Some(class) = active
            && admission.rights.intercepts(caller, namespace, &class).await.unwrap_or_default()
        {
            return Done::Pass(Pass::Interceptor);
        }

        let written = match (write, &known) {
            (Write::Nothing, _) => Ok(Answer::Refused),
            (Write::Create, _) | (_, None) => asks.create().await,
            (Write::Join, Some(known)) => asks.join(known).await,
            (Write::Remember, Some(known)) => asks.remember(known).await,
        };
        match written {
            Ok(answer) => Done::Refuse(answer, message),
            // Somebody else was faster, or the server is busy: the next ask is soon, and the pod is not lost meanwhile.
            Err(Error::Api(status)) if matches!(status.code, 404 | 409 | 429) || status.code >= 500 => {
                Done::Refuse(Answer::Refused, message)
            }
            // Others have the turns all the same, whether or not the server takes that this caller asks as well.
            Err(why) if known.is_some() => {
                tracing::warn!(pod = name, namespace, why = kind_of(&why), "an ask could not be remembered");
                Done::Refuse(Answer::Refused, message)
            }
            Err(why) => Done::Failed(format!("no eviction request can be made: {}", kind_of(&why))),
        }
    }

    fn is_exempt(&self, caller: &Caller) -> bool {
        self.options.exempt_users.contains(&caller.username)
            || caller.groups.iter().any(|group| self.options.exempt_groups.contains(group))
    }

    /// What the namespace says, and otherwise what the cluster does.
    async fn mode_in(&self, namespace: &str) -> GatewayMode {
        let now = Instant::now();
        let known = self.modes.lock().get(namespace).copied();
        let said = match known {
            Some((at, said)) if now < at + FRESH_FOR => said,
            _ => {
                // The manager may list namespaces, and needs no right to get one for this.
                let one = ListParams::default().fields(&format!("metadata.name={namespace}"));
                let found = match self.namespaces.list_metadata(&one).await {
                    Ok(found) => found.items.into_iter().next(),
                    Err(why) => {
                        tracing::warn!(namespace, why = kind_of(&why), "a namespace cannot be read");
                        return self.options.mode;
                    }
                };
                let labels = found.and_then(|found| found.metadata.labels).unwrap_or_default();
                let said = labels.get(GATEWAY_MODE_LABEL).and_then(|text| text.parse().ok());
                let mut modes = self.modes.lock();
                if modes.len() >= NAMESPACES_MAX {
                    modes.clear();
                }
                modes.insert(namespace.to_owned(), (now, said));
                said
            }
        };
        said.unwrap_or(self.options.mode)
    }

    /// Whether it is us who are late, and not the cluster.
    fn is_crowded(&self) -> bool {
        self.crowded.lock().is_some_and(|at| at.elapsed() < 2 * JUDGED_WITHIN)
    }

    /// With this one.
    fn refused_lately(&self) -> usize {
        let (now, mut refused) = (Instant::now(), self.refused.lock());
        while refused.front().is_some_and(|at| now >= *at + LATELY) || refused.len() >= COUNTED_MAX {
            refused.pop_front();
        }
        refused.push_back(now);
        refused.len()
    }
}

async fn find_request(
    requests: &Api<Lenient<RequestOnWire>>,
    uid: &str,
) -> Result<Option<KnownRequest>, String> {
    let found = requests.get_opt(uid).await;
    let found = found.map_err(|why| format!("its request cannot be looked up: {}", kind_of(&why)))?;
    let read = found.map(Lenient::read).transpose();
    Ok(read.map_err(|_| "its request cannot be read".to_owned())?.map(KnownRequest::from))
}

/// Who reads times by the second reads this one.
fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// One ask, as it is written.
struct Asks<'a> {
    client: &'a Client,
    namespace: &'a str,
    pod: &'a str,
    uid: &'a str,
    requester: &'a str,
    ask: Ask,
}

impl Asks<'_> {
    fn api(&self) -> Api<EvictionRequest> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Names of the gateway are such that a finalizer can have them.
    fn finalizer(&self) -> String {
        requester_finalizer(self.requester).unwrap_or_default()
    }

    async fn create(&self) -> Result<Answer, Error> {
        let mut request = new_request(self.namespace, self.pod, self.uid, &self.finalizer(), None);
        request.metadata.annotations = Some([self.ask.annotation(self.requester)].into());
        let parameters = PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) };
        self.api().create(&parameters, &request).await.map(|_| Answer::Asked)
    }

    async fn join(&self, known: &KnownRequest) -> Result<Answer, Error> {
        let finalizers: Vec<String> = known.finalizers.iter().cloned().chain([self.finalizer()]).collect();
        let metadata = json!({
            "uid": &*known.uid, "resourceVersion": known.resource_version, "finalizers": finalizers,
            "annotations": self.annotations(),
        });
        self.patch(metadata).await.map(|()| Answer::Joined)
    }

    async fn remember(&self, known: &KnownRequest) -> Result<Answer, Error> {
        let metadata = json!({"uid": &*known.uid, "annotations": self.annotations()});
        self.patch(metadata).await.map(|()| Answer::Refused)
    }

    fn annotations(&self) -> Value {
        let (key, value) = self.ask.annotation(self.requester);
        json!({key: value})
    }

    async fn patch(&self, metadata: Value) -> Result<(), Error> {
        let requests: Api<Lenient<RequestOnWire>> = Api::namespaced(self.client.clone(), self.namespace);
        let parameters =
            PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": metadata}));
        requests.patch(self.uid, &parameters, &patch).await.map(|_| ())
    }
}
