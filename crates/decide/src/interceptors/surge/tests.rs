use serde_json::{Value, json};
use usher_api::names::{
    INTERCEPTOR_FIELD_MANAGER, REPLICA_SET_CLASS, SKIP_INTERCEPTORS_ANNOTATION, SURGE_ANNOTATION, SURGE_LABEL,
};

use super::super::availability::{asked_at, ready_at};
use super::super::samples::{self, at};
use super::*;
use crate::snapshot::{AutoscalerOnWire, DeploymentOnWire, PreferredForDeletion, Surge};

/// A Deployment `web` with the same UID, and what is asked of its pods.
pub struct Scene {
    pub deployment: Value,
    pub autoscaler: Option<Value>,
    pub strategy: Strategy,
    pub pods: BTreeMap<Key, Arc<Pod>>,
    pub requests: HashMap<Arc<str>, Arc<Request>>,
    pub handed: Vec<Arc<Pod>>,
    pub handed_asked: HashSet<Arc<str>>,
    pub may_hand_over: bool,
    pub taken: HashMap<Arc<str>, u32>,
    pub refused: Option<&'static str>,
}

impl Scene {
    /// Pods a, b, c ... that are all available.
    pub fn new(replicas: u32) -> Self {
        let names = ('a'..='z').take(replicas as usize);
        let scene = Self {
            deployment: json!({
                "metadata": {"name": "web", "namespace": "ns", "uid": "web", "generation": 1, "resourceVersion": "4"},
                "spec": {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
                "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas},
            }),
            autoscaler: None,
            strategy: Strategy::Default,
            pods: BTreeMap::new(),
            requests: HashMap::new(),
            handed: Vec::new(),
            handed_asked: HashSet::new(),
            may_hand_over: false,
            taken: HashMap::new(),
            refused: None,
        };
        names.fold(scene, |scene, name| scene.pod(&name.to_string(), json!({})))
    }

    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.deployment);
        self
    }

    pub fn surge(self, by: u32, written: u32, replicas: u32, reverted: u32) -> Self {
        let record = Surge { by, replicas: written, reverted };
        self.with(|it| {
            it["metadata"]["labels"] = json!({SURGE_LABEL: record.label()});
            it["spec"]["replicas"] = replicas.into();
        })
    }

    pub fn autoscaler(mut self, min: u32, max: u32, raised: Option<Value>) -> Self {
        let annotations = raised.map(|raised| json!({SURGE_ANNOTATION: raised.to_string()}));
        self.autoscaler = Some(json!({
            "metadata": {"name": "hpa", "namespace": "ns", "uid": "hpa", "annotations": annotations},
            "spec": {"minReplicas": min, "maxReplicas": max, "scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        }));
        self
    }

    pub fn pod(mut self, name: &str, with: Value) -> Self {
        let mut labelled = json!({"metadata": {"labels": {"pod-template-hash": "1"}}});
        samples::merge(&mut labelled, with);
        let pod = samples::pod(name, "ReplicaSet", "web-1", "node-1", labelled);
        self.pods.insert(pod.key.clone(), pod);
        self
    }

    pub fn pending(self, name: &str) -> Self {
        self.pod(name, json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]}}))
    }

    /// A pod that is to take the place of another one.
    pub fn handed(mut self, name: &str, leaving: &str, with: Value) -> Self {
        let pod = samples::hand_over_pod(name, "web-1", &format!("r-{leaving}"), with);
        self.handed.push(pod);
        self
    }

    pub fn preferred(self, name: &str, cost: i32) -> Self {
        let annotations = json!({
            "controller.kubernetes.io/pod-deletion-cost": cost.to_string(),
            "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
        });
        self.pod(name, json!({"metadata": {"annotations": annotations}}))
    }

    pub fn asked(mut self, pod: &str, class: &str, with: Value) -> Self {
        self.requests.insert(pod.into(), samples::request(pod, class, with));
        self
    }

    pub fn decide(&self) -> Decision {
        self.at_case(|case| decide(case, at(1)))
    }

    fn at_state<T>(&self, look: impl FnOnce(&Case<'_>, &SurgeState<'_>) -> T) -> T {
        self.at_case(|case| look(case, &state(case, at(1))))
    }

    fn at_case<T>(&self, look: impl FnOnce(&Case<'_>) -> T) -> T {
        let deployment = serde_json::from_value::<DeploymentOnWire>(self.deployment.clone()).unwrap().into();
        let autoscaler = self
            .autoscaler
            .clone()
            .map(|it| Autoscaler::from(serde_json::from_value::<AutoscalerOnWire>(it).unwrap()));
        let case = Case {
            deployment: &deployment,
            strategy: self.strategy,
            autoscaler: autoscaler.as_ref(),
            pods: &self.pods,
            requests: &self.requests,
            handed: &self.handed,
            handed_asked: &self.handed_asked,
            may_hand_over: self.may_hand_over,
            taken: &self.taken,
            moved: ready_at(self.pods.values(), asked_at(self.requests.values())),
            refused: self.refused,
        };
        look(&case)
    }

    pub fn effects(&self) -> Vec<String> {
        self.decide().effects.iter().map(words).collect()
    }
}

/// One line for an effect.
fn words(effect: &Effect) -> String {
    match effect {
        Effect::Report { request, report } => {
            let what = if report.completed { "completes" } else { "reports" };
            format!("{what} {}: {}", request.pod_name, report.message.clone().unwrap_or_default())
        }
        Effect::ReportIfAvailable { request, report, at_least, .. } => {
            assert!(report.completed);
            format!("completes {} if {at_least} are available", request.pod_name)
        }
        Effect::Prefer { pod, cost, before } => {
            let mark = before.as_ref().and(cost.as_ref()).map(|mark| mark.parse::<i32>().unwrap());
            let offset = mark.map(|cost| i64::from(cost) - i64::from(i32::MIN));
            format!("prefers {} {offset:?}", pod.key.name)
        }
        Effect::Resize { replicas, surge, .. } => {
            let surge = surge.as_ref().map(|it| (it.by, it.replicas, it.reverted));
            format!("scales to {replicas} with {surge:?}")
        }
        Effect::Limit { min_replicas, max_replicas, raised, .. } => {
            let raised = raised.as_ref().map(|it| (it.by, it.min_by, it.min_replicas, it.max_by));
            format!("limits to {min_replicas}..{max_replicas} with {raised:?}")
        }
        Effect::MakeHandOver(new) => format!("makes {} for {}", new.name, new.request.pod_name),
        Effect::HandOver { pod, hash } => format!("hands over {} as {hash}", pod.key.name),
        Effect::DropHandOver { pod } => format!("drops {}", pod.key.name),
        Effect::RecordEvent { reason, .. } => format!("tells {reason}"),
        other => format!("{other:?}"),
    }
}

#[track_caller]
pub fn says(scene: &Scene, wanted: &[&str]) {
    let found = scene.effects();
    let matches = found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| found.starts_with(wanted));
    assert!(matches, "{found:#?} instead of {wanted:#?}");
}

/// A request with interceptors in the order of their turns.
pub fn turns(classes: &[&str], completed: bool) -> Value {
    let interceptors: Vec<Value> = classes
        .iter()
        .zip((0..20_000).rev())
        .map(|(class, priority)| json!({"interceptorClass": class, "priority": priority}))
        .collect();
    json!({"spec": {"interceptors": interceptors}, "status": {"activeInterceptorCompleted": completed}})
}

#[test]
fn a_single_replica_is_replaced_before_it_goes() {
    let asked = || Scene::new(1).asked("a", DEPLOYMENT_CLASS, json!({}));
    // 5: surge pods.
    says(
        &asked(),
        &[
            "scales to 2 with Some((1, 2, 0))",
            "prefers a Some(0)",
            "reports a: Deployment web: a waits until",
        ],
    );
    // 6 and 7: nothing is done until they are available.
    let surged = || Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0);
    says(
        &surged().asked("a", DEPLOYMENT_CLASS, json!({})),
        &["reports a: Deployment web: a waits until 1 more pod is there"],
    );
    says(
        &surged().pending("b").asked("a", DEPLOYMENT_CLASS, json!({})),
        &[
            "reports a: Deployment web: a waits until b is available, which cannot be scheduled: 0/3 nodes are available",
        ],
    );
    // 9: completed once the replacement is available.
    says(
        &surged().pod("b", json!({})).asked("a", DEPLOYMENT_CLASS, json!({})),
        &["completes a: Deployment web: a goes now, 1 of 1 pods are available without it"],
    );
    // 8 and 11: in the turn of the ReplicaSet the surge is taken back, which deletes it.
    let replaced = surged().pod("b", json!({})).asked("a", REPLICA_SET_CLASS, json!({}));
    says(&replaced, &["scales to 1 with None"]);
}

#[test]
fn a_quota_is_told_as_the_reason_why_no_surge_pod_comes() {
    let scene = Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).with(|it| {
        it["status"]["conditions"] =
            json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}]);
    });
    says(
        &scene.asked("a", DEPLOYMENT_CLASS, json!({})),
        &[
            "reports a: Deployment web: a waits until 1 more pod is there, which cannot be made: exceeded quota: pods",
        ],
    );
}

#[test]
fn a_surge_pod_that_does_not_start_is_no_progress() {
    let bad = json!({"metadata": {"creationTimestamp": at(-50).to_string()}, "status": {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
    }});
    let message = "Deployment web: a waits until b is available, which does not start: ImagePullBackOff";
    let scene = Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).pod("b", bad);
    let told = json!({"status": {"message": "Deployment web: a waits until 1 more pod is there", "progressTimestamp": at(-400).to_string()}});
    let decision = scene.asked("a", DEPLOYMENT_CLASS, told).decide();
    let [Effect::Report { report, .. }] = &decision.effects[..] else { panic!("{decision:#?}") };
    assert_eq!(report.message.as_deref(), Some(message));
    assert!(!report.progress, "b came since then, and does not become ready");
    let scene = Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).pod(
        "b",
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}),
    );
    let told = json!({"status": {"message": message, "progressTimestamp": at(-80).to_string()}, "spec": {"progressDeadlineSeconds": 60}});
    says(&scene.asked("a", DEPLOYMENT_CLASS, told), &[]);
}

#[test]
fn surge_pods_that_fail_one_after_the_other_are_no_progress() {
    let new = json!({"metadata": {"creationTimestamp": at(-1).to_string()}, "status": {
        "phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}],
    }});
    let told = json!({"status": {
        "message": "Deployment web: a waits until z is available, which is not ready",
        "progressTimestamp": at(-20).to_string(),
    }});
    let old = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": at(-100).to_string()},
    ]}});
    let scene = Scene::new(1).preferred("a", i32::MIN).pod("a", old).surge(1, 2, 2, 0).pod("b", new);
    for effect in scene.asked("a", DEPLOYMENT_CLASS, told).decide().effects {
        if let Effect::Report { report, .. } = effect {
            assert!(!report.progress, "{report:?}");
        }
    }
}

#[test]
fn why_a_surge_pod_does_not_start_is_told_within_seconds_and_figures_later() {
    let no_room = |nodes: u32| {
        let message = format!("0/{nodes} nodes are available");
        json!({"metadata": {"creationTimestamp": at(-50).to_string()}, "spec": {"nodeName": ""}, "status": {
            "phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message},
            ],
        }})
    };
    let scene = |nodes: u32, told: &str, second: i64| {
        let status = json!({"message": told, "progressTimestamp": at(second).to_string()});
        let scene = Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).pod("b", no_room(nodes));
        scene.asked("a", DEPLOYMENT_CLASS, json!({"status": status})).decide().effects
    };
    let told =
        "Deployment web: a waits until b is available, which cannot be scheduled: 0/3 nodes are available";
    let first = "Deployment web: a waits until its replacement is there";
    let effects = scene(3, first, -10);
    let [Effect::Report { report, .. }] = &effects[..] else { panic!("{effects:#?}") };
    assert_eq!((report.message.as_deref(), report.progress), (Some(told), false));
    assert!(scene(3, first, -2).is_empty(), "what changes by the second is not written each time");
    assert!(scene(2, told, -10).is_empty(), "other figures say nothing else");
}

#[test]
fn batches_are_as_large_as_max_surge_and_the_oldest_request_goes_first() {
    let created = |second: i64| json!({"metadata": {"creationTimestamp": at(second).to_string()}});
    let scene = Scene::new(4)
        .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
        .asked("a", DEPLOYMENT_CLASS, created(-5))
        .asked("b", DEPLOYMENT_CLASS, created(-9))
        .asked("c", DEPLOYMENT_CLASS, created(-7));
    says(
        &scene,
        &[
            "scales to 6 with Some((2, 6, 0))",
            "prefers b Some(0)",
            "prefers c Some(1)",
            "prefers a Some(2)",
            "reports b",
            "reports c",
            "reports a: Deployment web: a waits for its turn",
        ]
        .map(|line| if line.starts_with("reports") { &line[..7] } else { line }),
    );
    let surged = Scene::new(4)
        .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
        .surge(2, 6, 6, 0)
        .preferred("b", i32::MIN)
        .preferred("c", i32::MIN + 1)
        .preferred("a", i32::MIN + 2)
        .pod("y", json!({}))
        .pod("z", json!({}))
        .asked("a", DEPLOYMENT_CLASS, created(-5))
        .asked("b", DEPLOYMENT_CLASS, created(-9))
        .asked("c", DEPLOYMENT_CLASS, created(-7));
    says(&surged, &["completes b", "completes c"]);
}

#[test]
fn one_that_was_called_off_stays_and_the_surplus_goes() {
    let surged = || Scene::new(1).surge(1, 2, 2, 0).pod("b", json!({}));
    // First it loses the mark, and the other one gets it, so that it is not the one that goes.
    let marks = ["prefers a None", "prefers b Some(1)"];
    says(&surged().preferred("a", i32::MIN), &marks);
    says(&surged().preferred("b", i32::MIN + 1), &["scales to 1 with None", "tells SurgeTakenBack"]);
    let withdrawn = json!({"metadata": {"finalizers": []}});
    says(&surged().preferred("a", i32::MIN).asked("a", DEPLOYMENT_CLASS, withdrawn), &marks);
}

#[test]
fn who_scales_meanwhile_is_right() {
    let scaled = Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 5, 0);
    says(&scaled.asked("a", DEPLOYMENT_CLASS, json!({})), &["scales to 5 with None"]);
}

#[test]
fn a_surge_that_somebody_sets_back_is_tried_twice_and_told_once() {
    let reverted = |times| Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 1, times);
    says(
        &reverted(0).asked("a", DEPLOYMENT_CLASS, json!({})),
        &["scales to 1 with Some((0, 0, 1))", "tells SurgeReverted"],
    );
    says(&reverted(1).asked("a", DEPLOYMENT_CLASS, json!({})), &["scales to 1 with Some((0, 0, 2))"]);
    let given_up = Scene::new(1).preferred("a", i32::MIN).surge(0, 0, 1, 2);
    says(
        &given_up.asked("a", DEPLOYMENT_CLASS, json!({})),
        &["prefers a None", "completes a: Deployment web was scaled back 2 times by somebody else"],
    );
    // It is forgotten with the last request.
    says(&Scene::new(1).surge(0, 0, 1, 2), &["scales to 1 with None"]);
}

#[test]
fn what_a_deployment_does_not_support_is_left_to_the_eviction_api() {
    let strategy = |spec: Value| Scene::new(1).with(move |it| it["spec"]["strategy"] = spec);
    let none = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    for (scene, why) in [
        (strategy(json!({"type": "Recreate"})), "Deployment web has the strategy Recreate"),
        (strategy(none), "Deployment web has no maxSurge"),
        (Scene { strategy: Strategy::Off, ..Scene::new(1) }, "Deployment web opted out"),
    ] {
        let wanted = format!("completes a: {why}");
        says(&scene.asked("a", DEPLOYMENT_CLASS, json!({})), &[&wanted]);
    }
    let unsupported = Scene::new(1).with(|it| it["spec"]["strategy"] = json!({"type": "Recreate"}));
    says(&unsupported.asked("a", REPLICA_SET_CLASS, json!({})), &["completes a: "]);
}

#[test]
fn a_paused_rollout_is_waited_for_in_patience() {
    let paused = |it: &mut Value| {
        it["spec"]["paused"] = true.into();
        it["status"]["updatedReplicas"] = 0.into();
    };
    let surged = || Scene::new(1).preferred("a", i32::MIN).pending("b").surge(1, 2, 2, 0);
    for scene in [|| Scene::new(1).preferred("a", i32::MIN), surged] {
        let told = json!({"status": {"progressTimestamp": at(0).to_string()}});
        let scene = scene().with(paused).asked("a", DEPLOYMENT_CLASS, told);
        let at = |second| scene.at_case(|case| decide(case, at(second)));
        let decision = at(1);
        let said: Vec<String> = decision.effects.iter().map(words).collect();
        let wanted =
            "reports a: Deployment web: a waits until the rollout of its Deployment is done, which is paused";
        assert_eq!(said, [wanted]);
        assert!(decision.recheck_at.is_some());
        assert_eq!(at(200).recheck_at, Some(samples::at(300)));
        let said: Vec<String> = at(300).effects.iter().map(words).collect();
        assert!(said.iter().any(|said| {
            said.starts_with("completes a: Deployment web is paused in the middle of a rollout")
        }));
    }
    let never = Scene::new(1).with(paused).with(|it| it["spec"]["strategy"] = json!({"type": "Recreate"}));
    let wanted = "completes a: Deployment web has the strategy Recreate";
    says(&never.asked("a", DEPLOYMENT_CLASS, json!({})), &[wanted]);
    let fewer = Scene { strategy: Strategy::MaxUnavailable, ..Scene::new(1).with(paused) };
    let wanted = "completes a: Deployment web is paused in the middle of a rollout";
    says(&fewer.asked("a", DEPLOYMENT_CLASS, json!({})), &[wanted]);
}

#[test]
fn new_pods_that_do_not_come_are_warned_of_before_the_deadline() {
    let told = json!({"status": {"progressTimestamp": at(0).to_string()}});
    let surged = |new: Scene| {
        new.preferred("a", i32::MIN).surge(1, 2, 2, 0).asked("a", DEPLOYMENT_CLASS, told.clone())
    };
    let warned = |scene: &Scene, second| {
        scene.at_case(|case| stuck(case, at(second))).map(|(request, warning)| {
            assert_eq!(&*request, "r-a");
            warning
        })
    };
    let no_room = surged(Scene::new(1).pending("b"));
    assert_eq!(warned(&no_room, 299), None);
    let warning = warned(&no_room, 300).unwrap();
    assert!(
        warning.starts_with(
            "a is asked to leave, and waits until b is available, which cannot be scheduled: 0/3 nodes"
        ),
        "{warning}"
    );
    assert!(warning.contains("left to the eviction API"), "{warning}");
    // One that may only take its time.
    let starts = || Scene::new(1).pod("b", json!({"status": {"phase": "Pending", "conditions": []}}));
    assert_eq!(warned(&surged(starts()), 899), None);
    assert!(warned(&surged(starts()), 900).is_some_and(|warning| warning.contains("which is not ready")));
    let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
    let refused = surged(Scene::new(1)).with(|it| it["status"]["conditions"] = failure);
    assert!(warned(&refused, 300).is_some_and(|warning| warning.contains("exceeded quota")));
}

#[test]
fn a_rollout_is_waited_for_and_never_fought() {
    let scene = || Scene::new(2).with(|it| it["status"]["updatedReplicas"] = 1.into());
    let waits = |pod| {
        format!("reports {pod}: Deployment web: {pod} waits until the rollout of its Deployment is done")
    };
    let (first, second) = (waits("a"), waits("b"));
    says(&scene().asked("a", DEPLOYMENT_CLASS, json!({})), &["prefers a Some(0)", &first]);
    // It holds up all of them, also those whose turn comes later.
    let both = scene().asked("a", DEPLOYMENT_CLASS, json!({})).asked("b", DEPLOYMENT_CLASS, json!({}));
    says(&both, &["prefers a Some(0)", "prefers b Some(1)", &first, &second]);
    // One that is only not observed yet may be somebody who scaled, as after each of our own batches.
    let unobserved = scene()
        .with(|it| it["status"]["updatedReplicas"] = 2.into())
        .with(|it| it["status"]["observedGeneration"] = 0.into())
        .asked("a", DEPLOYMENT_CLASS, json!({}))
        .asked("b", DEPLOYMENT_CLASS, json!({}));
    let waits_for_controller =
        "reports a: Deployment web: a waits until the Deployment controller has observed its last change";
    let waits_for_turn = "reports b: Deployment web: b waits for its turn, 1 at a time";
    says(&unobserved, &["prefers a Some(0)", "prefers b Some(1)", waits_for_controller, waits_for_turn]);
}

#[test]
fn nothing_is_taken_back_in_the_middle_of_a_rollout() {
    let surged = || Scene::new(2).surge(1, 3, 3, 0).pod("c", json!({}));
    says(&surged().with(|it| it["status"]["updatedReplicas"] = 1.into()), &[]);
    says(&surged().preferred("c", i32::MIN), &["scales to 2 with None", "tells SurgeTakenBack"]);
}

#[test]
fn a_pod_whose_replacement_is_not_there_in_the_turn_of_its_replica_set_is_left_to_the_eviction_api_after_a_while()
 {
    let lost = |second: i64| {
        given_over(Scene::new(1).preferred("a", i32::MIN).surge(1, 2, 2, 0).pending("b"), "a", second)
    };
    says(&lost(1), &[]);
    assert_eq!(lost(1).decide().recheck_at, Some(at(4)));
    // What is missing is told, which is no progress.
    let waits =
        "reports a: Deployment web: a waits until b is available, which cannot be scheduled: 0/3 nodes";
    says(&lost(10), &[waits]);
    let decision = lost(10).decide();
    assert_eq!(decision.recheck_at, Some(at(290)));
    assert!(matches!(&decision.effects[..], [Effect::Report { report, .. }] if !report.progress));
    // The one that came for it goes first, as it is not available, and would stay in its place.
    let left = "completes a: Deployment web has no available replacement of the pod";
    says(&lost(300), &["scales to 1 with None", left]);
    let decision = lost(300).decide();
    let [_, Effect::Report { request, report }] = &decision.effects[..] else { panic!("{decision:?}") };
    let patch = report.patch(&request.status, at(1));
    assert_eq!(
        (&patch["conditions"][0]["type"], &patch["conditions"][0]["status"]),
        (&json!("SurgeFailed"), &json!("True"))
    );
    // A rollout is waited for.
    let rolls_out = |it: &mut Value| it["status"]["updatedReplicas"] = 0.into();
    let waits = "reports a: Deployment web: a waits until the rollout of its Deployment is done";
    says(&lost(300).with(rolls_out), &[waits]);
}

/// Given over, `second` after its replacement was available.
fn given_over(scene: Scene, pod: &str, second: i64) -> Scene {
    scene.asked(pod, REPLICA_SET_CLASS, json!({"status": {"progressTimestamp": at(-second).to_string()}}))
}

#[test]
fn a_pod_for_whose_surge_another_one_went_is_surged_for_again() {
    let alone = |second: i64| given_over(Scene::new(1).preferred("a", i32::MIN), "a", second);
    for second in [1, 3000] {
        says(&alone(second), &["scales to 2 with Some((1, 2, 0))"]);
    }
    // Where it cannot be, it is left to the eviction API after a while.
    let refused = |second: i64| Scene { refused: Some("a policy"), ..alone(second) };
    says(&refused(1), &["scales to 2 with Some((1, 2, 0))"]);
    let given_up = ["completes a: Deployment web has no available replacement of the pod"];
    says(&refused(300), &given_up);
    says(&alone(1).autoscaler(4, 5, None), &[]);
    assert_eq!(alone(10).autoscaler(4, 5, None).decide().recheck_at, Some(at(290)));
    says(&alone(300).autoscaler(4, 5, None), &given_up);
    // Two went, for a surge of which one is left: the first of them goes for that, and no other.
    let two = |by: u32, replicas: u32, there: &[&str]| {
        let scene = Scene::new(0)
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
            .surge(by, replicas, replicas, 0)
            .preferred("a", i32::MIN + 4)
            .preferred("b", i32::MIN + 3);
        let scene = there.iter().fold(scene, |scene, name| scene.pod(name, json!({})));
        given_over(given_over(scene, "a", 1), "b", 1)
    };
    says(&two(1, 4, &["c", "d"]), &["scales to 3 with None"]);
    says(&two(0, 3, &["c", "d"]), &[]);
    says(&two(0, 3, &["c"]), &["scales to 5 with Some((2, 5, 0))"]);
}

#[test]
fn nobody_is_given_up_and_no_mark_is_taken_off_while_a_replica_set_is_about_to_delete_pods() {
    // The surge was taken back, and the controllers have not followed for minutes.
    let busy = || Scene::new(1).preferred("a", i32::MIN).pod("b", json!({}));
    says(&given_over(busy(), "a", 3000), &[]);
    let withdrawn = json!({"metadata": {"finalizers": []}});
    says(&busy().asked("a", REPLICA_SET_CLASS, withdrawn.clone()), &[]);
    let completed = json!({"status": {"activeInterceptorCompleted": true}});
    says(&busy().asked("a", REPLICA_SET_CLASS, completed), &[]);
    let off = Scene { strategy: Strategy::Off, ..given_over(busy(), "a", 3000) };
    says(&off, &[]);
    // As soon as they have, or in a rollout, where there are more anyway.
    says(
        &Scene::new(1).preferred("a", i32::MIN).asked("a", REPLICA_SET_CLASS, withdrawn),
        &["prefers a None"],
    );
    let rolling = given_over(busy(), "a", 3000).with(|it| it["status"]["updatedReplicas"] = 0.into());
    says(&rolling, &["completes a: Deployment web has no available replacement"]);
    // Nothing of ours is under way: its owner scales it down, and does not want to be helped.
    let off = Scene { strategy: Strategy::Off, ..Scene::new(1) }.pod("b", json!({}));
    says(&off.asked("a", DEPLOYMENT_CLASS, json!({})), &["completes a: Deployment web opted out"]);
}

#[test]
fn what_does_not_surge_any_more_is_left_to_the_eviction_api_once_the_surge_is_gone() {
    let off = |scene: Scene, class: &str| {
        Scene { strategy: Strategy::Off, ..scene.preferred("a", i32::MIN) }.asked("a", class, json!({}))
    };
    for class in [DEPLOYMENT_CLASS, REPLICA_SET_CLASS] {
        // The one that leaves goes for it.
        says(&off(Scene::new(1).surge(1, 2, 2, 0).pod("b", json!({})), class), &["scales to 1 with None"]);
        says(&off(Scene::new(1), class), &["prefers a None", "completes a: Deployment web opted out"]);
    }
    // A pod that was left to the eviction API keeps its mark until then, too.
    let completed = json!({"status": {"activeInterceptorCompleted": true}});
    let lost = Scene::new(1).surge(1, 2, 2, 0).pod("b", json!({})).preferred("a", i32::MIN);
    says(&lost.asked("a", REPLICA_SET_CLASS, completed), &["scales to 1 with None"]);
}

#[test]
fn marks_that_are_out_of_order_are_given_anew() {
    let waits = |scene: Scene, pod: &str| {
        let told = json!({"status": {"message": format!("Deployment web: {pod}"), "progressTimestamp": at(0).to_string()}});
        scene.asked(pod, DEPLOYMENT_CLASS, told)
    };
    // Two managers, or one that hears late of what it has written, give the same mark twice.
    let twice = waits(Scene::new(2).preferred("a", i32::MIN).preferred("b", i32::MIN), "a");
    says(&waits(twice.surge(1, 3, 3, 0), "b"), &["prefers b Some(1)"]);
    // One was not ready when it was given over, and went before others; now it is ready.
    let later = waits(Scene::new(2).preferred("a", i32::MIN + 7).preferred("b", i32::MIN + 3), "b");
    let later = given_over(later.surge(1, 3, 3, 0).pod("c", json!({})), "a", 1);
    says(&later, &["prefers b Some(8)"]);
}

mod marks {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Turn {
        Waits,
        GivenOver,
        InBetween,
        /// Somebody skips its interceptors.
        Skipped,
        /// The eviction API has it.
        CompletedLast,
        NotAsked,
    }

    fn pods() -> impl proptest::strategy::Strategy<Value = Vec<(Turn, Option<i32>, bool, bool)>> {
        let turn = prop_oneof![
            Just(Turn::Skipped),
            Just(Turn::CompletedLast),
            Just(Turn::Waits),
            Just(Turn::GivenOver),
            Just(Turn::InBetween),
            Just(Turn::NotAsked)
        ];
        let mark = proptest::option::of(0..6);
        prop::collection::vec((turn, mark, any::<bool>(), any::<bool>()), 1..8)
    }

    fn scene(pods: &[(Turn, Option<i32>, bool, bool)], by: u32, hands_over: bool) -> Scene {
        let strategy = if hands_over { super::Strategy::HandOver } else { super::Strategy::Default };
        let mut scene = Scene { strategy, ..Scene::new(0) }
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 3.into());
        let count = u32::try_from(pods.len()).unwrap();
        scene = scene.surge(by, count, count, 0);
        for (name, (turn, mark, is_ready, is_replaced)) in ('a'..).map(|it| it.to_string()).zip(pods) {
            let annotations = mark.map(|mark| {
                json!({
                    "controller.kubernetes.io/pod-deletion-cost": (i32::MIN + mark).to_string(),
                    "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
                })
            });
            let ready = if *is_ready { "True" } else { "False" };
            let with = json!({
                "metadata": {"annotations": annotations},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            scene = scene.pod(&name, with);
            let classes = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS];
            scene = match turn {
                Turn::Waits => scene.asked(&name, DEPLOYMENT_CLASS, turns(&classes, false)),
                Turn::InBetween => scene.asked(&name, DEPLOYMENT_CLASS, turns(&classes, true)),
                Turn::GivenOver => scene.asked(&name, REPLICA_SET_CLASS, turns(&classes, false)),
                Turn::Skipped => {
                    let mut request = turns(&classes, false);
                    request["metadata"] =
                        json!({"annotations": {SKIP_INTERCEPTORS_ANNOTATION: "the rack burns"}});
                    scene.asked(&name, DEPLOYMENT_CLASS, request)
                }
                Turn::CompletedLast => scene.asked(&name, DEPLOYMENT_CLASS, turns(&[DEPLOYMENT_CLASS], true)),
                Turn::NotAsked => scene,
            };
            if hands_over && *is_replaced && !matches!(turn, Turn::NotAsked) {
                scene = scene.handed(&format!("n-{name}"), &name, json!({}));
            }
        }
        scene
    }

    /// As the server has it afterwards.
    fn marked(mut scene: Scene) -> (Scene, usize) {
        let effects = scene.decide().effects;
        let mut count = 0;
        for effect in effects {
            if let Effect::Prefer { pod, cost, before } = effect {
                count += 1;
                let mut pod = Pod::clone(&pod);
                let rare = pod.rare.get_or_insert_default();
                rare.preferred = before.map(|before| PreferredForDeletion {
                    cost: cost.as_ref().unwrap().parse().unwrap(),
                    before: Some(before).filter(|it| !it.is_empty()),
                });
                rare.deletion_cost = cost.map(Into::into);
                scene.pods.insert(pod.key.clone(), Arc::new(pod));
            }
        }
        (scene, count)
    }

    proptest! {
        /// Whatever marks pods have: once those of one decision are written there is nothing more to write, and those that go come first.
        #[test]
        fn are_in_order_after_one_decision(pods in pods(), by in 0..4_u32, hands_over: bool) {
            let (scene, _) = marked(scene(&pods, by.min(u32::try_from(pods.len()).unwrap()), hands_over));
            let (scene, again) = marked(scene);
            prop_assert_eq!(again, 0);
            scene.at_state(|case, state| {
                assert!(!state.in_between.is_empty() || comes_first(case, state), "{state:#?}");
            });
        }
    }
}

#[test]
fn a_surge_is_not_taken_back_twice_for_pods_that_are_about_to_be_deleted() {
    let scene = |by: u32, replicas: u32| {
        Scene::new(2)
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into())
            .surge(by, replicas, replicas, 0)
            .preferred("a", i32::MIN)
            .preferred("b", i32::MIN + 1)
            .pod("c", json!({}))
            .pod("d", json!({}))
            .asked("a", REPLICA_SET_CLASS, json!({}))
    };
    // As soon as one has its turn, though the other is still said to wait.
    let other_waits =
        scene(2, 4).asked("b", DEPLOYMENT_CLASS, json!({"status": {"message": "Deployment web: b"}}));
    says(&other_waits, &["scales to 3 with Some((1, 3, 0))"]);
    // The pod is still there as far as is known: nothing is done.
    says(&scene(1, 3).asked("b", REPLICA_SET_CLASS, json!({})), &[]);
}

#[test]
fn the_mark_is_only_on_pods_whose_turn_is_ours() {
    let other = Scene::new(2).preferred("a", i32::MIN).asked("a", "backup.example.com", json!({}));
    says(&other, &["prefers a None"]);
    let waits = Scene::new(2).asked("a", "backup.example.com", json!({}));
    says(&waits, &[]);
}

#[test]
fn a_surplus_goes_once_no_pod_is_ready_that_is_not_yet_available() {
    let since = |second: i64| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second).to_string()}]}});
    let scene = |ready_at: i64| {
        Scene::new(2)
            .with(|it| {
                it["spec"]["minReadySeconds"] = 60.into();
                it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into();
            })
            .surge(2, 4, 4, 0)
            .preferred("a", i32::MIN)
            .pod("c", since(ready_at))
            .pod("d", since(ready_at))
            .asked(
                "a",
                DEPLOYMENT_CLASS,
                json!({"status": {"message": "Deployment web: a", "progressTimestamp": at(0).to_string()}}),
            )
    };
    says(&scene(-10), &["prefers d Some(1)"]);
    assert_eq!(scene(-10).decide().recheck_at, Some(at(5)));
    // The one that is asked has its replacement, and goes first.
    says(&scene(-70), &["prefers d Some(1)", "completes a"]);
}

#[test]
fn a_pod_whose_cost_somebody_else_has_written_is_marked_again() {
    let scene = Scene::new(1).preferred("a", 100).surge(1, 2, 2, 0).pod("b", json!({}));
    let told =
        json!({"status": {"message": "Deployment web: a waits", "progressTimestamp": at(0).to_string()}});
    says(&scene.asked("a", DEPLOYMENT_CLASS, told), &["prefers a Some(0)"]);
}

#[test]
fn pods_that_are_down_and_asked_to_leave_do_not_wait_for_each_other() {
    let down = |name: &str, cost: i32, scene: Scene| {
        let annotations = json!({
            "controller.kubernetes.io/pod-deletion-cost": cost.to_string(),
            "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
        });
        scene
            .pod(name, json!({"metadata": {"annotations": annotations}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}))
            .asked(name, DEPLOYMENT_CLASS, json!({"status": {"message": format!("Deployment web: {name}"), "progressTimestamp": at(0).to_string()}}))
    };
    let scene = || Scene::new(4).surge(1, 5, 5, 0).pod("e", json!({}));
    says(&down("a", i32::MIN, down("b", i32::MIN + 1, scene())), &["completes a"]);
    let turn = json!({"status": {"progressTimestamp": at(0).to_string()}});
    let both = down("a", i32::MIN, down("b", i32::MIN + 1, scene()));
    let both = both.asked("a", REPLICA_SET_CLASS, turn.clone()).asked("b", REPLICA_SET_CLASS, turn);
    says(&both, &["scales to 4 with None"]);
}

#[test]
fn nobody_goes_while_the_next_interceptor_is_about_to_have_its_turn() {
    let classes =
        [HORIZONTAL_POD_AUTOSCALER_CLASS, "backup.example.com", DEPLOYMENT_CLASS, REPLICA_SET_CLASS];
    let scene = Scene::new(1)
        .preferred("a", i32::MIN)
        .pod("b", json!({}))
        .surge(1, 2, 2, 0)
        .autoscaler(1, 5, None)
        .asked("a", HORIZONTAL_POD_AUTOSCALER_CLASS, turns(&classes, true));
    says(&scene, &[]);
}

#[test]
fn what_an_autoscaler_took_back_itself_is_no_surge_any_more() {
    let scene = Scene::new(1).surge(1, 2, 1, 0).autoscaler(1, 5, None).asked(
        "a",
        REPLICA_SET_CLASS,
        turns(&[DEPLOYMENT_CLASS, REPLICA_SET_CLASS], true),
    );
    says(&scene, &["scales to 1 with None"]);
}

#[test]
fn called_off_the_newest_pods_go_and_those_that_were_asked_stay() {
    let newer = |scene: Scene, name: &str| {
        scene.pod(name, json!({"metadata": {"creationTimestamp": at(-5).to_string()}}))
    };
    let surged = || newer(Scene::new(2), "n").surge(1, 3, 3, 0);
    // First the one that came for nothing is marked, then it goes.
    says(&surged(), &["prefers n Some(0)"]);
    let marked = json!({"metadata": {"creationTimestamp": at(-5).to_string(), "annotations": {
        "controller.kubernetes.io/pod-deletion-cost": i32::MIN.to_string(),
        "evictionrequest.coordination.k8s.io/deletion-cost-before": "",
    }}});
    says(&surged().pod("n", marked.clone()), &["scales to 2 with None", "tells SurgeTakenBack"]);
    // The mark of one that was asked goes before that.
    says(&surged().preferred("a", i32::MIN), &["prefers a None", "prefers n Some(1)"]);
    says(&surged().pod("n", marked.clone()).preferred("a", i32::MIN + 1), &["prefers a None"]);
    // While the ReplicaSet has not deleted it yet it keeps its mark; one that stays after all does not.
    let lowered = |scene: Scene| scene.with(|it| it["spec"]["replicas"] = 2.into());
    says(&lowered(newer(Scene::new(2), "n").pod("n", marked.clone())), &[]);
    says(&lowered(Scene::new(1).pod("n", marked)), &["prefers n None"]);
    // Nobody has made it yet: then none that is there goes for it.
    says(&Scene::new(2).surge(1, 3, 3, 0), &["scales to 2 with None", "tells SurgeTakenBack"]);
    // One of two is still asked to leave: its replacement is available, so that it goes first.
    let two = || newer(newer(Scene::new(2), "m"), "n").preferred("a", i32::MIN).surge(2, 4, 4, 0);
    let two = || two().with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 2.into());
    says(&two().asked("a", DEPLOYMENT_CLASS, json!({})), &["prefers n Some(1)", "completes a"]);
    // What cannot be marked is no reason to keep the surge for ever.
    let mut refused = surged();
    refused.refused = Some("forbidden");
    says(&refused, &["prefers n Some(0)", "scales to 2 with None", "tells SurgeTakenBack"]);
}

#[test]
fn where_only_some_new_pods_find_room_those_are_enough_for_as_many() {
    let asked = |scene: Scene| {
        ["a", "b", "c"]
            .into_iter()
            .zip(0..)
            .fold(scene, |scene, (name, cost)| scene.preferred(name, i32::MIN + cost))
            .asked("a", DEPLOYMENT_CLASS, json!({}))
            .asked("b", DEPLOYMENT_CLASS, json!({}))
            .asked("c", DEPLOYMENT_CLASS, json!({}))
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 3.into())
    };
    let lowers = |scene: &Scene, to: &str| {
        let effects = scene.effects();
        assert!(effects.iter().any(|it| it == to), "{effects:#?}");
    };
    let stuck = || asked(Scene::new(3)).pod("x", json!({})).pending("y").pending("z").surge(3, 6, 6, 0);
    lowers(&stuck(), "scales to 4 with Some((1, 4, 0))");
    // And then that one goes, before more are tried again.
    let lowered = asked(Scene::new(3)).pod("x", json!({})).surge(1, 4, 4, 0);
    says(&lowered, &["completes a"]);
    let never = |scene: &Scene| {
        let effects = scene.effects();
        assert!(effects.iter().all(|it| it.starts_with("reports")), "{effects:#?}");
    };
    // None has found room, one is only starting, or one came only now.
    never(&asked(Scene::new(3)).pending("x").pending("y").pending("z").surge(3, 6, 6, 0));
    never(&stuck().pod("y", json!({"status": {"conditions": []}})));
    let young = json!({"metadata": {"creationTimestamp": at(-5).to_string()}, "spec": {"nodeName": ""}, "status": {
        "phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }});
    never(&stuck().pod("y", young));
    // A quota refuses the others.
    let few = || asked(Scene::new(3)).pod("x", json!({})).surge(3, 6, 6, 0);
    never(&few());
    let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]);
    lowers(&few().with(|it| it["status"]["conditions"] = failure), "scales to 4 with Some((1, 4, 0))");
}

#[test]
fn one_new_pod_that_never_gets_ready_does_not_hold_up_the_others() {
    let asked = |class: &str, created: i64| {
        let scene = ["a", "b", "c"]
            .into_iter()
            .zip(0..)
            .fold(Scene::new(3), |scene, (name, cost)| scene.preferred(name, i32::MIN + cost))
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = 3.into())
            .surge(3, 6, 6, 0);
        let unready =
            json!({"metadata": {"creationTimestamp": at(created).to_string()}, "status": {"conditions": []}});
        let scene = scene.pod("x", json!({})).pod("y", json!({})).pod("z", unready);
        let told = json!({"status": {"progressTimestamp": at(0).to_string()}});
        ["a", "b", "c"].into_iter().fold(scene, |scene, name| scene.asked(name, class, told.clone()))
    };
    let effects = |scene: &Scene, second: i64| {
        let decision = scene.at_case(|case| decide(case, at(second)));
        let effects = decision.effects.iter().map(words).filter(|it| !it.starts_with("reports"));
        effects.collect::<Vec<_>>()
    };
    let without_it = ["scales to 5 with Some((2, 5, 0))"];
    // It may only be slow.
    let slow = asked(DEPLOYMENT_CLASS, 0);
    assert_eq!((effects(&slow, 299), &*effects(&slow, 300)), (vec![], &without_it.map(str::to_owned)[..]));
    // Nor where the Deployment has lost its turn: two go for those that are there, and only the third is left to the eviction API.
    assert_eq!(effects(&asked(REPLICA_SET_CLASS, 0), 300), without_it);
    let late = effects(&asked(REPLICA_SET_CLASS, 100), 300);
    let left = "completes c: Deployment web has no available replacement of the pod (z is not ready): it is left to the eviction API";
    assert_eq!(late, ["scales to 5 with Some((2, 5, 0))", left]);
}

#[test]
fn waiting_for_min_ready_seconds_is_progress_and_readiness_that_comes_and_goes_is_not() {
    let told = json!({"metadata": {"creationTimestamp": at(-7_200).to_string()}, "status": {
        "progressTimestamp": at(-600).to_string(), "message": "Deployment web: a waits until x is available, which is ready, and not yet for minReadySeconds",
    }});
    let scene = |ready: i64, min_ready: u32| {
        let new = json!({"metadata": {"creationTimestamp": at(-6_000).to_string()}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": at(-ready).to_string()},
        ]}});
        Scene::new(1)
            .with(|it| it["spec"]["minReadySeconds"] = min_ready.into())
            .preferred("a", i32::MIN)
            .surge(1, 2, 2, 0)
            .pod("x", new)
            .asked("a", DEPLOYMENT_CLASS, told.clone())
    };
    let progress = |scene: &Scene, moved: i64| {
        let decision = scene.at_case(|case| decide(&Case { moved: at(moved), ..*case }, at(1)));
        decision.effects.iter().any(|it| matches!(it, Effect::Report { report, .. } if report.progress))
    };
    assert!(progress(&scene(700, 1200), -700));
    let mut handed = scene(700, 1200);
    let new = samples::hand_over_pod(
        "n",
        "web-1",
        "r-a",
        json!({"metadata": {"creationTimestamp": at(-6_000).to_string()},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-700).to_string()}]}}),
    );
    handed.pods.retain(|key, _| &*key.name == "a");
    handed = Scene { strategy: Strategy::HandOver, handed: vec![new], ..handed }.with(|it| {
        it["metadata"]["labels"] = Value::Null;
        it["spec"]["replicas"] = 1.into();
    });
    assert!(progress(&handed, -700));
    // More were ready than ever before half an hour ago, and not since.
    assert!(!progress(&scene(700, 1200), -1_800));
}

#[test]
fn an_autoscaler_does_not_try_once_more_what_its_deployment_has_tried() {
    let classes = [DEPLOYMENT_CLASS, REPLICA_SET_CLASS, HORIZONTAL_POD_AUTOSCALER_CLASS];
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 2, "of": "web"});
    let surged = |max_surge: u32, order: &[&str]| {
        Scene::new(1)
            .with(|it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = max_surge.into())
            .preferred("a", i32::MIN)
            .pending("b")
            .autoscaler(2, 5, Some(raised.clone()))
            .surge(1, 2, 2, 0)
            .asked("a", HORIZONTAL_POD_AUTOSCALER_CLASS, turns(order, false))
    };
    let completes = |scene: &Scene| scene.effects().iter().any(|it| it.starts_with("completes a"));
    assert!(completes(&surged(1, &classes)));
    // It is asked before the Deployment, or the Deployment itself cannot.
    let autoscaler_first = [HORIZONTAL_POD_AUTOSCALER_CLASS, DEPLOYMENT_CLASS, REPLICA_SET_CLASS];
    assert!(!completes(&surged(1, &autoscaler_first)));
    assert!(!completes(&surged(0, &classes)));
    // The other way round the Deployment goes on with it, and gives up soon.
    let goes_on = |since: i64| {
        let mut turn = turns(&autoscaler_first, false);
        turn["status"]["progressTimestamp"] = at(since).to_string().into();
        completes(&surged(1, &autoscaler_first).asked("a", DEPLOYMENT_CLASS, turn))
    };
    assert!(!goes_on(-298));
    assert!(goes_on(-299));
    // Handing over is one more way to try it, unless the new pod has come by now.
    let handed = |with: Value| {
        Scene { strategy: Strategy::HandOver, ..Scene::new(1) }
            .preferred("a", i32::MIN)
            .handed("n", "a", with)
            .autoscaler(2, 5, None)
            .asked("a", HORIZONTAL_POD_AUTOSCALER_CLASS, turns(&classes, false))
    };
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    says(&handed(not_ready), &["completes a: Deployment web has surged for it already, and it did not help"]);
    says(&handed(json!({})), &["completes a: Deployment web: a goes now"]);
}

#[test]
fn a_deployment_with_a_surge_surges_unless_it_says_itself_that_it_does_not() {
    let strategy = |own: Option<&str>, max_surge: &str, max_unavailable: &str| {
        let own = own.map(|own| json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: own}));
        let update = json!({"maxSurge": max_surge, "maxUnavailable": max_unavailable});
        let scene = Scene::new(3).with(|it| {
            it["metadata"]["annotations"] = own.into();
            it["spec"]["strategy"]["rollingUpdate"] = update;
        });
        scene.at_case(|case| strategy_of(case.deployment, case.autoscaler, Strategy::MaxUnavailable))
    };
    let own = Some("MaxUnavailable");
    assert_eq!(strategy(None, "25%", "50%"), Strategy::Default, "its namespace asks for it");
    assert_eq!(strategy(own, "25%", "50%"), Strategy::MaxUnavailable);
    assert_eq!(strategy(own, "25%", "25%"), Strategy::Default, "that is nobody");
    assert_eq!(strategy(None, "0%", "50%"), Strategy::MaxUnavailable);
    // The Deployment controller takes one where neither is anybody.
    assert_eq!(strategy(own, "0%", "25%"), Strategy::MaxUnavailable);
    // The surge itself does not count: otherwise it would be taken back as soon as it is there.
    let surged = |scene: Scene| {
        let surged = scene.with(|it| {
            it["metadata"]["annotations"] = json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: own});
            it["spec"]["strategy"]["rollingUpdate"] = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
        });
        surged.at_case(|case| strategy_of(case.deployment, case.autoscaler, Strategy::MaxUnavailable))
    };
    assert_eq!(surged(Scene::new(4).surge(1, 4, 4, 0)), Strategy::Default);
    let raised = json!({"by": 1, "minBy": 1, "minReplicas": 4, "of": "web"});
    assert_eq!(surged(Scene::new(4).autoscaler(4, 5, Some(raised))), Strategy::Default);
}

#[test]
fn an_estimate_is_taken_back_where_none_can_be_made() {
    let told = json!({"status": {
        "message": "Deployment web: a waits until 1 more pod is there", "progressTimestamp": at(-60).to_string(),
        "expectedInterceptorFinishTime": at(30).to_string(),
    }});
    let surged = || Scene::new(2).preferred("a", i32::MIN).surge(1, 3, 3, 0);
    let has_none = |scene: Scene| {
        let effects = scene.asked("a", DEPLOYMENT_CLASS, told.clone()).decide().effects;
        effects.iter().find_map(|effect| match effect {
            Effect::Report { report, .. } => Some(report.has_no_estimate),
            _ => None,
        })
    };
    assert_eq!(has_none(surged().pending("c")), Some(true));
    let starts = json!({"status": {"phase": "Pending", "conditions": []}});
    assert_eq!(has_none(surged().pod("c", starts)), Some(false));
}

#[test]
fn that_a_pod_is_ready_again_is_no_progress() {
    let told = json!({"metadata": {"creationTimestamp": at(-7_200).to_string()}, "status": {
        "message": "Deployment web: a waits until x is available, which does not start: CrashLoopBackOff",
        "progressTimestamp": at(-60).to_string(),
    }});
    let reports = |created: i64| {
        let new = json!({
            "metadata": {"creationTimestamp": at(created).to_string()},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(-2).to_string()}]},
        });
        let scene = Scene::new(2).preferred("a", i32::MIN).pod("n", new).surge(1, 3, 3, 0);
        // Another one is down, so that it does not go.
        let scene = scene.pod("b", json!({"status": {"conditions": []}}));
        let effects = scene.asked("a", DEPLOYMENT_CLASS, told.clone()).decide().effects;
        effects.iter().any(|effect| matches!(effect, Effect::Report { report, .. } if report.progress))
    };
    assert!(reports(-1_000));
    // It came half an hour ago, and may have been ready before; or it was there already.
    assert!(!reports(-2_000));
    assert!(!reports(-7_300));
}

#[test]
fn pods_of_the_lowest_deletion_cost_are_left_to_the_eviction_api() {
    let lowest = || json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}}});
    let asked = |scene: Scene| scene.asked("a", DEPLOYMENT_CLASS, json!({}));
    says(
        &asked(Scene::new(2).pod("b", lowest())),
        &["completes a: Deployment web has pods of the lowest deletion cost, such as b"],
    );
    // One that is asked itself may have it.
    says(&asked(Scene::new(2).pod("a", lowest())), &["scales to 3", "prefers a", "reports a"]);
}

#[test]
fn an_annotation_that_came_back_from_a_replica_set_is_removed() {
    let annotated = |manager: &'static str, replicas: u32| {
        let text = serde_json::to_string(&Surge { by: 1, replicas, reverted: 0 }).unwrap();
        let fields =
            json!({"f:metadata": {"f:annotations": {"f:evictionrequest.coordination.k8s.io/surge": {}}}});
        move |it: &mut Value| {
            it["metadata"]["annotations"] = json!({SURGE_ANNOTATION: text});
            it["metadata"]["managedFields"] = json!([{"manager": manager, "fieldsV1": fields}]);
        }
    };
    for replicas in [2, 3] {
        let copied = Scene::new(replicas).with(annotated("kubectl-rollout", 3));
        let unknown = format!("scales to {replicas} with None");
        says(&copied, &[&unknown, "tells UnknownSurge"]);
        // The surge that pods need overwrites it, and nobody has to guess what it was.
        let more = format!("scales to {}", replicas + 1);
        let asked = copied.asked("a", DEPLOYMENT_CLASS, json!({}));
        says(&asked, &[&more, "prefers a", "reports a", "tells UnknownSurge"]);
    }
    let new = || Scene::new(2).pod("c", json!({})).preferred("a", i32::MIN);
    let surged = new().surge(1, 3, 3, 0).with(annotated("kubectl-rollout", 3));
    says(&surged.asked("a", DEPLOYMENT_CLASS, json!({})), &["completes a"]);
    // Somebody has removed the label, and the annotation is the manager's own: it counts.
    let surged = || Scene::new(3).preferred("c", i32::MIN).with(annotated(INTERCEPTOR_FIELD_MANAGER, 3));
    says(&surged(), &["scales to 2 with None", "tells SurgeTakenBack"]);
    let labelled = |it: &mut Value| it["metadata"]["labels"] = json!({SURGE_LABEL: "nonsense"});
    says(&surged().with(labelled), &["scales to 2 with None", "tells SurgeTakenBack"]);
    let asked =
        new().with(annotated(INTERCEPTOR_FIELD_MANAGER, 3)).with(|it| it["spec"]["replicas"] = 3.into());
    says(&asked.asked("a", DEPLOYMENT_CLASS, json!({})), &["completes a"]);
}

#[test]
fn a_label_that_somebody_else_has_written_takes_no_replica_away() {
    let labelled =
        |label: &'static str| move |it: &mut Value| it["metadata"]["labels"] = json!({SURGE_LABEL: label});
    for forged in ["2-2-0", "7-2-0", "nonsense", "2-2-0-1", ""] {
        says(&Scene::new(2).with(labelled(forged)), &["scales to 2 with None", "tells UnknownSurge"]);
    }
    // Others have counted.
    says(&Scene::new(2).with(labelled("1-4-0")), &["scales to 2 with None"]);
    // The surge that pods need overwrites it.
    let asked = Scene::new(2).with(labelled("nonsense")).asked("a", DEPLOYMENT_CLASS, json!({}));
    says(&asked, &["scales to 3 with Some((1, 3, 0))", "prefers a", "reports a", "tells UnknownSurge"]);
}

#[test]
fn what_can_be_told_before_any_pod_is_asked_is_what_is_decided_then() {
    let by =
        |scene: Scene, strategy: Strategy| scene.at_case(|case| would_surge_by(case.deployment, strategy));
    assert_eq!(by(Scene::new(3), Strategy::Default), Some(1));
    assert_eq!(by(Scene::new(3), Strategy::HandOver), Some(1));
    assert_eq!(by(Scene::new(3), Strategy::Off), None);
    assert_eq!(by(Scene::new(3), Strategy::MaxUnavailable), Some(1));
    let part = |part: &'static str| {
        Scene::new(5).with(move |it| it["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = part.into())
    };
    // Of what its owner wants, and not of what it has for now.
    assert_eq!(by(part("25%"), Strategy::Default), Some(2));
    assert_eq!(by(part("25%").surge(1, 5, 5, 0), Strategy::Default), Some(1));
    assert_eq!(by(part("0%"), Strategy::Default), None);
    for (change, is_on) in [
        (json!({"metadata": {"deletionTimestamp": at(0).to_string()}}), false),
        (json!({"spec": {"strategy": {"type": "Recreate"}}}), false),
        (json!({"spec": {"paused": true}}), true),
        (
            json!({"spec": {"template": {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}}}}}),
            false,
        ),
        (json!({"spec": {"paused": true}, "status": {"updatedReplicas": 1}}), false),
    ] {
        let scene = Scene::new(3).with(|it| samples::merge(it, change.clone()));
        assert_eq!(by(scene, Strategy::Default).is_some(), is_on, "{change}");
    }
    assert_eq!(by(Scene::new(3).surge(0, 0, 3, TRIES), Strategy::Default), None);
    assert_eq!(by(Scene::new(3).surge(0, 0, 3, TRIES), Strategy::HandOver), Some(1));
}
