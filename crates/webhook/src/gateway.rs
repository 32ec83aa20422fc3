//! The gateway: plain evictions become eviction requests.
//!
//! The judgement is `usher_decide::admission::gateway`'s. Here is what it needs, the one write that it may ask for, and the answer. What
//! cannot be found out lets the eviction pass: without Usher it would.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use usher_api::LocalPodReference;
use usher_api::evict_policy::{EvictPolicy, EvictWanted, policy_annotation};
use usher_api::gateway::{Ask, CallerClass, GatewayMode, requester_of_user};
use usher_api::lenient::Lenient;
use usher_api::names::GATEWAY_MODE_LABEL;
use usher_client::requests::Version;
use usher_client::{Asking, kind_of};
use usher_decide::admission::gateway::{
    Case, Judgement, Pass, PlainEviction, Write, judge, passes, retry_after_seconds,
};
use usher_decide::admission::{Changes, FoundPod, Verdict};
use usher_decide::evict_policy::{eviction, whole_second};
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
    /// Refused, and the pod's workload takes over.
    TakenOver,
    /// Left to the API server because the workload had its time.
    FellBack,
    /// Left to the API server.
    Passed,
    /// Left to the API server because something could not be found out, or the request not be made.
    Failed,
}

impl Answer {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Asked,
        Self::Joined,
        Self::Refused,
        Self::Busy,
        Self::TakenOver,
        Self::FellBack,
        Self::Passed,
        Self::Failed,
    ];

    /// As metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Joined => "joined",
            Self::Refused => "refused",
            Self::Busy => "busy",
            Self::TakenOver => "taken-over",
            Self::FellBack => "fell-back",
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
    /// So long workloads have for pods of the evict policy ControllerTakeOver. Without it the policy does not count.
    pub evict_timeout: Option<SignedDuration>,
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
    said: Mutex<HashMap<String, (Instant, Said)>>,
    refused: Mutex<VecDeque<Instant>>,
    at_a_time: Semaphore,
    /// When all places were last taken.
    late_at: Mutex<Option<Instant>>,
}

/// What a namespace says of its pods.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    mode: Option<GatewayMode>,
    evict_policy: Option<EvictPolicy>,
}

/// What is done with an eviction, and what is said.
enum Done {
    Pass(Pass),
    /// It passes because the pod's workload had its time.
    FellBack,
    /// It passes because something went wrong.
    Failed(String),
    Refuse(Answer, String),
}

impl Gateway {
    pub fn new(client: Client, options: GatewayOptions) -> Self {
        Self {
            options,
            namespaces: Api::all(client),
            said: Mutex::default(),
            refused: Mutex::default(),
            at_a_time: Semaphore::new(AT_A_TIME),
            late_at: Mutex::default(),
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
                *self.late_at.lock() = Some(Instant::now());
            }
            let _place = place.ok()?;
            Some(self.judge(admission, &namespace, &pod.name, &user_info, &eviction).await)
        });
        let done = match judged.await {
            Ok(Some(done)) => done,
            // Others are in the way, and soon are not: one that asks again finds a place.
            Ok(None) => Done::Refuse(Answer::Busy, BUSY.to_owned()),
            Err(_) if self.is_late() => Done::Refuse(Answer::Busy, BUSY.to_owned()),
            Err(_) => Done::Failed("the cluster did not answer in time".to_owned()),
        };
        let (counted, answer) = match done {
            Done::Pass(why) => {
                tracing::debug!(pod = %pod.name, namespace, ?why, "a plain eviction passes");
                (Answer::Passed, review::answer(&uid, &Verdict::allow()))
            }
            Done::FellBack => {
                tracing::info!(pod = %pod.name, namespace, "a plain eviction passes: the pod's workload had its time");
                (Answer::FellBack, review::answer(&uid, &Verdict::allow()))
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
        let said = self.said_by(namespace).await;
        let mode = said.mode.unwrap_or(self.options.mode);
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
        let now = admission.clock.now();
        let ask = Ask::new(&caller.username, whole_second(now), eviction.grace_period_seconds);
        if interceptors.is_empty() {
            let own = policy_annotation(Some(&pod.annotations)).and_then(|text| text.parse().ok());
            let policy: EvictPolicy = own.or(said.evict_policy).unwrap_or_default();
            return match (policy, self.options.evict_timeout) {
                (EvictPolicy::ControllerTakeOver, Some(timeout)) => {
                    let wanted = EvictWanted::of(&pod.annotations, &pod.uid);
                    let case = eviction::Case {
                        pod: &format!("{namespace}/{name}"),
                        uid: &pod.uid,
                        wanted: wanted.as_ref(),
                        ask: &ask,
                        is_dry_run: eviction.is_dry_run,
                        timeout,
                    };
                    let judged = eviction::judge(&case, now);
                    take_over(&admission.client, namespace, name, &pod, judged).await
                }
                _ => Done::Pass(Pass::NoInterceptors),
            };
        }
        let requests: Api<Lenient<RequestOnWire>> = Api::namespaced(admission.client.clone(), namespace);
        let known = match find_request(&requests, &pod.uid).await {
            Ok(known) => known,
            Err(why) => return Done::Failed(why),
        };
        let requester = requester_of_user(&caller.username);
        let case = Case {
            mode,
            eviction,
            pod: &format!("{namespace}/{name}"),
            interceptors: &interceptors,
            request: known.as_ref(),
            requester: &requester,
            interceptors_limit: self.options.interceptors_limit,
        };
        let asks = Asking {
            client: &admission.client,
            field_manager: FIELD_MANAGER,
            namespace,
            pod: name,
            uid: &pod.uid,
            requester: &requester,
            ask,
        };
        let (write, active, is_claimed, message) = match judge(&case, now) {
            Judgement::Pass(why) => return Done::Pass(why),
            Judgement::Last(write) => {
                if let (Write::Remember, Some(known)) = (write, &known)
                    && let Err(why) = asks.remember(&known.uid).await
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
            (Write::Create, _) | (_, None) => asks.create().await.map(|()| Answer::Asked),
            (Write::Join, Some(known)) => {
                let read = Version { uid: &known.uid, resource_version: &known.resource_version };
                asks.join(read, &known.finalizers).await.map(|()| Answer::Joined)
            }
            (Write::Remember, Some(known)) => asks.remember(&known.uid).await.map(|()| Answer::Refused),
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

    /// What the namespace says. Nothing, if it cannot be read.
    async fn said_by(&self, namespace: &str) -> Said {
        let now = Instant::now();
        let known = self.said.lock().get(namespace).copied();
        if let Some((at, said)) = known
            && now < at + FRESH_FOR
        {
            return said;
        }
        // The manager may list namespaces, and needs no right to get one for this.
        let one = ListParams::default().fields(&format!("metadata.name={namespace}"));
        let found = match self.namespaces.list_metadata(&one).await {
            Ok(found) => found.items.into_iter().next().map(|found| found.metadata).unwrap_or_default(),
            Err(why) => {
                tracing::warn!(namespace, why = kind_of(&why), "a namespace cannot be read");
                return Said::default();
            }
        };
        let mode = found.labels.as_ref().and_then(|labels| labels.get(GATEWAY_MODE_LABEL));
        let said = Said {
            mode: mode.and_then(|text| text.parse().ok()),
            evict_policy: policy_annotation(found.annotations.as_ref()).and_then(|text| text.parse().ok()),
        };
        let mut all = self.said.lock();
        if all.len() >= NAMESPACES_MAX {
            all.clear();
        }
        all.insert(namespace.to_owned(), (now, said));
        said
    }

    /// Whether it is us who are late, and not the cluster.
    fn is_late(&self) -> bool {
        self.late_at.lock().is_some_and(|at| at.elapsed() < 2 * JUDGED_WITHIN)
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

/// Marks the pod, so that its workload takes over.
async fn take_over(
    client: &Client,
    namespace: &str,
    name: &str,
    pod: &FoundPod,
    judged: eviction::Judgement,
) -> Done {
    let (mark, message) = match judged {
        eviction::Judgement::FellBack => return Done::FellBack,
        eviction::Judgement::Refuse { mark, message } => (mark, message),
    };
    let Some(mark) = mark else { return Done::Refuse(Answer::Refused, message) };
    let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(client.clone(), namespace);
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let annotations: HashMap<&str, String> = mark.annotations().into_iter().collect();
    let patch = json!({"metadata": {"uid": pod.uid, "annotations": annotations}});
    match pods.patch(name, &parameters, &Patch::Merge(patch)).await {
        Ok(_) => Done::Refuse(Answer::TakenOver, message),
        // It changes just now, or the server is busy: the next try is soon.
        Err(Error::Api(status)) if matches!(status.code, 404 | 409 | 429) || status.code >= 500 => {
            Done::Refuse(Answer::Refused, message)
        }
        Err(why) => Done::Failed(format!("the pod cannot be marked: {}", kind_of(&why))),
    }
}
