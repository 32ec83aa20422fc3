//! The living cluster, in virtual time: workloads roll out, scale, move and end as on a real one.

use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;
use usher_tests::living::{
    BUDGETS, DAEMON_SETS, DEPLOYMENTS, JOBS, Living, NODES, PODS, STATEFUL_SETS, names, node, template,
    workload,
};

/// Long enough for anything here to settle.
const SETTLED: Duration = Duration::from_secs(60);

fn rolling(replicas: i64, surge: i64, unavailable: i64) -> Value {
    let strategy =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}});
    workload("Deployment", "web", json!({"replicas": replicas, "strategy": strategy}))
}

fn new_image() -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}})
}

#[tokio::test(start_paused = true)]
async fn a_rollout_never_drops_below_what_is_allowed_nor_exceeds_the_surge() {
    for (surge, unavailable) in [(1, 0), (0, 1), (2, 1), (4, 4)] {
        let living = Living::start(1, 3).await.unwrap();
        living.create(DEPLOYMENTS, &rolling(4, surge, unavailable)).await.unwrap();
        living.rolled_out("web").await.unwrap();
        let meter = living.meter("web");
        sleep(SETTLED).await;
        let since = living.cluster.now();
        living.patch(&format!("{DEPLOYMENTS}/web"), &new_image()).await.unwrap();
        let done = living.rolled_out("web").await.unwrap();
        let least = meter.minimum_since(since).unwrap();
        assert!(
            least >= (4 - unavailable) as usize,
            "{surge}/{unavailable}: {least} ready, {:?}",
            meter.counts()
        );
        let most = meter.counts().iter().map(|(_, count)| *count).max().unwrap();
        assert!(most <= (4 + surge) as usize, "{surge}/{unavailable}: {most} ready");
        let progressing =
            done["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Progressing");
        assert_eq!(progressing.unwrap()["reason"], "NewReplicaSetAvailable");
        sleep(SETTLED).await;
        let pods = living.pods("web").await.unwrap();
        assert_eq!(pods.len(), 4);
        assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "i:2"));
    }
}

#[tokio::test(start_paused = true)]
async fn recreate_ends_the_old_before_the_new_begins() {
    let living = Living::start(1, 2).await.unwrap();
    let deployment = workload("Deployment", "web", json!({"replicas": 2, "strategy": {"type": "Recreate"}}));
    living.create(DEPLOYMENTS, &deployment).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let meter = living.meter("web");
    sleep(SETTLED).await;
    living.patch(&format!("{DEPLOYMENTS}/web"), &new_image()).await.unwrap();
    sleep(SETTLED).await;
    living.rolled_out("web").await.unwrap();
    let counts: Vec<usize> = meter.counts().iter().map(|(_, count)| *count).collect();
    assert!(counts.contains(&0) && counts.ends_with(&[2]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_takes_the_cheapest_then_the_newest() {
    // A node for each, because a crowded node gives up pods before age counts.
    let living = Living::start(1, 5).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(3, 1, 0)).await.unwrap();
    living.rolled_out("web").await.unwrap();
    sleep(SETTLED).await;
    let old = living.pods("web").await.unwrap();
    living.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 5}})).await.unwrap();
    living.rolled_out("web").await.unwrap();
    // The two new ones went to the first nodes; of pods that share a node, one would go before the newer ones elsewhere.
    let (on_n3, elsewhere): (Vec<Value>, Vec<Value>) =
        old.into_iter().partition(|pod| pod["spec"]["nodeName"] == "n3");
    let cheap = names(&on_n3)[0];
    let cost = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}});
    living.patch(&format!("{PODS}/{cheap}"), &cost).await.unwrap();
    living.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 4}})).await.unwrap();
    sleep(SETTLED).await;
    let left = living.pods("web").await.unwrap();
    assert_eq!(left.len(), 4);
    assert!(!names(&left).contains(&cheap), "a low cost goes before all else");
    living.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 2}})).await.unwrap();
    sleep(SETTLED).await;
    let left = living.pods("web").await.unwrap();
    assert_eq!(names(&left), names(&elsewhere), "those that were ready longest stay");
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_and_never_breaks_the_budget() {
    let living = Living::start(1, 3).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(6, 1, 0)).await.unwrap();
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await.unwrap();
    living.rolled_out("web").await.unwrap();
    living
        .until(&format!("{BUDGETS}/web"), |budget| budget["status"]["disruptionsAllowed"] == 1)
        .await
        .unwrap();
    let meter = living.meter("web");
    sleep(SETTLED).await;
    let since = living.cluster.now();
    let on = |pods: &[Value], node: &str| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
    assert!(on(&living.pods("web").await.unwrap(), "n1") > 1, "there is something to drain");
    living.drain("n1").await.unwrap();
    sleep(SETTLED).await;
    let pods = living.pods("web").await.unwrap();
    assert_eq!((pods.len(), on(&pods, "n1")), (6, 0));
    assert_eq!(meter.minimum_since(since), Some(5), "{:?}", meter.counts());
    let status = living.get(&format!("{BUDGETS}/web")).await.unwrap()["status"].clone();
    assert_eq!((&status["disruptionsAllowed"], &status["currentHealthy"]), (&json!(1), &json!(6)));
    assert!(status["disruptedPods"].as_object().is_none_or(|pods| pods.is_empty()), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_on_a_cordoned_node_and_comes_back_there() {
    let living = Living::start(1, 2).await.unwrap();
    living.patch(&format!("{NODES}/n1"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    living.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    let ready =
        |set: &Value| set["status"]["numberReady"] == 2 && set["status"]["desiredNumberScheduled"] == 2;
    living.until(&format!("{DAEMON_SETS}/agent"), ready).await.unwrap();
    let pods = living.pods("agent").await.unwrap();
    let on_n1 = pods.iter().find(|pod| pod["spec"]["nodeName"] == "n1").unwrap();
    living.delete(&format!("{PODS}/{}", names(std::slice::from_ref(on_n1))[0])).await.unwrap();
    sleep(SETTLED).await;
    let again = living.pods("agent").await.unwrap();
    assert_eq!(again.len(), 2);
    assert!(
        again
            .iter()
            .any(|pod| pod["spec"]["nodeName"] == "n1" && pod["metadata"]["uid"] != on_n1["metadata"]["uid"])
    );
    living.create(NODES, &node("n3")).await.unwrap();
    living.until(&format!("{DAEMON_SETS}/agent"), |set| set["status"]["numberReady"] == 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_starts_in_order_and_restarts_in_reverse() {
    let mut living = Living::start(1, 3).await.unwrap();
    living
        .create(STATEFUL_SETS, &workload("StatefulSet", "db", json!({"replicas": 3, "serviceName": "db"})))
        .await
        .unwrap();
    let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
    let set = living.until(&format!("{STATEFUL_SETS}/db"), ready).await.unwrap();
    let acts = |trace: Vec<String>, verb: &str| -> Vec<String> {
        let mine = trace.into_iter().filter(|line| line.contains(" StatefulSet ") && line.contains(verb));
        mine.map(|line| line.split("/default/").nth(1).unwrap()[..4].to_string()).collect()
    };
    assert_eq!(acts(living.trace(), "create pods"), ["db-0", "db-1", "db-2"]);
    let pods = living.pods("db").await.unwrap();
    let started: Vec<&str> = pods.iter().map(|pod| pod["status"]["startTime"].as_str().unwrap()).collect();
    assert!(started[0] < started[1] && started[1] < started[2], "{started:?}");

    living.patch(&format!("{STATEFUL_SETS}/db"), &new_image()).await.unwrap();
    let updated = |now: &Value| {
        now["status"]["currentRevision"] == now["status"]["updateRevision"]
            && now["status"]["currentRevision"] != set["status"]["currentRevision"]
    };
    living.until(&format!("{STATEFUL_SETS}/db"), updated).await.unwrap();
    assert_eq!(acts(living.trace(), "delete pods"), ["db-2", "db-1", "db-0"]);
    let pods = living.pods("db").await.unwrap();
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "i:2"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_is_placed_when_there_is_room() {
    let living = Living::start(1, 2).await.unwrap();
    living.patch(&format!("{NODES}/n2"), &json!({"spec": {"unschedulable": true}})).await.unwrap();
    let pod = |name: &str| {
        let mut pod = template("big", "3");
        pod["metadata"]["name"] = name.into();
        pod
    };
    living.create(PODS, &pod("first")).await.unwrap();
    sleep(SETTLED).await;
    living.create(PODS, &pod("second")).await.unwrap();
    let waiting =
        living.until(&format!("{PODS}/second"), |pod| !pod["status"]["conditions"].is_null()).await.unwrap();
    let condition = &waiting["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("PodScheduled"), &json!("False"), &json!("Unschedulable"))
    );
    assert_eq!(
        condition["message"],
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    living.delete(&format!("{PODS}/first")).await.unwrap();
    let placed =
        living.until(&format!("{PODS}/second"), |pod| pod["status"]["phase"] == "Running").await.unwrap();
    assert_eq!(placed["spec"]["nodeName"], "n1");
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_its_end() {
    let living = Living::start(1, 2).await.unwrap();
    let mut pod = template("work", "1");
    pod["spec"]["restartPolicy"] = "Never".into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"},
        "spec": {"completions": 3, "parallelism": 2, "template": pod},
    });
    living.create(JOBS, &job).await.unwrap();
    let complete = |job: &Value| {
        job["status"]["conditions"]
            .as_array()
            .is_some_and(|list| list.iter().any(|c| c["type"] == "Complete"))
    };
    let done = living.until(&format!("{JOBS}/work"), complete).await.unwrap();
    assert_eq!(done["status"]["succeeded"], 3);
    let pods = living.pods("work").await.unwrap();
    assert!(pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn nothing_moves_on_a_lost_node_until_it_is_back() {
    let living = Living::start(1, 1).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(1, 1, 0)).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let status = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status, "reason": "Test", "message": ""}]}});
    living.patch(&format!("{NODES}/n1/status"), &status("Unknown")).await.unwrap();
    let pods = living.pods("web").await.unwrap();
    let pod = format!("{PODS}/{}", names(&pods)[0]);
    living.delete(&pod).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(!living.get(&pod).await.unwrap()["metadata"]["deletionTimestamp"].is_null(), "nobody ends it");
    living.patch(&format!("{NODES}/n1/status"), &status("True")).await.unwrap();
    sleep(SETTLED).await;
    assert!(living.get(&pod).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_given_up_its_pods_move_and_all_is_undone_when_it_is_back() {
    let living = Living::start(1, 3).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(3, 1, 0)).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let on = |pods: &[Value], node: &str| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
    living.life.kubelet_down("n1");
    sleep(Duration::from_secs(49)).await;
    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().find(|c| c["type"] == "Ready").map(|c| c["status"].clone()).unwrap_or_default()
    };
    assert_eq!(ready(&living.get(&format!("{NODES}/n1")).await.unwrap()), "True", "still within its grace");
    sleep(Duration::from_secs(2)).await;
    let lost = living.get(&format!("{NODES}/n1")).await.unwrap();
    assert_eq!(ready(&lost), "Unknown");
    let taints: Vec<String> = lost["spec"]["taints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()))
        .collect();
    let unreachable =
        ["NoSchedule", "NoExecute"].map(|effect| format!("node.kubernetes.io/unreachable:{effect}"));
    assert_eq!(taints, unreachable);
    sleep(Duration::from_secs(295)).await;
    assert_eq!(living.pods("web").await.unwrap().len(), 3, "tolerated for five minutes");
    sleep(Duration::from_secs(20)).await;
    let pods = living.pods("web").await.unwrap();
    assert_eq!((pods.len(), on(&pods, "n1")), (4, 1), "one is replaced, but nobody ends it");
    let stuck = pods.iter().find(|pod| pod["spec"]["nodeName"] == "n1").unwrap();
    let target =
        stuck["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget");
    assert_eq!(target.unwrap()["reason"], "DeletionByTaintManager");
    living.life.kubelet_up("n1");
    sleep(SETTLED).await;
    let back = living.get(&format!("{NODES}/n1")).await.unwrap();
    assert_eq!((ready(&back), &back["spec"]["taints"]), (json!("True"), &Value::Null));
    let pods = living.pods("web").await.unwrap();
    assert_eq!((pods.len(), on(&pods, "n1")), (3, 0));
    let events = living.get("/api/v1/namespaces/default/events").await.unwrap();
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect();
    for reason in [
        "Scheduled",
        "SuccessfulCreate",
        "ScalingReplicaSet",
        "Started",
        "NodeNotReady",
        "TaintManagerEviction",
        "NodeReady",
    ] {
        assert!(reasons.contains(&reason), "{reason} is not among {reasons:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_made_anew_elsewhere() {
    let living = Living::start(1, 2).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(2, 1, 0)).await.unwrap();
    living.rolled_out("web").await.unwrap();
    sleep(SETTLED).await;
    living.delete(&format!("{NODES}/n1")).await.unwrap();
    sleep(SETTLED).await;
    let pods = living.pods("web").await.unwrap();
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "n2" && pod["status"]["phase"] == "Running"));
}

#[tokio::test(start_paused = true)]
async fn the_meter_goes_on_when_its_watch_ends_and_an_idle_cluster_writes_only_heartbeats() {
    let mut living = Living::start(1, 2).await.unwrap();
    living.create(DEPLOYMENTS, &rolling(3, 1, 0)).await.unwrap();
    living.rolled_out("web").await.unwrap();
    let meter = living.meter("web");
    sleep(SETTLED).await;
    living.trace();
    sleep(Duration::from_secs(5 * 3600)).await;
    let mut written = living.trace();
    written.retain(|line| !line.contains("Heartbeat"));
    assert_eq!(written, Vec::<String>::new());
    living.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 2}})).await.unwrap();
    sleep(SETTLED).await;
    let counts: Vec<usize> = meter.counts().iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [3, 2]);
}

/// A day of deployments, a drain and a node more, and all that was written meanwhile.
async fn a_day(seed: u64) -> anyhow::Result<(Vec<String>, Value)> {
    let mut living = Living::start(seed, 4).await?;
    living.create(DEPLOYMENTS, &rolling(5, 1, 1)).await?;
    living.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await?;
    living
        .create(STATEFUL_SETS, &workload("StatefulSet", "db", json!({"replicas": 2, "serviceName": "db"})))
        .await?;
    living.rolled_out("web").await?;
    living.patch(&format!("{DEPLOYMENTS}/web"), &new_image()).await?;
    living.drain("n2").await?;
    living.create(NODES, &node("n5")).await?;
    living.patch(&format!("{DEPLOYMENTS}/web"), &json!({"spec": {"replicas": 3}})).await?;
    sleep(Duration::from_secs(24 * 3600)).await;
    let pods = living.get(PODS).await?;
    Ok((living.trace(), pods))
}

#[test]
fn the_same_seed_lives_the_same_life() {
    let live = |seed| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(a_day(seed)).unwrap()
    };
    let (trace, pods) = live(7);
    assert!(trace.len() > 100, "{}", trace.len());
    let (again, same) = live(7);
    for (at, (line, other)) in trace.iter().zip(&again).enumerate() {
        assert_eq!(line, other, "line {at}");
    }
    assert_eq!(trace.len(), again.len());
    assert_eq!(pods, same, "to the last byte");
    assert_ne!(trace, live(8).0, "another seed gives other names");
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pod_comes_back_while_its_static_pod_runs_and_goes_with_it() {
    let living = Living::start(1, 2).await.unwrap();
    let manifest = |image: &str| {
        json!({
            "metadata": {"name": "proxy", "labels": {"app": "proxy"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        })
    };
    living.life.run_static_pod("n1", manifest("i:1"));
    sleep(SETTLED).await;
    let path = format!("{PODS}/proxy-n1");
    let first = living.get(&path).await.unwrap();
    let phase = |pod: &Value| (pod["spec"]["nodeName"].clone(), pod["status"]["phase"].clone());
    assert_eq!(phase(&first), (json!("n1"), json!("Running")));
    assert!(first["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string());
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();

    living.delete(&path).await.unwrap();
    sleep(SETTLED).await;
    let second = living.get(&path).await.unwrap();
    assert_ne!(uid(&first), uid(&second), "it is made anew");
    assert_eq!(phase(&second), (json!("n1"), json!("Running")));

    living.life.kubelet_down("n1");
    living.life.run_static_pod("n1", manifest("i:2"));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(uid(&living.get(&path).await.unwrap()), uid(&second), "nobody is there to change it");
    living.life.kubelet_up("n1");
    sleep(SETTLED).await;
    let changed = living.get(&path).await.unwrap();
    assert_eq!(changed["spec"]["containers"][0]["image"], "i:2");

    living.delete(&format!("{NODES}/n1")).await.unwrap();
    sleep(SETTLED).await;
    assert!(living.get(&path).await.is_err(), "it goes with its node");
    living.create(NODES, &node("n1")).await.unwrap();
    sleep(SETTLED).await;
    assert_eq!(phase(&living.get(&path).await.unwrap()), (json!("n1"), json!("Running")));

    living.life.end_static_pod("n1", "default", "proxy");
    sleep(SETTLED).await;
    assert!(living.get(&path).await.is_err(), "it goes with its static pod");
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_an_hour_after_they_were_last_written() {
    let living = Living::start(1, 1).await.unwrap();
    let events = async || {
        let events = living.get("/api/v1/namespaces/default/events").await.unwrap();
        let names = events["items"].as_array().unwrap().iter();
        names.map(|event| event["reason"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(events().await, ["RegisteredNode"]);
    let orphan = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "lone", "labels": {"app": "lone"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "u", "controller": true},
            ],
        },
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "lone"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "lone"}}},
    });
    living.create(BUDGETS, &budget).await.unwrap();
    living.create(PODS, &orphan).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let now = events().await;
    for reason in ["RegisteredNode", "NoControllers", "CalculateExpectedPodCountFailed"] {
        assert!(now.iter().any(|is| is == reason), "{reason} is not among {now:?}");
    }
    sleep(Duration::from_secs(1801)).await;
    assert!(!events().await.iter().any(|reason| reason == "RegisteredNode"));
    living.delete(&format!("{BUDGETS}/lone")).await.unwrap();
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(events().await, Vec::<String>::new());
}
