//! The commands of node maintenance, on the living embedded cluster with the controllers at work, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use usher_cli::Environment;
use usher_tests::living::{DAEMON_SETS, Living, NODES, PODS, bare_pod, workload};
use usher_tests::maintenances::{MAINTENANCES, Scene};
use usher_tests::requests::REQUESTS;
use usher_tests::typed::{self, Printed};

mod many_nodes;

async fn usher(scene: &Scene, line: &str) -> Printed {
    typed::usher(line, &scene.environment()).await.unwrap()
}

async fn maintenances(scene: &Scene) -> Vec<Value> {
    scene.get(MAINTENANCES).await.unwrap()["items"].as_array().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn nodes_are_drained_followed_shown_and_given_back() {
    let scene = Scene::new(6).await.unwrap();
    scene.deployment("web", 10, 9).await.unwrap();
    let pods = scene.pods_on("n1").await.unwrap().len() + scene.pods_on("n2").await.unwrap().len();
    let drained = usher(&scene, "drain n2 n1 --reason kernel").await;
    assert_eq!(drained.code(), 0, "{drained:?}");
    let first = "maintenance drain-n1-and-1-more created: it drains n1, n2\n";
    assert!(drained.out.starts_with(first), "{drained:?}");
    let last = "when the work is done, uncordon with: usher maintenance complete drain-n1-and-1-more\n";
    assert!(drained.out.ends_with(last), "{drained:?}");
    assert!(drained.out.contains(&format!("2 nodes drained: {pods} pods left in ")), "{drained:?}");
    for node in ["n1", "n2"] {
        assert!(drained.out.contains(&format!("node/{node}: drained, ")), "{drained:?}");
        assert!(scene.pods_on(node).await.unwrap().is_empty());
    }
    assert!(
        drained.out.contains(" pods of budget web to become ready ("),
        "only one pod may be missing, so others wait: {drained:?}"
    );

    let list = usher(&scene, "maintenance list").await.out;
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["drain-n1-and-1-more", "Drained", "2", "2/2", "0", "0"], "{list}");
    assert_eq!(row.last(), Some(&"kernel"));
    let objects: Value = serde_json::from_str(&usher(&scene, "nm ls -o json").await.out).unwrap();
    assert_eq!(objects["items"][0]["spec"]["reason"], "kernel");
    let yaml: Value = serde_saphyr::from_str(&usher(&scene, "nm list -o yaml").await.out).unwrap();
    assert_eq!(yaml, objects);
    let name = usher(&scene, "nm list -o name").await.out;
    assert_eq!(name, "nodemaintenance.nodemaintenance.k8s.io/drain-n1-and-1-more\n");
    let described = usher(&scene, "maintenance describe drain-n1-and-1-more").await.out;
    for part in [
        "Maintenance drain-n1-and-1-more drains 2 nodes.\n",
        "Selects       n1, n2\n",
        "Drained       yes, since ",
        "12/12   ->     Static      priority up to 2147483647\n",
        "Normal   Drained   all pods have left 2 nodes\n",
    ] {
        assert!(described.contains(part), "{part}: {described}");
    }

    let completed = usher(&scene, "maintenance complete drain-n1-and-1-more").await;
    assert_eq!(
        (completed.code(), completed.out.as_str()),
        (
            0,
            "maintenance drain-n1-and-1-more moved to stage Complete\nnode/n1: uncordoned\nnode/n2: uncordoned\n"
        )
    );
    for node in ["n1", "n2"] {
        assert_eq!(scene.cordon(node).await.unwrap(), (false, None), "{node}");
    }
    let again = usher(&scene, "drain n1 n2 --wait=false").await;
    assert!(
        again.out.starts_with("maintenance drain-n1-and-1-more-2 created"),
        "the first is over: {again:?}"
    );
    assert!(
        again.err.contains("watch: usher maintenance describe drain-n1-and-1-more-2 --watch\n"),
        "{again:?}"
    );
    let watched = usher(&scene, "maintenance describe drain-n1-and-1-more-2 --watch").await;
    assert_eq!(watched.code(), 0, "{watched:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_blocked_says_by_what_and_is_cancelled() {
    let scene = Scene::new(2).await.unwrap();
    scene.deployment("web", 2, 2).await.unwrap();
    let waited = usher(&scene, "drain n1 --timeout 5m").await;
    assert_eq!(waited.code(), 3, "{waited:?}");
    assert!(waited.err.starts_with("not drained after 5m: "), "{waited:?}");
    assert!(
        waited.err.contains(
            "budget web has minAvailable 2 and 2 pods: scale up to 3 pods or more, or lower minAvailable\n"
        ),
        "{waited:?}"
    );
    let end = "maintenance drain-n1 continues\nwatch: usher maintenance describe drain-n1 --watch\ncancel: usher \
               maintenance cancel drain-n1\n";
    assert!(waited.err.ends_with(end), "{waited:?}");

    let (followed, cancelled) = tokio::join!(usher(&scene, "drain n1 --reason other"), async {
        sleep(Duration::from_secs(60)).await;
        usher(&scene, "maintenance cancel drain-n1").await
    });
    assert_eq!(followed.code(), 4, "{followed:?}");
    assert!(
        followed.out.starts_with("maintenance drain-n1 already drains these nodes: following it\n"),
        "{followed:?}"
    );
    assert!(followed.err.starts_with("warning: it keeps its own reason\n"), "{followed:?}");
    assert!(followed.err.contains("not drained: maintenance drain-n1 was "), "{followed:?}");
    assert_eq!(
        (cancelled.code(), cancelled.out.as_str()),
        (0, "maintenance drain-n1 is being deleted; it was in stage Drain\nnode/n1: uncordoned\n")
    );
    assert!(maintenances(&scene).await.is_empty());
    assert_eq!(scene.pods("web").await.unwrap().len(), 2);
    sleep(Duration::from_secs(60)).await;
    assert!(scene.get(REQUESTS).await.unwrap()["items"].as_array().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stages_go_forward_and_what_was_cordoned_stays_so() {
    let scene = Scene::new(4).await.unwrap();
    assert_eq!(usher(&scene, "cordon n2").await.out, "node/n2: cordoned\n");
    let started = usher(&scene, "maintenance start n1 n2 --name disks").await;
    assert_eq!(started.out, "maintenance disks created in stage Idle: n1, n2\n", "{started:?}");
    let refused = usher(&scene, "drain n1 n2").await;
    assert_eq!(
        refused.error(),
        "maintenance disks is planned for these nodes, in stage Idle: continue with usher maintenance drain disks, or give \
         this one a --name of its own"
    );
    let cordoned = usher(&scene, "maintenance cordon disks").await;
    assert_eq!(cordoned.out, "maintenance disks moved to stage Cordon; its nodes take no new pods\n");
    scene.until(&format!("{NODES}/n1"), |node| node["spec"]["unschedulable"] == true).await.unwrap();

    let overlapping = usher(&scene, "maintenance start -l kubernetes.io/hostname=n1 --stage drain").await;
    assert_eq!(overlapping.err.lines().next(), Some("note: maintenance disks holds n1 too, in stage Cordon"));
    assert!(
        overlapping.out.starts_with("maintenance drain-kubernetes-io-hostname-n1 created"),
        "{overlapping:?}"
    );
    let drained = usher(&scene, "maintenance drain disks").await;
    assert_eq!(drained.code(), 0, "{drained:?}");
    assert!(drained.out.contains("\n2 nodes drained: there was no pod to evict\n"), "{drained:?}");
    let back = usher(&scene, "maintenance cordon disks").await;
    assert!(
        back.error().starts_with("maintenance disks is in stage Drain, and stages never go back to Cordon: "),
        "{back:?}"
    );
    let described = usher(&scene, "maintenance describe disks").await.out;
    assert!(
        described.contains("Overlaps      drain-kubernetes-io-hostname-n1 in stage Drain, on n1\n"),
        "{described}"
    );

    let ended = usher(&scene, "maintenance cancel disks").await.out;
    assert!(
        ended.contains("node/n1: stays cordoned: drain-kubernetes-io-hostname-n1 holds it too\n"),
        "{ended}"
    );
    assert!(ended.contains("node/n2: stays cordoned, as it was before the maintenance\n"), "{ended}");
    assert_eq!(usher(&scene, "uncordon n2").await.out, "node/n2: uncordoned\n");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_held_is_not_uncordoned_by_accident() {
    let scene = Scene::new(3).await.unwrap();
    usher(&scene, "maintenance start n1 --name disks --stage cordon").await;
    scene.until(&format!("{NODES}/n1"), |node| node["spec"]["unschedulable"] == true).await.unwrap();
    let refused = usher(&scene, "uncordon n1 n2").await;
    assert_eq!((refused.code(), refused.out.as_str()), (1, "node/n2: already uncordoned\n"), "{refused:?}");
    assert_eq!(
        refused.err,
        "error: node/n1: maintenance disks holds it and would cordon it again: end that with usher maintenance complete disks\n"
    );
    let warned = usher(&scene, "cordon n1").await;
    assert!(
        warned.err.starts_with("warning: node/n1: maintenance disks holds it; it is uncordoned when"),
        "{warned:?}"
    );
    let forced = usher(&scene, "uncordon node/n1 --force").await;
    assert_eq!((forced.code(), forced.out.as_str()), (0, "node/n1: uncordoned\n"));
    assert!(forced.err.contains("which cordons it again"), "{forced:?}");
    scene.until(&format!("{NODES}/n1"), |node| node["spec"]["unschedulable"] == true).await.unwrap();
    assert_eq!(
        usher(&scene, "cordon -l kubernetes.io/hostname!=n1").await.out,
        "node/n2: cordoned\nnode/n3: cordoned\n"
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_drains_the_same_node_at_once_shares_a_maintenance() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 1).await.unwrap();
    let drains = futures::future::join_all((0..4).map(|_| usher(&scene, "drain n1"))).await;
    assert!(drains.iter().all(|drain| drain.code() == 0), "{drains:?}");
    let created = drains.iter().filter(|drain| drain.out.starts_with("maintenance drain-n1 created")).count();
    assert_eq!((created, maintenances(&scene).await.len()), (1, 1), "{drains:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_of_daemon_sets_are_said_to_be_all_that_is_left() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 2).await.unwrap();
    scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let waited = usher(&scene, "drain n1 --timeout 10m").await;
    assert_eq!(waited.code(), 3, "{waited:?}");
    assert!(
        waited.err.starts_with(
            "not drained after 10m: 1 pod remains on 1 node\nonly DaemonSet and static pods remain: daemons leave now, static pods if a \
             node agent runs there; --ignore-daemonsets waits for neither\n"
        ),
        "{waited:?}"
    );
    assert!(waited.err.contains("the pod belongs to a DaemonSet"), "{waited:?}");
    let line = "drain-n1: only DaemonSet and static pods remain: daemons leave now, static pods if a node agent runs there; --ignore-daemonsets waits \
                for neither\n";
    assert_eq!(waited.out.matches(line).count(), 1, "{waited:?}");
    let ended = usher(&scene, "drain n1 --ignore-daemonsets").await;
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(!ended.out.contains("only DaemonSet"), "{ended:?}");
    assert!(ended.out.contains("\n1 DaemonSet or static pod stays\n"), "{ended:?}");
}

/// Entries of the plan that were reached stay reached, whatever comes later.
#[tokio::test(start_paused = true)]
async fn ordinary_pods_are_waited_for_although_daemon_sets_are_ignored() {
    let scene = Scene::new(3).await.unwrap();
    scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let ended = usher(&scene, "drain n1 --ignore-daemonsets").await;
    assert_eq!(ended.code(), 0, "{ended:?}");
    // Somebody puts this one onto the node by hand, and it does not go.
    let mut kept = bare_pod("kept", "n1");
    kept["metadata"]["finalizers"] = json!(["example.com/keep"]);
    scene.create(PODS, &kept).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    let waited = usher(&scene, "drain n1 --ignore-daemonsets --timeout 5m").await;
    assert_eq!(waited.code(), 3, "{waited:?}");
    assert!(waited.err.starts_with("not drained after 5m: 2 pods remain on 1 node\n"), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_selects_no_node_any_more_is_not_drained() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 2, 2).await.unwrap();
    for node in ["n1", "n2", "n3"] {
        let labels = json!({"metadata": {"labels": {"pool": "blue"}}});
        scene.patch(&format!("{NODES}/{node}"), &labels).await.unwrap();
    }
    let (drained, ()) = tokio::join!(usher(&scene, "drain -l pool=blue --name blue"), async {
        sleep(Duration::from_secs(60)).await;
        for node in ["n1", "n2", "n3"] {
            let labels = json!({"metadata": {"labels": {"pool": null}}});
            scene.patch(&format!("{NODES}/{node}"), &labels).await.unwrap();
        }
    });
    assert_eq!(drained.code(), 4, "{drained:?}");
    let told = "not drained: no node is selected any more; those that were have been let go\nmaintenance blue continues\n";
    assert!(drained.err.contains(told), "{drained:?}");
    assert!(!drained.out.contains("uncordon with"), "{drained:?}");
}

/// What is said of a drain is believed only of the nodes that it is about.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins_a_drained_maintenance_is_waited_for() {
    let scene = Scene::new(3).await.unwrap();
    let labels = |pool: &str| json!({"metadata": {"labels": {"pool": pool}}});
    scene.patch(&format!("{NODES}/n1"), &labels("blue")).await.unwrap();
    assert_eq!(usher(&scene, "drain -l pool=blue --name blue").await.code(), 0);
    scene.create(PODS, &bare_pod("solo", "n2")).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    scene.patch(&format!("{NODES}/n2"), &labels("blue")).await.unwrap();
    let joined = usher(&scene, "drain -l pool=blue").await;
    assert_eq!(joined.code(), 0, "{joined:?}");
    assert!(joined.out.contains("\n2 nodes drained: "), "{joined:?}");
    assert!(scene.pods_on("n2").await.unwrap().is_empty());
}

/// A person who may do all but read what is below these paths.
fn without(scene: &Scene, hidden: fn(&str) -> bool) -> Environment {
    let inner = scene.witness.client("person");
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let inner = inner.clone();
        async move {
            if !hidden(request.uri().path()) {
                return inner.send(request).await;
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "that is forbidden", "metadata": {},
            });
            let body = kube::client::Body::from(status.to_string().into_bytes());
            Ok(http::Response::builder().status(403).body(body).unwrap())
        }
    });
    Environment { cluster: Some(kube::Client::new(service, "default")), ..scene.environment() }
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_list_eviction_requests_follows_a_drain_without_them() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 2).await.unwrap();
    let environment = without(&scene, |path| path.contains("/evictionrequests"));
    let note = "note: you may not list evictionrequests here, so which pods are being evicted and what they wait on is not \
                shown\n";
    let drained = typed::usher("drain n1", &environment).await.unwrap();
    assert_eq!((drained.code(), drained.err.as_str()), (0, note), "{drained:?}");
    assert!(drained.out.contains("\nn1 drained: 1 pod left in "), "{drained:?}");
    let described = typed::usher("maintenance describe drain-n1 --watch", &environment).await.unwrap();
    assert_eq!((described.code(), described.err.as_str()), (0, note), "{described:?}");
    let described = typed::usher("maintenance describe drain-n1", &environment).await.unwrap();
    assert!(described.err.starts_with("note: what the pods wait on is not shown: "), "{described:?}");
}

/// A team whose role names its nodes: kubectl needs no more for a node that is named.
#[tokio::test(start_paused = true)]
async fn whoever_may_not_list_nodes_cordons_and_drains_those_that_they_name() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 2).await.unwrap();
    let environment = without(&scene, |path| path == NODES);
    let cordoned = typed::usher("cordon n2", &environment).await.unwrap();
    assert_eq!((cordoned.code(), cordoned.out.as_str()), (0, "node/n2: cordoned\n"), "{cordoned:?}");
    let drained = typed::usher("drain n1", &environment).await.unwrap();
    assert_eq!((drained.code(), drained.err.as_str()), (0, ""), "{drained:?}");
    assert!(drained.out.contains("\nn1 drained: 1 pod left in "), "{drained:?}");
    let missing = typed::usher("cordon n9", &environment).await.unwrap();
    assert_eq!(missing.error(), "node \"n9\" is not in this cluster: see kubectl get nodes", "{missing:?}");
    let labels = typed::usher("cordon -l pool=blue", &environment).await.unwrap();
    assert!(labels.error().contains("forbidden"), "{labels:?}");
}

/// Somebody else's finalizer keeps the object, not the nodes.
#[tokio::test(start_paused = true)]
async fn a_cancelled_maintenance_with_a_foreign_finalizer_says_who_keeps_it() {
    let scene = Scene::new(2).await.unwrap();
    assert_eq!(usher(&scene, "maintenance start n1 --name disks --stage cordon").await.code(), 0);
    sleep(Duration::from_secs(30)).await;
    let disks = format!("{MAINTENANCES}/disks");
    let mut finalizers = scene.get(&disks).await.unwrap()["metadata"]["finalizers"].clone();
    finalizers.as_array_mut().unwrap().push(json!("example.com/stay"));
    scene.patch(&disks, &json!({"metadata": {"finalizers": finalizers}})).await.unwrap();
    let cancelled = usher(&scene, "maintenance cancel disks").await;
    let told = "maintenance disks is being deleted; it was in stage Cordon\nnode/n1: uncordoned\n\
                maintenance disks is gone once the owners of its finalizers remove them: example.com/stay\n";
    assert_eq!((cancelled.code(), cancelled.out.as_str()), (0, told), "{cancelled:?}");
    let described = usher(&scene, "maintenance describe disks").await.out;
    let headline = "Maintenance disks has released its nodes; it is gone once the owners of its finalizers remove them: \
                    example.com/stay.\n";
    assert!(described.starts_with(headline), "{described}");
}

#[tokio::test(start_paused = true)]
async fn limits_and_plans_are_handed_on() {
    let scene = Scene::new(6).await.unwrap();
    scene.deployment("web", 6, 4).await.unwrap();
    let file = std::env::temp_dir().join(format!("usher-plan-{}.yaml", std::process::id()));
    std::fs::write(&file, "- {podPriority: 1000, podSelector: {matchLabels: {app: web}}}\n").unwrap();
    let line = format!("drain n1 n2 n3 --max-nodes 1 --name rolling --plan {}", file.display());
    let drained = usher(&scene, &line).await;
    std::fs::remove_file(&file).unwrap();
    assert_eq!(drained.code(), 0, "{drained:?}");
    assert!(drained.out.contains("; cordoned, waiting for its wave\n"), "{drained:?}");
    let described = usher(&scene, "nm describe rolling").await.out;
    assert!(described.contains("Limit         1 at a time\n"), "{described}");
    assert!(described.contains("Default     priority up to 1000, app=web\n"), "{described}");
    let wide = usher(&scene, "nm list -o wide").await.out;
    assert!(wide.contains("n1, n2, n3   1 at a time   13/13   Drained\n"), "{wide}");
    let taken = usher(&scene, "drain n4 --name rolling").await;
    assert!(
        taken.error().starts_with("there is a maintenance \"rolling\" already, in stage Drain"),
        "{taken:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_touches_nothing() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 3).await.unwrap();
    let printed = usher(&scene, "drain n1 --dry-run").await;
    assert!(printed.ending.is_ok() && !printed.out.is_empty(), "{printed:?}");
    sleep(Duration::from_secs(60)).await;
    assert!(maintenances(&scene).await.is_empty());
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
    let begun = usher(&scene, "drain n1 --dry-run=none --wait=false").await;
    assert_eq!((begun.code(), maintenances(&scene).await.len()), (0, 1), "none is no dry run: {begun:?}");
}

/// As with kubectl, the server says what it thinks of it.
#[tokio::test(start_paused = true)]
async fn a_dry_run_on_the_server_is_refused_as_the_drain_itself_would_be() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 2).await.unwrap();
    let tried = usher(&scene, "drain n1 --dry-run=server").await;
    assert_eq!(tried.code(), 0, "{tried:?}");
    let begin = "maintenance drain-n1 created (server dry run): it would drain n1\n\nDry run: 1 node with 1 pod would be drained";
    assert!(tried.out.starts_with(begin), "{tried:?}");
    // The server alone knows how long a reason may be.
    let long = format!("drain n1 --reason {}", "x".repeat(2000));
    assert_eq!(usher(&scene, &format!("{long} --dry-run")).await.code(), 0);
    let refused = [usher(&scene, &format!("{long} --dry-run=server")).await, usher(&scene, &long).await];
    assert_eq!((refused[0].code(), refused[0].error()), (1, refused[1].error()), "{refused:?}");
    assert!(refused[0].error().contains("spec.reason"), "{refused:?}");
    assert!(maintenances(&scene).await.is_empty());

    assert_eq!(usher(&scene, "maintenance start n1 --name disks").await.code(), 0);
    let moved = usher(&scene, "maintenance drain disks --dry-run=server").await;
    assert_eq!(moved.code(), 0, "{moved:?}");
    let begin = "maintenance disks moved to stage Drain (server dry run)\n\nDry run: 1 node";
    assert!(moved.out.starts_with(begin), "{moved:?}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(maintenances(&scene).await[0]["spec"]["stage"], "Idle");
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_drain_that_was_completed_is_not_told_to_complete_it() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 2).await.unwrap();
    assert_eq!(usher(&scene, "drain n1").await.code(), 0);
    assert_eq!(usher(&scene, "maintenance complete drain-n1").await.code(), 0);
    let followed = usher(&scene, "maintenance describe drain-n1 --watch").await;
    assert_eq!(followed.code(), 0, "{followed:?}");
    let end = "\ndrained\nmaintenance drain-n1 is complete: it holds no nodes any more\n";
    assert!(followed.out.ends_with(end), "{followed:?}");
    assert!(!followed.out.contains("uncordon with"), "{followed:?}");
}

/// As `kubectl drain` guards them, with the same flags.
#[tokio::test(start_paused = true)]
async fn bare_pods_and_emptydir_data_are_drained_only_if_somebody_agrees() {
    let scene = Scene::new(3).await.unwrap();
    scene.create(PODS, &bare_pod("solo", "n1")).await.unwrap();
    let mut cache = bare_pod("cache", "n1");
    cache["spec"]["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    scene.create(PODS, &cache).await.unwrap();
    let refused = "2 pods would be lost or lose data, so nothing was changed; to drain them too, add --force \
                   --delete-emptydir-data\n  default/cache: no controller, will not be recreated (--force); emptyDir data \
                   is deleted with it (--delete-emptydir-data)\n  default/solo: no controller, will not be recreated (--force)";
    for line in ["drain n1", "maintenance start n1 --stage drain", "drain n1 --name mine --wait=false"] {
        let printed = usher(&scene, line).await;
        assert_eq!((printed.code(), printed.error().as_str()), (1, refused), "{line}");
    }
    assert!(
        usher(&scene, "drain n1 --force")
            .await
            .error()
            .contains("add --delete-emptydir-data\n  default/cache: ")
    );
    assert!(maintenances(&scene).await.is_empty());
    assert_eq!(scene.cordon("n1").await.unwrap(), (false, None));

    let forecast = usher(&scene, "drain n1 --dry-run --wait=false --timeout 5m --ignore-daemonsets").await;
    assert_eq!(forecast.code(), 1, "{forecast:?}");
    assert!(
        forecast.out.ends_with("Without --force --delete-emptydir-data the drain would be refused.\n"),
        "{forecast:?}"
    );
    let agreed = usher(&scene, "drain n1 --dry-run=client --force --delete-emptydir-data").await;
    assert_eq!(agreed.code(), 0, "{agreed:?}");

    // One that is only planned is guarded when it begins to drain.
    assert_eq!(usher(&scene, "maintenance start n1 --name disks").await.code(), 0);
    let refusal = usher(&scene, "maintenance drain disks").await;
    assert_eq!((refusal.code(), refusal.error().as_str()), (1, refused));
    assert_eq!(maintenances(&scene).await[0]["spec"]["stage"], "Idle");
    assert_eq!(usher(&scene, "maintenance drain disks --dry-run").await.code(), 1);
    let drained = usher(&scene, "maintenance drain disks --force --delete-emptydir-data --wait=false").await;
    assert_eq!(drained.code(), 0, "{drained:?}");
    // Who joins it loses nothing that is not lost already.
    let joined = usher(&scene, "drain n1").await;
    assert_eq!(joined.code(), 0, "{joined:?}");
    assert!(joined.out.contains("\nn1 drained: "), "{joined:?}");
    assert!(scene.pods_on("n1").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_sees_that_a_maintenance_drains_the_nodes_already() {
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 3).await.unwrap();
    assert_eq!(usher(&scene, "drain n1 n2 --wait=false").await.code(), 0);
    let again = usher(&scene, "drain n2 n1 --dry-run").await;
    assert_eq!(
        (again.code(), again.out.as_str()),
        (
            0,
            "Dry run: maintenance drain-n1-and-1-more already drains these nodes, so it would be followed and nothing \
             created.\nSee usher maintenance describe drain-n1-and-1-more\n"
        )
    );
    assert_eq!(maintenances(&scene).await.len(), 1);
    let other = usher(&scene, "drain n1 --dry-run").await;
    assert!(other.out.contains("maintenance drain-n1-and-1-more also drains 1 of these nodes"), "{other:?}");
}

/// What `| head -1` does to a drain.
#[tokio::test(start_paused = true)]
async fn a_drain_whose_output_nobody_reads_any_more_does_not_end_as_if_it_were_drained() {
    /// Takes so many lines.
    struct Head(usize);
    impl std::io::Write for Head {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0 == 0 {
                return Err(std::io::ErrorKind::BrokenPipe.into());
            }
            self.0 -= bytes.iter().filter(|byte| **byte == b'\n').count().min(self.0);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let scene = Scene::new(3).await.unwrap();
    scene.deployment("web", 3, 3).await.unwrap();
    for lines in [0, 1] {
        let (mut out, mut err) = (Head(lines), Vec::new());
        let ending = typed::usher_to("drain n1", &scene.environment(), &mut out, &mut err).await.unwrap();
        let why = ending.unwrap_err();
        assert_eq!((why.is_broken_pipe(), why.code()), (true, 141), "{why}");
        let told = String::from_utf8(err).unwrap();
        assert!(told.starts_with("output closed; maintenance drain-n1 continues\nwatch: "), "{told}");
        assert_eq!(maintenances(&scene).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_told() {
    let scene = Scene::new(2).await.unwrap();
    let none = usher(&scene, "maintenance list").await;
    assert_eq!((none.code(), none.err.as_str()), (0, "No node maintenances found.\n"));
    for (line, part) in [
        ("drain x n1 y", "nodes \"x\", \"y\" are not in this cluster: see kubectl get nodes"),
        ("drain -l pool=blue", "no node has the labels \"pool=blue\""),
        ("cordon x", "node \"x\" is not in this cluster"),
        ("drain n1 --plan no/such/file", "the plan no/such/file cannot be used: "),
        ("maintenance describe m", "there is no maintenance \"m\""),
        ("maintenance drain m", "there is no maintenance \"m\""),
        ("maintenance complete m", "there is no maintenance \"m\""),
        ("maintenance cancel m", "there is no maintenance \"m\""),
        ("maintenance list --watch -o json", "--watch prints tables"),
    ] {
        let printed = usher(&scene, line).await;
        assert!(printed.error().contains(part), "{line}: {printed:?}");
        let is_usage = line.contains("--plan") || line.contains("--watch");
        assert_eq!(printed.code(), if is_usage { 2 } else { 1 }, "{line}");
    }
    assert!(maintenances(&scene).await.is_empty());
    let all = usher(&scene, "drain n1 n2 --wait=false").await;
    assert!(all.err.starts_with("warning: spec.nodeSelector selects all 2 nodes of the cluster"), "{all:?}");
    for wrong in
        ["drain", "drain n1 -l a=b", "drain -l a=b=c", "drain N_1", "drain n1 --max-nodes 0", "nm start"]
    {
        assert!(typed::usher(wrong, &Environment::plain()).await.is_err(), "{wrong}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_definitions_it_is_said_what_to_install() {
    let scene = Scene::of(Living::start(1, 1).await.unwrap());
    for line in [
        "drain n1",
        "maintenance list",
        "maintenance list -w",
        "maintenance describe m",
        "maintenance start n1",
    ] {
        let error = usher(&scene, line).await.error();
        assert!(
            error.starts_with("Usher is not installed in this cluster, which knows no "),
            "{line}: {error}"
        );
    }
}
