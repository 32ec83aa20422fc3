//! Plain evictions: what becomes of one whose caller knows nothing of eviction requests.
//!
//! Whoever may answer for the pod has the turns that an EvictionRequest gives, and the caller gets the answer that every drainer
//! understands and tries again after: 429. Once nobody is left, the eviction passes, and the budgets of the pod decide as ever.

use jiff::{SignedDuration, Timestamp};
use usher_api::Interceptor;
use usher_api::gateway::GatewayMode;
use usher_api::names::requester_of;

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

/// What is to be written before the eviction is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// There is no request: make one.
    Create,
    /// Others have asked: join them.
    Join,
    /// The caller has asked: remember that it still does.
    Remember,
    /// Nothing: it was remembered just now, or only the state is told.
    Nothing,
}

/// What becomes of an eviction of a pod that the gateway is concerned with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// It is left to the API server.
    Pass(Pass),
    /// The same, as nobody is left who answers for the pod. That the caller still asks is remembered: a budget may be in the way.
    Last(Write),
    /// It is refused, with these words, after this write.
    Refuse {
        /// What to write.
        write: Write,
        /// Whose turn it is, if somebody has it: the caller may be the one.
        active: Option<String>,
        /// The caller says to be one of those who have, or have had, their turn: it passes if it may answer requests at all.
        is_claimed: bool,
        /// What the caller reads.
        message: String,
    },
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
        let Some(first) = case.interceptors.first() else { return Judgement::Pass(Pass::NoInterceptors) };
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
        let write = if silent { Write::Nothing } else { Write::Create };
        return refuse(write, None, false, message);
    };
    let is_wanted = request.requesters().next().is_some();
    if request.is_deleting && !is_wanted {
        // Whoever holds it has so long to let go of it.
        if request.deleted().is_none_or(|deleted| now.duration_since(deleted) >= ENDS_WITHIN) {
            return Judgement::Last(Write::Nothing);
        }
        let message =
            format!("{TRIGGERED} of pod {}: an earlier request is ending, and another one follows", case.pod);
        return refuse(Write::Nothing, None, false, message);
    }
    let has_asked = request.finalizers.iter().any(|it| requester_of(it) == Some(case.requester));
    let write = if silent {
        Write::Nothing
    } else if !has_asked {
        // To one that is deleted the server lets nobody be added.
        if request.is_deleting { Write::Nothing } else { Write::Join }
    } else {
        let known = request.ask_of(case.requester);
        let is_fresh = known.is_some_and(|ask| {
            now.duration_since(ask.at.0) < REMEMBERED_FOR
                && ask.grace_period_seconds == case.eviction.grace_period_seconds
        });
        if is_fresh { Write::Nothing } else { Write::Remember }
    };
    if is_nobodys(request, case.interceptors_limit, now) {
        // Who has not asked before need not do so now.
        return Judgement::Last(if write == Write::Join { Write::Nothing } else { write });
    }
    let active = request.status.active_interceptor_class.clone();
    let whose = if !is_wanted && silent {
        "its request is withdrawn and ends".to_owned()
    } else {
        whose_turn(request, now)
    };
    let is_claimed = has_had_its_turn(request, case.eviction.interceptor.as_deref());
    refuse(write, active, is_claimed, format!("{TRIGGERED} of pod {}: {whose}", case.pod))
}

fn refuse(write: Write, active: Option<String>, is_claimed: bool, message: String) -> Judgement {
    Judgement::Refuse { write, active, is_claimed, message: limited(message) }
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
    use serde_json::{Value, json};

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

    fn write_of(judgement: &Judgement) -> Option<Write> {
        match judgement {
            Judgement::Refuse { write, .. } => Some(*write),
            Judgement::Last(write) => Some(*write),
            Judgement::Pass(_) => None,
        }
    }

    fn says(judgement: &Judgement) -> &str {
        match judgement {
            Judgement::Refuse { message, .. } => message,
            Judgement::Pass(_) | Judgement::Last(_) => "",
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
        assert_eq!(judge(&case, at(NOW)), Judgement::Pass(Pass::NoInterceptors));
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
            ("nobody has asked", Request, &plain, nobody_yet, Write::Create),
            ("nobody has asked, and it blocks", Block, &plain, nobody_yet, Write::Nothing),
            ("nobody has asked, and it is a dry run", Request, &dry, nobody_yet, Write::Nothing),
            ("others have asked", Request, &plain, Some(&of_others), Write::Join),
            ("others have asked, and it blocks", Block, &plain, Some(&of_others), Write::Nothing),
            ("others have asked, and it is a dry run", Request, &dry, Some(&of_others), Write::Nothing),
            ("it has asked just now", Request, &plain, Some(&just_now), Write::Nothing),
            ("it has asked just now for another grace", Request, &graceful, Some(&just_now), Write::Remember),
            ("it has asked a while ago", Request, &plain, Some(&before), Write::Remember),
            ("its finalizer is there and no time", Request, &plain, Some(&by_hand), Write::Remember),
        ] {
            assert_eq!(write_of(&judged(mode, eviction, request)), Some(wanted), "{what}");
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
            assert_eq!(judgement == Judgement::Last(Write::Nothing), passes, "{what}: {judgement:?}");
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
        assert_eq!(judge(&limited(600), at(NOW)), Judgement::Last(Write::Nothing));
        assert_ne!(judge(&limited(601), at(NOW)), Judgement::Last(Write::Nothing));
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
        assert_eq!(last(&plain, &before), Judgement::Last(Write::Remember));
        assert_eq!(last(&dry, &before), Judgement::Last(Write::Nothing));
        assert_eq!(last(&plain, &others), Judgement::Last(Write::Nothing));
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
        assert_eq!(write_of(&wanted), Some(Write::Nothing), "nobody joins what is deleted");
        assert!(says(&judged(&deleted(&[], 119))).contains("is ending"));
        assert_eq!(judged(&deleted(&[], 120)), Judgement::Last(Write::Nothing));
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
            match judged(GatewayMode::Request, &eviction, Some(&request)) {
                Judgement::Refuse { is_claimed, .. } => {
                    assert_eq!(is_claimed, wanted, "{claimed:?} in the turn of {active_class:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn an_earlier_request_that_is_ending_is_waited_for() {
        let mut request = request(&["a.io"], &[], active("a.io"));
        request.is_deleting = true;
        let judgement = judged(GatewayMode::Request, &PlainEviction::default(), Some(&request));
        assert_eq!(write_of(&judgement), Some(Write::Nothing));
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
