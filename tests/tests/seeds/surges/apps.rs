//! The Deployments that surge, and their autoscalers.

use anyhow::Result;
use serde_json::{Value, json};
use usher_api::names::{
    EVICTION_REQUEST_STRATEGY_ANNOTATION, INTERCEPTOR_ANNOTATION_PREFIX, INTERCEPTOR_PRIORITY_ANNOTATION,
    POD_DELETION_COST_ANNOTATION,
};
use usher_tests::living::{DEPLOYMENTS, Living, template, workload};

const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
pub(super) const READY_DELAY: &str = "cluster-simulator.dev/ready-delay";
const START_DELAY: &str = "cluster-simulator.dev/start-delay";
/// The class of an interceptor that is not ours.
pub(super) const FOREIGN_CLASS: &str = "foreign.example.com";

/// How many pods its owner wants, by how many it may surge, and how long they take to start.
pub(super) struct App {
    pub(super) name: &'static str,
    pub(super) replicas: u64,
    pub(super) surge: u64,
    start: &'static str,
    /// A budget that lets nobody evict any.
    is_kept: bool,
    /// So many of its pods may be missing.
    missing: u64,
}

const fn app(name: &'static str, replicas: u64, surge: u64) -> App {
    App { name, replicas, surge, start: "2s", is_kept: true, missing: 0 }
}

/// Nobody changes these, so that they never have fewer ready pods, nor more than the surge allows.
pub(super) const STEADY: [App; 4] = [app("one", 1, 1), app("three", 3, 1), AUTO, FOREIGN];
/// It has an autoscaler.
pub(super) const AUTO: App = app("auto", 2, 1);
/// Somebody else has a turn for its pods.
pub(super) const FOREIGN: App = app("foreign", 3, 1);
/// Rolled out meanwhile.
pub(super) const ROLLED_OUT: App = app("ten", 10, 3);
/// Somebody scales it.
pub(super) const SCALED: App = app("scaled", 4, 2);
/// A tool sets it back.
pub(super) const RESET: App = App { is_kept: false, ..app("reset", 2, 1) };
/// A tool replaces its autoscaler whole.
pub(super) const REPLACED: App = App { is_kept: false, ..app("replaced", 2, 1) };
/// One by one they take longer than the deadline, and maintenances ask for them in waves that overlap. Only the surge protects them.
pub(super) const SLOW: App = App { is_kept: false, start: "4m", ..app("slow", 20, 1) };
/// One of its new pods never gets ready, and where that goes another one. One of those that leave is evicted after its deadline, and the
/// new one may stay in its place.
pub(super) const UNREADY: App = App { is_kept: false, start: "10s", missing: 1, ..app("unready", 8, 3) };
/// It does not surge: so many may be unavailable.
pub(super) const REDUCED: App = App { is_kept: false, missing: 2, ..app("reduced", 5, 0) };
/// Nobody may mark the pods of [`REDUCED`] for their ReplicaSet, which its pods do not need.
pub(super) async fn refuse_marks(living: &Living) -> Result<()> {
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]});
    let unmarked = format!(
        "object.metadata.?labels['app'].orValue('') != '{}' || \
         !('{POD_DELETION_COST_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))",
        REDUCED.name
    );
    living.refuse_unless("marks", rule, &unmarked).await
}
/// Its autoscaler follows a load, down to so many.
pub(super) const LOADED: App = app("loaded", 2, 1);
pub(super) const MOST_LOADED: u64 = 6;
/// Its pods go down, and come back.
pub(super) const DOWN: App = App { is_kept: false, ..app("down", 4, 2) };

/// Those with autoscalers, from as many replicas as they have to so many.
pub(super) const AUTOSCALED: [(App, u64); 3] =
    [(AUTO, AUTO.replicas), (REPLACED, REPLACED.replicas), (LOADED, MOST_LOADED)];

/// What may differ from seed to seed.
#[derive(Default)]
pub(super) struct Variant {
    pub(super) hands_over: bool,
    /// Its limits are written as percentages, which come to the same for the replicas that its owner wants.
    is_percent: bool,
    /// The priority of an interceptor of somebody else.
    foreign: Option<u16>,
}

impl Variant {
    pub(super) fn choose(app: &App, choice: &mut fastrand::Rng) -> Self {
        let has_foreign = app.name == FOREIGN.name || (app.name == AUTO.name && choice.bool());
        // Before the controllers of Deployments and ReplicaSets, or after them.
        let foreign = choice.choice([10_500, 9_500]).filter(|_| has_foreign);
        Self { hands_over: app.surge > 0 && choice.bool(), is_percent: choice.bool(), foreign }
    }
}

impl App {
    pub(super) fn path(&self) -> String {
        format!("{DEPLOYMENTS}/{}", self.name)
    }

    pub(super) fn autoscaler(&self) -> String {
        format!("{AUTOSCALERS}/{}", self.name)
    }

    /// So many are ready at any time.
    pub(super) fn least(&self) -> u64 {
        self.replicas - self.missing
    }

    /// So many are available in the end, where its owner wants so many.
    pub(super) fn least_in_the_end(&self, replicas: u64) -> u64 {
        if self.name == UNREADY.name { replicas - self.missing } else { replicas }
    }

    fn limit(&self, pods: u64, variant: &Variant) -> Value {
        let percent = pods * 100 / self.replicas;
        if variant.is_percent { json!(format!("{percent}%")) } else { json!(pods) }
    }

    pub(super) async fn create(&self, living: &Living, variant: &Variant) -> Result<()> {
        let unavailable = if self.surge == 0 { self.missing } else { 0 };
        let limits = json!({
            "maxSurge": self.limit(self.surge, variant), "maxUnavailable": self.limit(unavailable, variant),
        });
        let spec = json!({"replicas": self.replicas, "strategy": {"rollingUpdate": limits}});
        let mut deployment = workload("Deployment", self.name, spec);
        let strategy = match self.surge {
            0 => Some("MaxUnavailable"),
            _ => variant.hands_over.then_some("HandOver"),
        };
        let strategy = strategy.map(|strategy| json!({EVICTION_REQUEST_STRATEGY_ANNOTATION: strategy}));
        deployment["metadata"]["annotations"] = strategy.into();
        // There is room on every node.
        deployment["spec"]["template"] = template(self.name, "100m");
        let mut annotations = json!({START_DELAY: self.start});
        if let Some(priority) = variant.foreign {
            annotations[format!("{INTERCEPTOR_ANNOTATION_PREFIX}{FOREIGN_CLASS}")] =
                json!(format!("{priority}/other"));
        }
        deployment["spec"]["template"]["metadata"]["annotations"] = annotations;
        living.create(DEPLOYMENTS, &deployment).await?;
        if self.is_kept {
            living.budget(self.name, self.name, json!({"maxUnavailable": 0})).await?;
        }
        living.rolled_out(self.name).await.map(drop)
    }

    /// An autoscaler over it, whose interceptor is above the Deployment's, or below it.
    pub(super) async fn scale_within(
        &self,
        most: u64,
        living: &Living,
        choice: &mut fastrand::Rng,
    ) -> Result<()> {
        let annotations = choice.bool().then(|| json!({INTERCEPTOR_PRIORITY_ANNOTATION: "11000"}));
        let autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": self.name, "annotations": annotations},
            "spec": {
                "minReplicas": self.replicas, "maxReplicas": most,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
            },
        });
        living.create(AUTOSCALERS, &autoscaler).await.map(drop)
    }
}
