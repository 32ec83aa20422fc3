//! Each right that `deploy/` gives to the agents of nodes is needed: one after the other is taken away, and something fails. On the embedded
//! cluster, in virtual time, with the role as it is checked in.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::time::Duration;

use embedded_apiserver::User;
use http::Method;
use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use usher_api::names::NODE_AGENT_ANNOTATION;
use usher_node_agent::agent::Beside;
use usher_node_agent::shutdown::{Options, Shutdown};
use usher_tests::living::NODES;
use usher_tests::manifests;
use usher_tests::rights::{Right, Roles};

use super::node_agent::{MAINTENANCES, MIRROR, Scene, clock};

const SOON: Duration = Duration::from_secs(120);
const NAMES_THE_AGENT: &str = "interceptor.evictionrequest.coordination.k8s.io/priority_kubelet.k8s.io";

/// What fails first without a right.
const NEEDED: [(&str, &str); 18] = [
    ("nodes list", "the node is marked"),
    ("nodes watch", "a static pod leaves"),
    ("nodes patch", "the node is marked"),
    ("pods list", "the node is marked"),
    ("pods watch", "a static pod that comes later names the agent"),
    ("pods patch", "a static pod names the agent"),
    ("pods delete", "a static pod leaves"),
    ("evictionrequests list", "the node is marked"),
    ("evictionrequests watch", "a static pod leaves"),
    ("evictionrequests/status patch", "a static pod leaves"),
    ("interceptorclasses intercept", "a static pod leaves"),
    ("nodemaintenances get", "a static pod leaves"),
    ("events create", "an event tells of it"),
    ("events patch", "the event is counted again"),
    ("nodes delete", "a notice becomes a maintenance"),
    ("nodemaintenances create", "a notice becomes a maintenance"),
    ("nodes get", "a notice becomes a maintenance"),
    ("nodemaintenances delete", "a maintenance of an earlier time is removed for a new one"),
];

struct Watched {
    scene: Scene,
    /// With the rights of an agent.
    client: kube::Client,
    _agent: JoinSet<()>,
}

impl Watched {
    async fn start(missing: Option<&Right>) -> Self {
        let name = missing.map_or("all".to_owned(), |(resource, verb)| format!("{resource}-{verb}"));
        let scene = Scene::start(&format!("rights-{}", name.replace('/', "-"))).await;
        roles().install(&scene.living, missing).await.unwrap();
        // By the strict choice agents are interceptors as all others.
        let policies = manifests::objects("strict/policies.yaml").unwrap();
        for policy in policies.iter().filter(|it| it["metadata"]["name"] == "usher-strict-interceptors") {
            scene.living.create(&manifests::collection(policy).unwrap(), policy).await.unwrap();
        }
        let account = User {
            name: "system:serviceaccount:usher-system:usher-node-agent".to_owned(),
            groups: vec!["system:serviceaccounts".to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        };
        let client = kube::Client::new(scene.living.cluster.service_as(account), "default");
        let agent = scene.agent_with(client.clone(), Beside::nothing());
        Self { scene, client, _agent: agent }
    }

    async fn becomes(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> bool {
        let deadline = Instant::now() + SOON;
        loop {
            let (code, object) = self.scene.living.send(Method::GET, path, &Value::Null).await.unwrap();
            if wanted(if code == 404 { &Value::Null } else { &object }) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// A maintenance comes and goes, and the static pod with it. Whether that happens.
    async fn leaves_and_comes_back(&self, maintenance: &str) -> bool {
        self.scene.drain(maintenance).await;
        if !self.becomes(MIRROR, Value::is_null).await {
            return false;
        }
        self.scene.drained(maintenance).await;
        let path = format!("{MAINTENANCES}/{maintenance}");
        self.scene.living.delete(&path).await.unwrap();
        self.becomes(MIRROR, |pod| pod["status"]["phase"] == "Running").await
            && self.becomes(&path, Value::is_null).await
    }

    /// What the agent is for, one thing after the other; the first that fails.
    async fn first_failure(&self) -> Option<&'static str> {
        macro_rules! goal {
            ($name:literal, $reached:expr) => {
                if !$reached {
                    return Some($name);
                }
            };
        }
        let is_marked = |node: &Value| node["metadata"]["annotations"][NODE_AGENT_ANNOTATION].is_string();
        goal!("the node is marked", self.becomes(&format!("{NODES}/n1"), is_marked).await);
        let names_it = |pod: &Value| pod["metadata"]["annotations"][NAMES_THE_AGENT].is_string();
        goal!("a static pod names the agent", self.becomes(MIRROR, names_it).await);
        let manifest = self.scene.folder.join("proxy.yaml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        std::fs::remove_file(&manifest).unwrap();
        assert!(self.becomes(MIRROR, Value::is_null).await);
        std::fs::write(&manifest, text).unwrap();
        goal!("a static pod that comes later names the agent", self.becomes(MIRROR, names_it).await);

        goal!("a static pod leaves", self.leaves_and_comes_back("first").await);
        let told = |count: u64| {
            move |list: &Value| {
                let mut events = list["items"].as_array().into_iter().flatten();
                events.any(|event| {
                    event["reason"] == "StaticPodReturned" && event["count"].as_u64() >= Some(count)
                })
            }
        };
        goal!("an event tells of it", self.becomes("/api/v1/events", told(1)).await);
        // The same news is not written more often.
        sleep(Duration::from_secs(600)).await;
        goal!("a static pod leaves again", self.leaves_and_comes_back("second").await);
        goal!("the event is counted again", self.becomes("/api/v1/events", told(2)).await);

        let options = Options {
            node: "n1".into(),
            boot: "this".into(),
            periods: Vec::new(),
            complete_after_boot: false,
            limit: None,
        };
        let clock = clock(&self.scene.living);
        let until = clock.now() + SignedDuration::from_secs(60);
        let shutdown = Shutdown { client: self.client.clone(), clock, options };
        goal!("a notice becomes a maintenance", shutdown.give_notice("spot", until).await.is_ok());
        self.scene.drained("shutdown-n1").await;
        goal!("it is known that the node is drained", shutdown.is_drained().await);
        let path = format!("{MAINTENANCES}/shutdown-n1");
        let done = json!({"spec": {"stage": "Complete"}});
        self.scene.living.patch(&path, &done).await.unwrap();
        let earlier = self.scene.living.get(&path).await.unwrap()["metadata"]["uid"].clone();
        goal!(
            "a maintenance of an earlier time is removed for a new one",
            shutdown.give_notice("spot", until + SignedDuration::from_secs(600)).await.is_ok()
                && self.becomes(&path, |it| it["metadata"]["uid"] != earlier).await
        );
        None
    }
}

fn roles() -> Roles {
    Roles::of(&["node-agent/role.yaml"]).unwrap()
}

/// On a thread and in a time of its own.
fn first_failure(missing: Option<Right>) -> Option<&'static str> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async { Watched::start(missing.as_ref()).await.first_failure().await })
}

#[test]
fn every_right_of_the_agents_is_needed() {
    roles().are_all_needed(&NEEDED, first_failure).unwrap();
}
