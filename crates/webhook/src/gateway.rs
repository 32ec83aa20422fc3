//! The gateway: plain evictions become eviction requests.
//!
//! The judgement is `usher_decide::admission::gateway`'s. Here is what it needs, its effect is carried out, and the answer given. What
//! cannot be found out lets the eviction pass: without Usher it would.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::{Client, Error};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use usher_api::LocalPodReference;
use usher_api::evict_policy::{EvictPolicy, EvictWanted, policy_annotation};
use usher_api::gateway::{Ask, CallerClass, GatewayMode, WayToAsk, requester_of_user};
use usher_api::lenient::Lenient;
use usher_api::names::GATEWAY_MODE_LABEL;
use usher_client::{
    FailureClass, GatewayRequest, PodToMark, ReadRequest, Version, Writer, kind_of, mark_pod,
};
use usher_decide::admission::gateway::{
    Answer, CallerRight, Case, ClusterSetting, Effect, Judgement, Pass, PlainEviction, WriteFailure, judge,
    passes, retry_after_seconds,
};
use usher_decide::admission::{Changes, Verdict};
use usher_decide::evict_policy::eviction::{self, time_to_take_over};
use usher_decide::evict_policy::whole_second;
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

/// What came of a plain eviction, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EvictionOutcome {
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

impl EvictionOutcome {
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

    /// After this effect, if there was one.
    fn of(answer: &Answer, effect: Option<&Effect>) -> Self {
        match (answer, effect) {
            (Answer::Pass(Pass::WorkloadHadItsTime), _) => Self::FellBack,
            (Answer::Pass(_), _) => Self::Passed,
            (Answer::Failed(_), _) => Self::Failed,
            (Answer::Refuse(_), Some(Effect::Ask(WayToAsk::Create))) => Self::Asked,
            (Answer::Refuse(_), Some(Effect::Ask(WayToAsk::Join))) => Self::Joined,
            (Answer::Refuse(_), Some(Effect::MarkPod(_))) => Self::TakenOver,
            (Answer::Refuse(_), Some(Effect::Ask(WayToAsk::Remember)) | None) => Self::Refused,
        }
    }
}

/// Hears of every plain eviction.
pub type Observer = Arc<dyn Fn(EvictionOutcome, CallerClass) + Send + Sync>;

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

    fn setting(&self) -> ClusterSetting<'_> {
        let Self { mode, exempt_users, exempt_groups, .. } = self;
        ClusterSetting { mode: *mode, exempt_users, exempt_groups }
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

/// A caller, and the pod that it means.
struct PodToEvict<'a> {
    caller: &'a Caller,
    namespace: &'a str,
    name: &'a str,
    eviction: &'a PlainEviction,
}

/// A judgement, and what its effect needs.
struct Judged {
    judgement: Judgement,
    uid: String,
    ask: Ask,
    /// The pod's request, if there is one.
    request: Option<KnownRequest>,
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
            let asked = PodToEvict {
                caller: &user_info,
                namespace: &namespace,
                name: &pod.name,
                eviction: &eviction,
            };
            Some(self.settle(admission, &asked).await)
        });
        let (answer, counted) = match judged.await {
            Ok(Some(settled)) => settled,
            // Others are in the way, and soon are not: one that asks again finds a place.
            Ok(None) => (Answer::Refuse(BUSY.to_owned()), EvictionOutcome::Busy),
            Err(_) if self.is_late() => (Answer::Refuse(BUSY.to_owned()), EvictionOutcome::Busy),
            Err(_) => {
                (Answer::Failed("the cluster did not answer in time".to_owned()), EvictionOutcome::Failed)
            }
        };
        let answer = match answer {
            Answer::Pass(why @ Pass::WorkloadHadItsTime) => {
                tracing::info!(pod = %pod.name, namespace, ?why, "a plain eviction passes");
                review::answer(&uid, &Verdict::allow())
            }
            Answer::Pass(why) => {
                tracing::debug!(pod = %pod.name, namespace, ?why, "a plain eviction passes");
                review::answer(&uid, &Verdict::allow())
            }
            Answer::Failed(why) => {
                tracing::warn!(pod = %pod.name, namespace, why, "a plain eviction passes");
                let warnings = vec![format!("Usher lets this eviction pass: {why}")];
                review::answer(&uid, &Verdict::Allow { changes: Changes::default(), warnings })
            }
            Answer::Refuse(message) => {
                let after = retry_after_seconds(self.refused_lately());
                review::try_again(&uid, &message, &pod.name, after)
            }
        };
        if let Some(observer) = &self.options.observer {
            observer(counted, class);
        }
        answer
    }

    /// Judges, carries out the effect, and says what came of it.
    async fn settle(&self, admission: &Admission, asked: &PodToEvict<'_>) -> (Answer, EvictionOutcome) {
        let judged = match self.judge(admission, asked).await {
            Ok(judged) => judged,
            Err(answer) => {
                let counted = EvictionOutcome::of(&answer, None);
                return (answer, counted);
            }
        };
        let effect = judged.judgement.effect.clone();
        match carry_out(&admission.client, asked, &judged).await {
            Ok(()) => {
                let counted = EvictionOutcome::of(&judged.judgement.answer, effect.as_ref());
                (judged.judgement.answer, counted)
            }
            Err(failure) => {
                // That somebody still asks is remembered if possible, and nobody waits for it.
                let passes = matches!(judged.judgement.answer, Answer::Pass(_));
                match &failure {
                    WriteFailure::Lasting(why) if !passes => {
                        tracing::warn!(pod = asked.name, asked.namespace, why, "a write was not done");
                    }
                    _ => tracing::debug!(pod = asked.name, asked.namespace, ?failure, "a write was not done"),
                }
                let answer = judged.judgement.after(failure);
                let counted = EvictionOutcome::of(&answer, None);
                (answer, counted)
            }
        }
    }

    /// The judgement, or the answer if there is nothing to judge.
    async fn judge(&self, admission: &Admission, asked: &PodToEvict<'_>) -> Result<Judged, Answer> {
        let PodToEvict { caller, namespace, name, eviction } = *asked;
        let said = self.said_by(namespace).await;
        if !admission.enabled.load(Ordering::Relaxed) {
            return Err(Answer::Pass(Pass::Off));
        }
        let setting = self.options.setting();
        let mode = setting.mode_for(said.mode, &caller.username, &caller.groups).map_err(Answer::Pass)?;
        // The API server does not ask about the manager. Should somebody have removed that condition, it must not wait for itself.
        if admission.rights.is_manager(caller).await {
            return Err(Answer::Pass(Pass::Exempt));
        }
        let found = admission.find_pod(namespace, name, true).await;
        let pod =
            found.map_err(|why| Answer::Failed(format!("the pod cannot be looked up: {}", kind_of(&why))))?;
        if let Some(why) = passes(eviction, pod.as_ref()) {
            return Err(Answer::Pass(why));
        }
        let Some(pod) = pod else { return Err(Answer::Pass(Pass::NoPod)) };
        let interceptors = pod.interceptors().interceptors;
        let now = admission.clock.now();
        let ask = Ask::new(&caller.username, whole_second(now), eviction.grace_period_seconds);
        let path = format!("{namespace}/{name}");
        if interceptors.is_empty() {
            let timeout = time_to_take_over(&pod.annotations, said.evict_policy, self.options.evict_timeout)
                .ok_or(Answer::Pass(Pass::NoInterceptors))?;
            let wanted = EvictWanted::of(&pod.annotations, &pod.uid);
            let case = eviction::Case {
                pod: &path,
                uid: &pod.uid,
                wanted: wanted.as_ref(),
                ask: &ask,
                is_dry_run: eviction.is_dry_run,
                timeout,
            };
            let judgement = eviction::judge(&case, now);
            return Ok(Judged { judgement, uid: pod.uid, ask, request: None });
        }
        let requests: Api<Lenient<RequestOnWire>> = Api::namespaced(admission.client.clone(), namespace);
        let request = find_request(&requests, &pod.uid).await.map_err(Answer::Failed)?;
        let requester = requester_of_user(&caller.username);
        let case = Case {
            mode,
            eviction,
            pod: &path,
            interceptors: &interceptors,
            request: request.as_ref(),
            requester: requester.as_str(),
            interceptors_limit: self.options.interceptors_limit,
        };
        let judgement = judge(&case, now);
        for right in &judgement.passes_with {
            let has = match right {
                CallerRight::Answer => admission.rights.answers(caller, namespace, name).await,
                CallerRight::Intercept { class } => {
                    admission.rights.intercepts(caller, namespace, class).await
                }
            };
            if has.unwrap_or_default() {
                return Err(Answer::Pass(Pass::Interceptor));
            }
        }
        Ok(Judged { judgement, uid: pod.uid, ask, request })
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

/// Carries out the effect of a judgement.
async fn carry_out(client: &Client, asked: &PodToEvict<'_>, judged: &Judged) -> Result<(), WriteFailure> {
    let written = match &judged.judgement.effect {
        None => Ok(()),
        Some(Effect::Ask(way)) => write_ask(client, asked, judged, *way).await,
        Some(Effect::MarkPod(mark)) => {
            // Whatever else has changed of the pod: it was wanted gone, and is refused all the same.
            let pod = PodToMark {
                namespace: asked.namespace,
                name: asked.name,
                uid: &judged.uid,
                resource_version: None,
            };
            mark_pod(client, FIELD_MANAGER, pod, Some(mark)).await
        }
    };
    // What was not answered is lasting here, unlike elsewhere: as nothing would come of a refusal, nobody is held up by it.
    written.map_err(|why| match FailureClass::of(&why) {
        FailureClass::NotFound | FailureClass::Conflict | FailureClass::Busy | FailureClass::Server => {
            WriteFailure::Passing
        }
        FailureClass::NotAuthenticated
        | FailureClass::Forbidden
        | FailureClass::Invalid
        | FailureClass::TooLarge
        | FailureClass::Unexpected
        | FailureClass::NoAnswer => WriteFailure::Lasting(kind_of(&why)),
    })
}

async fn write_ask(
    client: &Client,
    asked: &PodToEvict<'_>,
    judged: &Judged,
    way: WayToAsk,
) -> Result<(), Error> {
    let ours = GatewayRequest {
        client,
        writer: Writer::named(FIELD_MANAGER),
        namespace: asked.namespace,
        pod: asked.name,
        uid: &judged.uid,
        requester: &requester_of_user(&asked.caller.username),
        ask: &judged.ask,
    };
    let read = judged.request.as_ref().map(|known| ReadRequest {
        name: &known.key.name,
        version: Version { uid: &known.uid, resource_version: &known.resource_version },
        finalizers: &known.finalizers,
    });
    ours.write(way, read).await
}
