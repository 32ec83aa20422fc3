//! Plain evictions: what becomes of one whose caller knows nothing of eviction requests.
//!
//! Whoever may answer for the pod has the turns that an EvictionRequest gives, and the caller gets the answer that every drainer
//! understands and tries again after: 429. Once nobody is left, the eviction passes, and the budgets of the pod decide as ever.

use jiff::{SignedDuration, Timestamp};
use usher_api::Interceptor;
use usher_api::evict_policy::EvictWanted;
use usher_api::gateway::{GatewayMode, WayToAsk};

use super::FoundPod;
use crate::decision::limited;
use crate::eviction_request::{Turn, is_nobodys, turn};
use crate::snapshot::Request;

/// How KubeVirt and the descheduler know an eviction that goes on in the background.
pub const TRIGGERED: &str = "Eviction triggered evacuation";
/// So long a request that nobody wants any more may be held by others, until the eviction passes.
const ENDS_WITHIN: SignedDuration = SignedDuration::from_secs(120);
/// An ask that is remembered is not written again before this.
pub const REMEMBERED_FOR: SignedDuration = SignedDuration::from_secs(30);

/// The eviction, as its caller sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainEviction {
    /// The pod must have this UID.
    pub uid: Option<String>,
    /// The pod must be of this version.
    pub resource_version: Option<String>,
    /// So long the pod may take to end.
    pub grace_period_seconds: Option<i64>,
    /// Nothing is to be changed.
    pub is_dry_run: bool,
    /// The interceptor as which the caller says to evict the pod.
    pub interceptor: Option<String>,
}

/// Why an eviction is left to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// The gateway is off, for the cluster or the namespace.
    Off,
    /// The caller is exempt.
    Exempt,
    /// There is no such pod: the server says so.
    NoPod,
    /// The caller means another pod of that name, or another version: the server refuses that.
    AnotherPod,
    /// It has ended, or is on its way out.
    Leaving,
    /// Nobody answers for it.
    NoInterceptors,
    /// All who answer for it have had their turns.
    NobodyLeft,
    /// The caller answers for the interceptor whose turn it is.
    Interceptor,
    /// The pod's workload was to take over, and has had its time.
    WorkloadHadItsTime,
}

/// What an administrator sets for the whole cluster.
#[derive(Debug, Clone, Copy)]
pub struct ClusterSetting<'a> {
    /// Where the namespace does not say otherwise.
    pub mode: GatewayMode,
    /// Whose evictions pass.
    pub exempt_users: &'a [String],
    pub exempt_groups: &'a [String],
}

impl ClusterSetting<'_> {
    /// The mode in which an eviction of this caller is judged, in a namespace that says this.
    ///
    /// # Errors
    /// It is not judged, and passes.
    pub fn mode_for(
        &self,
        said: Option<GatewayMode>,
        user: &String,
        groups: &[String],
    ) -> Result<GatewayMode, Pass> {
        let mode = said.unwrap_or(self.mode);
        let is_exempt =
            self.exempt_users.contains(user) || groups.iter().any(|group| self.exempt_groups.contains(group));
        match mode {
            GatewayMode::Off => Err(Pass::Off),
            GatewayMode::Block | GatewayMode::Request if is_exempt => Err(Pass::Exempt),
            GatewayMode::Block | GatewayMode::Request => Ok(mode),
        }
    }
}

/// Whether the pod is the gateway's concern at all.
pub fn passes(eviction: &PlainEviction, pod: Option<&FoundPod>) -> Option<Pass> {
    let Some(pod) = pod else { return Some(Pass::NoPod) };
    // An empty one is none, as the API server reads it.
    let differs = |wanted: &Option<String>, is: &str| {
        wanted.as_deref().is_some_and(|wanted| !wanted.is_empty() && wanted != is)
    };
    if differs(&eviction.uid, &pod.uid) || differs(&eviction.resource_version, &pod.resource_version) {
        return Some(Pass::AnotherPod);
    }
    (pod.is_terminating || pod.is_terminal()).then_some(Pass::Leaving)
}

/// The verdict on an eviction: the answer, and what is written before it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub answer: Answer,
    pub effect: Option<Effect>,
    /// Who has one of these rights answers for the pod: then the eviction passes, and nothing is written.
    pub passes_with: Vec<CallerRight>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is left to the API server.
    Pass(Pass),
    /// The same, because something could not be found out or written. The caller is told.
    Failed(String),
    /// It is refused with these words, and is to be tried again.
    Refuse(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The caller asks that the pod leaves.
    Ask(WayToAsk),
    /// The pod's workload is to take over.
    MarkPod(EvictWanted),
}

/// How this requester's ask gets onto the request of a pod, if there is one.
pub fn way_to_ask(request: Option<&Request>, requester: &str) -> WayToAsk {
    match request {
        None => WayToAsk::Create,
        Some(known) if known.requesters().any(|name| name == requester) => WayToAsk::Remember,
        Some(_) => WayToAsk::Join,
    }
}

/// A right of the caller's that is looked up only where it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallerRight {
    /// To answer eviction requests at all.
    Answer,
    /// To answer as this interceptor.
    Intercept { class: String },
}

/// Why an effect was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteFailure {
    /// Somebody else was faster, or the server is busy: the next try is soon.
    Passing,
    /// The server does not take it, or cannot be reached, in a few words.
    Lasting(String),
}

impl Judgement {
    pub(crate) fn pass(why: Pass) -> Self {
        Self { answer: Answer::Pass(why), effect: None, passes_with: Vec::new() }
    }

    pub(crate) fn refuse(message: String, effect: Option<Effect>) -> Self {
        Self { answer: Answer::Refuse(limited(message)), effect, passes_with: Vec::new() }
    }

    /// The answer after its effect could not be carried out. Where there is a request, others have their turns all the same; where
    /// nothing would come of a refusal, the eviction passes.
    pub fn after(self, failure: WriteFailure) -> Answer {
        match (self.answer, self.effect, failure) {
            (Answer::Refuse(_), Some(Effect::Ask(WayToAsk::Create)), WriteFailure::Lasting(why)) => {
                Answer::Failed(format!("no eviction request can be made: {why}"))
            }
            (Answer::Refuse(_), Some(Effect::MarkPod(_)), WriteFailure::Lasting(why)) => {
                Answer::Failed(format!("the pod cannot be marked: {why}"))
            }
            (answer, ..) => answer,
        }
    }
}

/// Everything that the judgement depends on.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    pub mode: GatewayMode,
    pub eviction: &'a PlainEviction,
    /// `NAMESPACE/NAME`.
    pub pod: &'a str,
    /// Those who may answer for the pod now, in the order of their turns.
    pub interceptors: &'a [Interceptor],
    /// The pod's request, if there is one.
    pub request: Option<&'a Request>,
    /// The name in which the caller asks.
    pub requester: &'a str,
    /// How long all interceptors of a pod may take together.
    pub interceptors_limit: Option<SignedDuration>,
}

pub fn judge(case: &Case<'_>, now: Timestamp) -> Judgement {
    let asks = case.mode == GatewayMode::Request;
    let silent = case.eviction.is_dry_run || !asks;
    let Some(request) = case.request else {
        let Some(first) = case.interceptors.first() else { return Judgement::pass(Pass::NoInterceptors) };
        let first = &first.interceptor_class;
        let message = if asks {
            format!(
                "{TRIGGERED} of pod {}: interceptor {first} is asked first{}",
                case.pod,
                others(case.interceptors.len() - 1)
            )
        } else {
            format!(
                "pod {} has interceptors and cannot be evicted past them: ask for it by an EvictionRequest, for example with usher \
                 evict; interceptor {first} is the first to answer{}",
                case.pod,
                others(case.interceptors.len() - 1)
            )
        };
        return Judgement::refuse(message, (!silent).then_some(Effect::Ask(WayToAsk::Create)));
    };
    let is_wanted = request.requesters().next().is_some();
    if request.is_deleting && !is_wanted {
        // Whoever holds it has so long to let go of it.
        if request.deleted().is_none_or(|deleted| now.duration_since(deleted) >= ENDS_WITHIN) {
            return Judgement::pass(Pass::NobodyLeft);
        }
        let message =
            format!("{TRIGGERED} of pod {}: an earlier request is ending, and another one follows", case.pod);
        return Judgement::refuse(message, None);
    }
    let effect = ask_of(case, request, silent, now).map(Effect::Ask);
    if is_nobodys(request, case.interceptors_limit, now) {
        // That the caller still asks is remembered, as a budget may be in the way. Who has not asked before need not do so now.
        let effect = effect.filter(|effect| *effect != Effect::Ask(WayToAsk::Join));
        return Judgement { effect, ..Judgement::pass(Pass::NobodyLeft) };
    }
    let whose = if !is_wanted && silent {
        "its request is withdrawn and ends".to_owned()
    } else {
        whose_turn(request, now)
    };
    let is_claimed = has_had_its_turn(request, case.eviction.interceptor.as_deref());
    let active = request.status.active_interceptor_class.clone();
    let passes_with = is_claimed.then_some(CallerRight::Answer).into_iter();
    let passes_with = passes_with.chain(active.map(|class| CallerRight::Intercept { class })).collect();
    Judgement {
        passes_with,
        ..Judgement::refuse(format!("{TRIGGERED} of pod {}: {whose}", case.pod), effect)
    }
}

/// How the caller's ask is written, if it is to be.
fn ask_of(case: &Case<'_>, request: &Request, silent: bool, now: Timestamp) -> Option<WayToAsk> {
    let way = way_to_ask(Some(request), case.requester);
    let is_fresh = || {
        request.ask_of(case.requester).is_some_and(|ask| {
            now.duration_since(ask.at.0) < REMEMBERED_FOR
                && ask.grace_period_seconds == case.eviction.grace_period_seconds
        })
    };
    let is_written = match way {
        WayToAsk::Create => true,
        // To one that is deleted the server lets nobody be added.
        WayToAsk::Join => !request.is_deleting,
        WayToAsk::Remember => !is_fresh(),
    };
    (!silent && is_written).then_some(way)
}

/// Whether it is the turn of this interceptor, or was before: both may end the pod.
fn has_had_its_turn(request: &Request, class: Option<&str>) -> bool {
    let place = |class: &str| request.interceptors.iter().position(|it| it.interceptor_class == class);
    let active = request.status.active_interceptor_class.as_deref().and_then(place);
    let claimed = class.and_then(place);
    claimed.is_some_and(|claimed| active.is_some_and(|active| claimed <= active))
}

fn others(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", 1 more after it".to_owned(),
        count => format!(", {count} more after it"),
    }
}

/// Whose turn it is, since when the pod is asked to leave, and until when that may take.
fn whose_turn(request: &Request, now: Timestamp) -> String {
    let after = |class: &str| {
        let at = request.interceptors.iter().position(|it| it.interceptor_class == class);
        others(at.map_or(0, |at| request.interceptors.len() - at - 1))
    };
    let since = format!("asked since {:.0}", request.created);
    match turn(request, now) {
        Turn::Pass { to, .. } => {
            let class = &to.interceptor_class;
            format!("interceptor {class} is about to have its turn, {since}{}", after(class))
        }
        Turn::Active { class, until } => {
            let status = &request.status;
            let eta = status.expected_interceptor_finish_time.as_ref().map_or_else(
                || format!("it gives no time, and has until {until:.0} to report progress"),
                |time| format!("it expects to be done at {:.0}", time.0),
            );
            // What the manager wrote with the turn is said already.
            let said = match status.message.as_str() {
                _ if !request.is_progress_reported => String::new(),
                "" => String::new(),
                said => format!(". It says: {said}"),
            };
            format!("interceptor {class} has its turn, {since}; {eta}{}{said}", after(class))
        }
        Turn::Unknown { .. } | Turn::Nobody(_) => "no interceptor is left".to_owned(),
    }
}

/// How long the caller is asked to wait, by how many were refused within the last ten seconds: one drain is answered quickly, because
/// clients built on client-go try ten times without a word before they show the answer, and a thousand at once spread out.
pub fn retry_after_seconds(refused_lately: usize) -> u32 {
    u32::try_from(refused_lately / 200).unwrap_or(u32::MAX).clamp(1, 30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::RequestOnWire;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    #[test]
    fn a_namespace_says_whether_evictions_are_judged_before_the_cluster_does() {
        use GatewayMode::{Block, Off, Request};
        let users = ["root".to_owned()];
        let groups = ["system:nodes".to_owned()];
        for (cluster, said, user, group, wanted) in [
            (Off, None, "alice", "people", Err(Pass::Off)),
            (Request, None, "alice", "people", Ok(Request)),
            (Request, Some(Off), "alice", "people", Err(Pass::Off)),
            (Off, Some(Block), "alice", "people", Ok(Block)),
            (Request, None, "root", "people", Err(Pass::Exempt)),
            (Request, Some(Block), "alice", "system:nodes", Err(Pass::Exempt)),
            (Off, None, "root", "people", Err(Pass::Off)),
        ] {
            let setting = ClusterSetting { mode: cluster, exempt_users: &users, exempt_groups: &groups };
            let is = setting.mode_for(said, &user.to_owned(), &[group.to_owned()]);
            assert_eq!(is, wanted, "{cluster:?} {said:?} {user} {group}");
        }
    }

    const NOW: &str = "2026-01-01T12:00:00Z";
    const ME: &str = "karpenter.kube-system.sa.gateway";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn interceptors(classes: &[&str]) -> Vec<Interceptor> {
        let one = |(at, class): (usize, &&str)| Interceptor {
            interceptor_class: (*class).to_owned(),
            priority: 100 - i32::try_from(at).unwrap(),
            role: None,
        };
        classes.iter().enumerate().map(one).collect()
    }

    /// A request of eleven o'clock, of these requesters, with what the gateway remembers of them.
    fn request(classes: &[&str], requesters: &[(&str, Option<&str>)], status: Value) -> Request {
        let finalizers: Vec<String> = requesters
            .iter()
            .map(|(name, _)| format!("requester.evictionrequest.coordination.k8s.io/name_{name}"))
            .collect();
        let asks: serde_json::Map<String, Value> = requesters
            .iter()
            .filter_map(|(name, asked)| {
                let ask = json!({"by": "system:serviceaccount:kube-system:karpenter", "at": (*asked)?});
                Some((format!("gateway.evictionrequest.coordination.k8s.io/{name}"), ask.to_string().into()))
            })
            .collect();
        let request = json!({
            "metadata": {
                "name": "u", "namespace": "shop", "uid": "r", "creationTimestamp": "2026-01-01T11:50:00Z",
                "finalizers": finalizers, "annotations": asks,
            },
            "spec": {"podRef": {"name": "web", "uid": "u"}, "interceptors": interceptors(classes)},
            "status": status,
        });
        Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap())
    }

    fn active(class: &str) -> Value {
        json!({"activeInterceptorClass": class, "progressTimestamp": "2026-01-01T11:55:00Z"})
    }

    fn judged(mode: GatewayMode, eviction: &PlainEviction, request: Option<&Request>) -> Judgement {
        let interceptors = interceptors(&["a.io", "b.io"]);
        let case = Case {
            mode,
            eviction,
            pod: "shop/web",
            interceptors: &interceptors,
            request,
            requester: ME,
            interceptors_limit: None,
        };
        judge(&case, at(NOW))
    }

    fn way_of(judgement: &Judgement) -> Option<WayToAsk> {
        match judgement.effect {
            Some(Effect::Ask(way)) => Some(way),
            _ => None,
        }
    }

    fn says(judgement: &Judgement) -> &str {
        match &judgement.answer {
            Answer::Refuse(message) | Answer::Failed(message) => message,
            Answer::Pass(_) => "",
        }
    }

    #[test]
    fn a_pod_that_nobody_answers_for_is_left_to_the_server() {
        let pod = FoundPod { uid: "u".to_owned(), resource_version: "7".to_owned(), ..FoundPod::default() };
        let plain = PlainEviction::default();
        let uid = |uid: &str| PlainEviction { uid: Some(uid.to_owned()), ..PlainEviction::default() };
        let version =
            |it: &str| PlainEviction { resource_version: Some(it.to_owned()), ..PlainEviction::default() };
        let phase = |phase: &str| FoundPod { phase: phase.to_owned(), ..pod.clone() };
        let terminating = FoundPod { is_terminating: true, ..pod.clone() };
        for (what, eviction, pod, wanted) in [
            ("no pod", &plain, None, Some(Pass::NoPod)),
            ("the pod", &plain, Some(&pod), None),
            ("its UID", &uid("u"), Some(&pod), None),
            ("the UID of one before", &uid("v"), Some(&pod), Some(Pass::AnotherPod)),
            ("its version", &version("7"), Some(&pod), None),
            ("a version before", &version("6"), Some(&pod), Some(Pass::AnotherPod)),
            ("no version at all", &version(""), Some(&pod), None),
            ("no UID at all", &uid(""), Some(&pod), None),
            ("on its way out", &plain, Some(&terminating), Some(Pass::Leaving)),
            ("ended", &plain, Some(&phase("Succeeded")), Some(Pass::Leaving)),
            ("not started", &plain, Some(&phase("Pending")), None),
        ] {
            assert_eq!(passes(eviction, pod), wanted, "{what}");
        }
        let case = Case {
            mode: GatewayMode::Request,
            eviction: &plain,
            pod: "shop/web",
            interceptors: &[],
            request: None,
            requester: ME,
            interceptors_limit: None,
        };
        assert_eq!(judge(&case, at(NOW)), Judgement::pass(Pass::NoInterceptors));
    }

    #[test]
    fn what_is_written_depends_on_who_has_asked_and_when() {
        let (plain, dry) =
            (PlainEviction::default(), PlainEviction { is_dry_run: true, ..PlainEviction::default() });
        let graceful = PlainEviction { grace_period_seconds: Some(5), ..PlainEviction::default() };
        let by = |requesters: &[(&str, Option<&str>)]| request(&["a.io", "b.io"], requesters, active("a.io"));
        let (fresh, old) = ("2026-01-01T11:59:31Z", "2026-01-01T11:59:30Z");
        let nobody_yet = None;
        let of_others = by(&[("nodemaintenance.k8s.io", None)]);
        let just_now = by(&[(ME, Some(fresh))]);
        let before = by(&[(ME, Some(old))]);
        let by_hand = by(&[(ME, None)]);
        use GatewayMode::{Block, Request};
        for (what, mode, eviction, request, wanted) in [
            ("nobody has asked", Request, &plain, nobody_yet, Some(WayToAsk::Create)),
            ("nobody has asked, and it blocks", Block, &plain, nobody_yet, None),
            ("nobody has asked, and it is a dry run", Request, &dry, nobody_yet, None),
            ("others have asked", Request, &plain, Some(&of_others), Some(WayToAsk::Join)),
            ("others have asked, and it blocks", Block, &plain, Some(&of_others), None),
            ("others have asked, and it is a dry run", Request, &dry, Some(&of_others), None),
            ("it has asked just now", Request, &plain, Some(&just_now), None),
            (
                "it has asked just now for another grace",
                Request,
                &graceful,
                Some(&just_now),
                Some(WayToAsk::Remember),
            ),
            ("it has asked a while ago", Request, &plain, Some(&before), Some(WayToAsk::Remember)),
            ("its finalizer is there and no time", Request, &plain, Some(&by_hand), Some(WayToAsk::Remember)),
        ] {
            assert_eq!(way_of(&judged(mode, eviction, request)), wanted, "{what}");
        }
    }

    #[test]
    fn the_eviction_passes_once_no_interceptor_is_left() {
        let plain = PlainEviction::default();
        let both = ["a.io", "b.io"];
        let me = [(ME, Some(NOW))];
        let completed =
            |class: &str| json!({"activeInterceptorClass": class, "activeInterceptorCompleted": true});
        let silent = json!({"activeInterceptorClass": "b.io", "progressTimestamp": "2026-01-01T11:00:00Z"});
        for (what, classes, status, passes) in [
            ("no turn yet", &both[..], json!({}), false),
            ("the first has its turn", &both, active("a.io"), false),
            ("the first has completed", &both, completed("a.io"), false),
            ("the last has its turn", &both, active("b.io"), false),
            ("the last has completed", &both, completed("b.io"), true),
            ("the last is silent", &both, silent, true),
            ("the request knows of none", &[], json!({}), true),
            ("an interceptor that nobody knows", &both, active("c.io"), true),
        ] {
            let request = request(classes, &me, status);
            let judgement = judged(GatewayMode::Request, &plain, Some(&request));
            assert_eq!(judgement == Judgement::pass(Pass::NobodyLeft), passes, "{what}: {judgement:?}");
        }
        let request = request(&both, &me, active("a.io"));
        let interceptors = interceptors(&both);
        let limited = |seconds: i64| Case {
            mode: GatewayMode::Block,
            eviction: &plain,
            pod: "shop/web",
            interceptors: &interceptors,
            request: Some(&request),
            requester: ME,
            interceptors_limit: Some(SignedDuration::from_secs(seconds)),
        };
        assert_eq!(judge(&limited(600), at(NOW)), Judgement::pass(Pass::NobodyLeft));
        assert_ne!(judge(&limited(601), at(NOW)), Judgement::pass(Pass::NobodyLeft));
    }

    #[test]
    fn who_still_asks_when_only_a_budget_is_in_the_way_is_remembered() {
        let done = json!({"activeInterceptorClass": "b.io", "activeInterceptorCompleted": true});
        let of = |requesters: &[(&str, Option<&str>)]| request(&["a.io", "b.io"], requesters, done.clone());
        let plain = PlainEviction::default();
        let dry = PlainEviction { is_dry_run: true, ..PlainEviction::default() };
        let before = of(&[(ME, Some("2026-01-01T11:59:00Z"))]);
        let others = of(&[("nodemaintenance.k8s.io", None)]);
        let last = |eviction, request| judged(GatewayMode::Request, eviction, Some(request));
        let remembered = last(&plain, &before);
        assert_eq!(remembered.answer, Answer::Pass(Pass::NobodyLeft));
        assert_eq!(way_of(&remembered), Some(WayToAsk::Remember));
        assert_eq!(last(&dry, &before), Judgement::pass(Pass::NobodyLeft));
        assert_eq!(last(&plain, &others), Judgement::pass(Pass::NobodyLeft));
    }

    #[test]
    fn a_request_that_is_deleted_goes_on_while_somebody_wants_it_and_else_holds_nothing_up_for_long() {
        let plain = PlainEviction::default();
        let deleted = |requesters: &[(&str, Option<&str>)], second: i64| {
            let at = at(NOW) - SignedDuration::from_secs(second);
            let mut request = request(&["a.io", "b.io"], requesters, active("a.io"));
            request.is_deleting = true;
            request.rare.get_or_insert_default().deleted = Some(at);
            request
        };
        let judged = |request: &Request| judged(GatewayMode::Request, &plain, Some(request));
        let wanted = judged(&deleted(&[("nodemaintenance.k8s.io", None)], 600));
        assert!(says(&wanted).contains("interceptor a.io has its turn"), "{wanted:?}");
        assert_eq!(way_of(&wanted), None, "nobody joins what is deleted");
        assert!(says(&judged(&deleted(&[], 119))).contains("is ending"));
        assert_eq!(judged(&deleted(&[], 120)), Judgement::pass(Pass::NobodyLeft));
    }

    #[test]
    fn the_refusal_says_whose_turn_it_is_since_when_and_until_when() {
        let plain = PlainEviction::default();
        let me = [(ME, Some(NOW))];
        let told = |request: Option<&Request>| {
            let judgement = judged(GatewayMode::Request, &plain, request);
            assert!(says(&judgement).starts_with(TRIGGERED), "{judgement:?}");
            says(&judgement).to_owned()
        };
        assert_eq!(
            told(None),
            "Eviction triggered evacuation of pod shop/web: interceptor a.io is asked first, 1 more after it"
        );
        let both = ["a.io", "b.io"];
        assert_eq!(
            told(Some(&request(&both, &me, active("a.io")))),
            "Eviction triggered evacuation of pod shop/web: interceptor a.io has its turn, asked since 2026-01-01T11:50:00Z; it \
             gives no time, and has until 2026-01-01T12:25:00Z to report progress, 1 more after it"
        );
        let mut status = active("b.io");
        status["expectedInterceptorFinishTime"] = "2026-01-01T12:01:00Z".into();
        status["message"] = "waiting for web-2".into();
        assert_eq!(
            told(Some(&request(&both, &me, status))),
            "Eviction triggered evacuation of pod shop/web: interceptor b.io has its turn, asked since \
             2026-01-01T11:50:00Z; it expects to be done at 2026-01-01T12:01:00Z. It says: waiting for web-2"
        );
        let blocked = judged(GatewayMode::Block, &plain, None);
        assert!(says(&blocked).contains("ask for it by an EvictionRequest"), "{blocked:?}");
    }

    #[test]
    fn an_interceptor_evicts_in_its_own_turn_and_after_it() {
        for (active_class, claimed, wanted) in [
            (Some("a.io"), Some("a.io"), true),
            (Some("a.io"), Some("b.io"), false),
            (Some("b.io"), Some("a.io"), true),
            (Some("b.io"), Some("c.io"), false),
            (Some("a.io"), None, false),
            (None, Some("a.io"), false),
        ] {
            let status = active_class.map_or_else(|| json!({}), active);
            let request = request(&["a.io", "b.io"], &[(ME, Some(NOW))], status);
            let eviction =
                PlainEviction { interceptor: claimed.map(str::to_owned), ..PlainEviction::default() };
            let judgement = judged(GatewayMode::Request, &eviction, Some(&request));
            assert!(matches!(judgement.answer, Answer::Refuse(_)), "{judgement:?}");
            let may = |right| judgement.passes_with.contains(&right);
            assert_eq!(may(CallerRight::Answer), wanted, "{claimed:?} in the turn of {active_class:?}");
            for class in ["a.io", "b.io"] {
                let intercepts = may(CallerRight::Intercept { class: class.to_owned() });
                assert_eq!(
                    intercepts,
                    active_class == Some(class),
                    "{class} in the turn of {active_class:?}"
                );
            }
        }
    }

    #[test]
    fn an_effect_that_fails_refuses_as_long_as_something_comes_of_the_refusal() {
        let mark = EvictWanted { uid: "u".to_owned(), since: Time(at(NOW)), asked: None };
        let lasting = || WriteFailure::Lasting("the API server answered 403 Forbidden".to_owned());
        for (effect, wanted) in [
            (
                Effect::Ask(WayToAsk::Create),
                Some("no eviction request can be made: the API server answered 403 Forbidden"),
            ),
            (Effect::Ask(WayToAsk::Join), None),
            (Effect::Ask(WayToAsk::Remember), None),
            (Effect::MarkPod(mark), Some("the pod cannot be marked: the API server answered 403 Forbidden")),
        ] {
            let judgement = || Judgement::refuse("whose turn it is".to_owned(), Some(effect.clone()));
            let refused = Answer::Refuse("whose turn it is".to_owned());
            assert_eq!(judgement().after(WriteFailure::Passing), refused, "{effect:?}");
            let failed = wanted.map_or(refused, |why| Answer::Failed(why.to_owned()));
            assert_eq!(judgement().after(lasting()), failed, "{effect:?}");
        }
        let last =
            Judgement { effect: Some(Effect::Ask(WayToAsk::Remember)), ..Judgement::pass(Pass::NobodyLeft) };
        assert_eq!(
            last.after(lasting()),
            Answer::Pass(Pass::NobodyLeft),
            "what is remembered holds nobody up"
        );
    }

    #[test]
    fn an_earlier_request_that_is_ending_is_waited_for() {
        let mut request = request(&["a.io"], &[], active("a.io"));
        request.is_deleting = true;
        request.rare.get_or_insert_default().deleted = Some(at(NOW));
        let judgement = judged(GatewayMode::Request, &PlainEviction::default(), Some(&request));
        assert_eq!(way_of(&judgement), None);
        assert!(says(&judgement).contains("is ending"), "{judgement:?}");
    }

    #[test]
    fn many_at_once_are_asked_to_wait_longer() {
        let waits: Vec<u32> = [0, 100, 399, 400, 2000, 1_000_000].map(retry_after_seconds).to_vec();
        assert_eq!(waits, [1, 1, 1, 2, 10, 30]);
    }

    #[test]
    fn words_of_others_do_not_make_the_answer_endless() {
        let mut status = active("a.io");
        status["message"] = "x".repeat(30_000).into();
        let request = request(&["a.io"], &[], status);
        let judgement = judged(GatewayMode::Request, &PlainEviction::default(), Some(&request));
        assert!(says(&judgement).len() <= 1024, "{}", says(&judgement).len());
    }
}
