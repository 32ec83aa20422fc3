//! Drains, lists and descriptions as people read them.

use jiff::Timestamp;
use serde_json::{Value, json};
use usher_api::{NodeMaintenance, NodeMaintenanceStatus};
use usher_forecast::followed_drain::{is_without_nodes, lost_nodes, speaks_of};

use super::description::{MaintenanceFound, render};
use super::picture::{Said, drained, not_drained, picture};
use super::progress::{Progress, ending};
use super::rows::{Changes, table};
use crate::samples::{NOW, budget, maintenance, pod, request, world};
use crate::screen::Size;
use crate::world::{World, key_of};
use crate::{Ending, Environment};

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn size(width: usize) -> Size {
    Size { width, height: 50 }
}

fn with_status(mut maintenance: NodeMaintenance, status: Value) -> NodeMaintenance {
    maintenance.status = Some(serde_json::from_value(status).unwrap());
    maintenance
}

fn node_status(name: &str, message: &str) -> Value {
    let pending = i32::from(message != "Drained");
    json!({"nodeRef": {"name": name}, "drainMessage": message, "podsPendingEviction": pending})
}

fn drain_of(nodes: &[&str], messages: &[&str]) -> NodeMaintenance {
    let statuses: Vec<Value> =
        nodes.iter().zip(messages).map(|(node, message)| node_status(node, message)).collect();
    let status = json!({
        "nodes": nodes.len(), "nodeStatuses": statuses,
        "drainStatus": {"expectedFinishTime": "2026-01-01T12:05:00Z"},
    });
    with_status(maintenance("m", "Drain", nodes, json!({})), status)
}

fn daemon(name: &str, node: &str) -> Value {
    let mut pod = pod(name, node);
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet".into();
    pod["metadata"]["labels"]["app"] = "agent".into();
    pod
}

/// Two pods of a budget on `a` that block, one pod that is not asked; on `b` one that is gone, and one that terminates.
fn scene() -> (World, World) {
    let mut leaving = pod("web-5", "b");
    leaving["metadata"]["labels"] = json!({});
    let before = world(
        &[pod("web-1", "a"), pod("web-2", "a"), pod("web-3", "a"), pod("web-4", "b"), leaving.clone()],
        &[],
        &[],
    );
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:20Z".into();
    let pods = [pod("web-1", "a"), pod("web-2", "a"), pod("web-3", "a"), leaving];
    let after = world(&pods, &[request("web-1"), request("web-2"), request("web-5")], &[budget("web", 0)]);
    (before, after)
}

fn looked(maintenance: &NodeMaintenance, before: &World, after: &World) -> Progress {
    let mut progress = Progress::new("2026-01-01T11:58:00Z".parse().unwrap());
    progress.observe(maintenance);
    progress.recount_all(before, now());
    progress.recount_all(after, now());
    progress
}

#[test]
fn a_bar_for_each_node_shows_what_is_gone_and_what_is_in_the_way() {
    let maintenance = drain_of(&["a", "b", "c"], &["Evicting", "Evicting (limited by x)", "Drained"]);
    let (before, after) = scene();
    let progress = looked(&maintenance, &before, &after);
    let shown = picture(&maintenance, &progress, &Environment::plain(), size(100), now());
    let wanted = "\
m: 1 of 5 pods gone, 1 evicting, 2 blocked, 1 pending, 1 of 3 nodes drained, ETA 5m at best, after
  2m
  a   ×××××××××××××·······   0/3 gone   2 blocked, 1 pending   budget web: minAvailable 3 of 3 (2 pods)
  b   ██████████▒▒▒▒▒▒▒▒▒▒   1/2 gone   1 evicting             termination, 20s left
  c   ████████████████████   0/0 gone   drained
  most are blocked by: disruption budget web does not allow the pod to be evicted (2 pods:
    shop/web-1, shop/web-2); budget web has minAvailable 3 and 3 pods: scale up to 4 pods or more,
    or lower minAvailable
";
    assert_eq!(shown, wanted, "{shown}");
}

#[test]
fn eighty_columns_show_what_a_node_waits_on() {
    let maintenance = drain_of(&["a", "b", "c"], &["Evicting", "Evicting", "Drained"]);
    let (before, after) = scene();
    let progress = looked(&maintenance, &before, &after);
    let shown = picture(&maintenance, &progress, &Environment::plain(), size(80), now());
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    for line in [
        "  a   ××××××····   0/3 gone   budget web: minAvailable 3 of 3 (2 pods)\n",
        "  b   █████▒▒▒▒▒   1/2 gone   termination, 20s left\n",
        "  c   ██████████   0/0 gone   drained\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn an_eta_of_this_second_is_not_late() {
    let maintenance = drain_of(&["a"], &["Evicting"]);
    let all = [(key_of(&maintenance), maintenance)].into_iter().collect();
    let shown = |at: &str| table(&all, false, None, at.parse().unwrap());
    assert!(shown("2026-01-01T12:05:00Z").contains("   now   "), "{}", shown("2026-01-01T12:05:00Z"));
    assert!(shown("2026-01-01T12:05:02Z").contains("   2s late   "));
}

#[test]
fn of_many_nodes_the_busiest_are_shown() {
    let names: Vec<String> = (0..30).map(|number| format!("n{number:02}")).collect();
    let nodes: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut messages = vec!["Drained"; 30];
    messages[29] = "Evicting";
    let maintenance = drain_of(&nodes, &messages);
    let pods = world(&[pod("web-1", "n29")], &[request("web-1")], &[budget("web", 0)]);
    let progress = looked(&maintenance, &pods, &pods);
    let shown = picture(&maintenance, &progress, &Environment::plain(), size(200), now());
    assert!(shown.contains("\n  n29   ××××"), "{shown}");
    assert!(shown.contains("\n  and 10 more nodes: 10 drained, 0 not\n"), "{shown}");
    let low = Size { width: 200, height: 12 };
    let shown = picture(&maintenance, &progress, &Environment::plain(), low, now());
    assert!(shown.contains("\n  and 26 more nodes: 26 drained, 0 not\n"), "{shown}");
    let mut said = Said::default();
    let lines = said.lines(&maintenance, &progress, now());
    assert!(lines.starts_with("node/n00: drained, 0 pods gone\n"), "{lines}");
    assert!(
        lines.ends_with(
            "30 nodes: 29 drained, 0 of 1 pod gone, 1 blocked; disruption budget web does not allow the pod to be \
             evicted (1 pod)\n"
        ),
        "{lines}"
    );
    assert_eq!(said.lines(&maintenance, &progress, now()), "", "only what has changed is said");
}

#[test]
fn elsewhere_there_is_a_line_for_each_change() {
    let maintenance = drain_of(&["a", "b", "c"], &["Evicting", "Evicting", "Waiting for other."]);
    let (before, after) = scene();
    let mut said = Said::default();
    let mut progress = Progress::new(now());
    progress.observe(&maintenance);
    progress.recount_all(&before, now());
    assert_eq!(
        said.lines(&maintenance, &progress, now()),
        "node/a: 0 of 3 pods gone, 3 pending\nnode/b: 0 of 2 pods gone, 2 pending\n\
         node/c: 0 of 0 pods gone; Waiting for other.\n"
    );
    progress.recount_all(&after, now());
    assert_eq!(
        said.lines(&maintenance, &progress, now()),
        "node/a: 0 of 3 pods gone, 2 blocked, 1 pending; disruption budget web does not allow the pod to be evicted \
         (2 pods)\nnode/b: 1 of 2 pods gone, 1 evicting; the pod is terminating (1 pod)\n"
    );
    assert_eq!(said.lines(&maintenance, &progress, now()), "");
}

#[test]
fn a_node_that_waits_says_for_what() {
    for (message, wanted) in [
        ("Waiting for other.", "Waiting for other."),
        ("Waiting for m.", "waiting for the other nodes"),
        ("Cordoned", "cordoned, waiting for its wave"),
        ("To be cordoned", "To be cordoned"),
        ("Evicting", ""),
    ] {
        let maintenance = drain_of(&["a"], &[message]);
        let pods = world(&[pod("web-1", "a")], &[], &[]);
        let progress = looked(&maintenance, &pods, &pods);
        let shown = picture(&maintenance, &progress, &Environment::plain(), size(200), now());
        assert!(shown.trim_end().ends_with(format!("   1 pending   {wanted}").trim_end()), "{shown}");
    }
}

#[test]
fn a_maintenance_that_nobody_takes_up_is_told_of() {
    let maintenance = maintenance("m", "Drain", &["a"], json!({}));
    let progress = looked(&maintenance, &World::default(), &World::default());
    let lines = Said::default().lines(&maintenance, &progress, now());
    assert!(
        lines.starts_with("m: not started yet: check that the manager runs, with kubectl get pods -A"),
        "{lines}"
    );
    let early = Progress::new(now());
    assert_eq!(Said::default().lines(&maintenance, &early, now()), "");
}

#[test]
fn at_the_end_it_is_said_what_is_done_or_left() {
    let maintenance = drain_of(&["a", "b"], &["Drained", "Drained"]);
    let (before, after) = scene();
    let progress = looked(&maintenance, &before, &World::default());
    assert_eq!(
        drained(&maintenance, &progress, "usher", now()),
        "2 nodes drained: 5 pods left in 2m\nwhen the work is done, uncordon with: usher maintenance complete m\n"
    );
    let progress = looked(&maintenance, &before, &after);
    assert_eq!(
        not_drained(&maintenance, &progress, now()),
        "not drained after 2m: 4 pods remain on 2 nodes\n  \
           disruption budget web does not allow the pod to be evicted (2 pods: shop/web-1, shop/web-2); budget web has \
         minAvailable 3 and 3 pods: scale up to 4 pods or more, or lower minAvailable\n  \
           the pod is terminating (1 pod: shop/web-5); wait until its grace period ends; after that, check the kubelet of its node\n"
    );
    let daemons = world(&[daemon("agent-1", "a")], &[request("agent-1")], &[]);
    let progress = looked(&maintenance, &before, &daemons);
    let told = not_drained(&maintenance, &progress, now());
    assert!(told.contains("\nonly DaemonSet and static pods remain: daemons leave now"), "{told}");
    assert!(told.contains("keep the DaemonSet off the node"), "{told}");
    let shown = picture(&maintenance, &progress, &Environment::plain(), size(200), now());
    assert!(!shown.contains("ETA"), "nobody knows: {shown}");
}

/// A status of the node `a` with this condition Drained.
fn drained_status(status: &str, reason: &str, generation: Option<i64>) -> Value {
    let mut condition = json!({
        "type": "Drained", "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW,
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = generation.into();
    }
    json!({"nodes": 1, "nodeStatuses": [node_status("a", "Evicting")], "conditions": [condition]})
}

#[test]
fn a_drain_ends_drained_or_cancelled() {
    let condition = |status: &str| drained_status(status, "R", None);
    let of = |stage: &str| maintenance("m", stage, &["a"], json!({}));
    let mut deleted = of("Drain");
    deleted.metadata.deletion_timestamp = serde_json::from_value(json!(NOW)).unwrap();
    for (maintenance, wanted) in [
        (Some(of("Drain")), None),
        (Some(with_status(of("Drain"), condition("False"))), None),
        (Some(with_status(of("Drain"), condition("True"))), Some(Ending::Done)),
        (Some(with_status(of("Complete"), condition("True"))), Some(Ending::Done)),
        (Some(with_status(of("Complete"), condition("False"))), Some(Ending::Withdrawn)),
        (Some(deleted), Some(Ending::Withdrawn)),
        (None, Some(Ending::Withdrawn)),
    ] {
        let mut progress = Progress::new(now());
        assert_eq!(ending(maintenance.as_ref(), &progress), wanted, "{maintenance:?}");
        progress.ignores_daemons = true;
        assert_eq!(ending(maintenance.as_ref(), &progress), wanted, "{maintenance:?}");
    }
}

#[test]
fn a_drain_without_nodes_is_not_done() {
    let status = drained_status("False", "NoNodes", None);
    let maintenance = with_status(maintenance("m", "Drain", &["a"], json!({})), status);
    assert_eq!(ending(Some(&maintenance), &Progress::new(now())), Some(Ending::Withdrawn));
    assert!(is_without_nodes(&maintenance));
}

#[test]
fn a_drain_whose_nodes_lost_their_labels_ends_and_is_not_done() {
    let status = drained_status("False", "NodesLeft", None);
    let maintenance = with_status(maintenance("m", "Drain", &["a"], json!({})), status);
    assert_eq!(ending(Some(&maintenance), &Progress::new(now())), Some(Ending::Withdrawn));
    assert!(lost_nodes(&maintenance).is_some());
}

#[test]
fn what_was_said_before_the_last_change_does_not_end_a_drain() {
    let mut maintenance = maintenance("m", "Drain", &["a"], json!({}));
    maintenance.metadata.generation = Some(3);
    for (reason, status, wanted) in
        [("Drained", "True", Ending::Done), ("NoNodes", "False", Ending::Withdrawn)]
    {
        for (observed, wanted) in [(None, None), (Some(2), None), (Some(3), Some(wanted))] {
            let maintenance = with_status(maintenance.clone(), drained_status(status, reason, observed));
            assert_eq!(ending(Some(&maintenance), &Progress::new(now())), wanted, "{reason} {observed:?}");
        }
    }
}

#[test]
fn a_status_counts_only_for_the_nodes_that_are_selected() {
    let nodes = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let status = drain_of(&["a", "b"], &["Drained", "Drained"]).status.unwrap();
    assert!(speaks_of(&status, &nodes(&["b", "a"])));
    for others in [&["a"][..], &["a", "c"], &["a", "b", "c"], &[]] {
        assert!(!speaks_of(&status, &nodes(others)), "{others:?}");
    }
    let not_listed = NodeMaintenanceStatus { nodes: 3, ..status };
    assert!(speaks_of(&not_listed, &nodes(&["a", "b", "c"])), "there was no room for all names");
    assert!(speaks_of(&NodeMaintenanceStatus::default(), &[]));
}

#[test]
fn pods_of_daemon_sets_can_be_left_out_of_what_is_waited_for() {
    let reached = |types: &[&str], reason: &str| {
        let entries: Vec<_> = types.iter().map(|kind| json!({"podPriority": 1, "podType": kind})).collect();
        let mut status = drained_status("False", reason, None);
        status["drainStatus"] = json!({"reachedDrainTargets": entries});
        with_status(maintenance("m", "Drain", &["a"], json!({})), status)
    };
    let before = world(&[pod("web-1", "a"), daemon("agent-1", "a")], &[], &[]);
    let after = world(&[daemon("agent-1", "a")], &[], &[]);
    for (types, wanted) in [
        (&[][..], None),
        (&["Default"], None),
        (&["Default", "DaemonSet"], Some(Ending::Done)),
        (&["Default", "DaemonSet", "Static"], Some(Ending::Done)),
    ] {
        let maintenance = reached(types, "Draining");
        let mut progress = looked(&maintenance, &before, &after);
        assert_eq!(ending(Some(&maintenance), &progress), None, "{types:?}");
        progress.ignores_daemons = true;
        assert_eq!(ending(Some(&maintenance), &progress), wanted, "{types:?}");
    }
    // The plan has come to them, but another pod has come, or the node takes pods.
    let maintenance = reached(&["Default", "DaemonSet"], "Draining");
    let mut progress = looked(&maintenance, &before, &before);
    progress.ignores_daemons = true;
    assert_eq!(ending(Some(&maintenance), &progress), None);
    let told = drained(&maintenance, &progress, "usher", now());
    assert!(told.contains("\n1 DaemonSet or static pod stays\n"), "an ordinary pod is none: {told}");
    let mut progress = looked(&maintenance, &before, &after);
    progress.ignores_daemons = true;
    assert_eq!(ending(Some(&reached(&["DaemonSet"], "Cordoning")), &progress), None);
    assert_eq!(
        drained(&maintenance, &progress, "usher", now()),
        "a drained: 1 pod left in 2m\n1 DaemonSet or static pod stays\nwhen the work is done, uncordon with: usher maintenance complete m\n"
    );
}

#[test]
fn pods_that_stay_by_choice_are_not_among_those_that_left() {
    let stays = |mut request: Value| {
        request["status"]["conditions"] = json!([{
            "type": "EvictionBlocked", "status": "True", "reason": "DaemonSetStays", "message": "m", "lastTransitionTime": NOW,
        }]);
        request
    };
    let pods = [pod("web-1", "a"), daemon("agent-1", "a"), daemon("agent-2", "a")];
    let asked = [request("web-1"), stays(request("agent-1")), request("agent-2")];
    let before = world(&pods, &asked, &[]);
    let mut status = drained_status("True", "Drained", None);
    status["nodeStatuses"] = json!([node_status("a", "Drained")]);
    let maintenance = with_status(maintenance("m", "Drain", &["a"], json!({})), status);
    let progress = looked(&maintenance, &before, &before.staying());
    assert_eq!(
        drained(&maintenance, &progress, "usher", now()),
        "a drained: 2 pods left in 2m\n1 DaemonSet or static pod stays\nwhen the work is done, uncordon with: usher maintenance complete m\n"
    );
    assert_eq!(Said::default().lines(&maintenance, &progress, now()), "node/a: drained, 2 pods gone\n");
}

#[test]
fn a_drain_that_waits_for_daemon_sets_says_once_how_to_go_on() {
    let maintenance = drain_of(&["a"], &["Evicting"]);
    let pods = world(&[daemon("agent-1", "a")], &[], &[]);
    let mut progress = looked(&maintenance, &pods, &pods);
    let mut said = Said::default();
    let wanted = "only DaemonSet and static pods remain: daemons leave now, static pods if a node agent runs there; --ignore-daemonsets waits for neither\n";
    assert_eq!(
        said.lines(&maintenance, &progress, now()),
        format!("node/a: 0 of 1 pod gone, 1 pending\nm: {wanted}")
    );
    assert_eq!(said.lines(&maintenance, &progress, now()), "");
    let shown = picture(&maintenance, &progress, &Environment::plain(), size(200), now());
    assert!(shown.ends_with(&format!("  {wanted}")), "{shown}");
    let narrow = picture(&maintenance, &progress, &Environment::plain(), size(80), now());
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    progress.ignores_daemons = true;
    let lines = Said::default().lines(&maintenance, &progress, now());
    assert!(!lines.contains("only"), "they are ignored already: {lines}");
}

#[test]
fn without_requests_pods_are_only_counted() {
    let maintenance = drain_of(&["a"], &["Evicting"]);
    let pods = World { requests_are_hidden: true, ..world(&[pod("web-1", "a")], &[], &[]) };
    let progress = looked(&maintenance, &pods, &pods);
    assert_eq!(Said::default().lines(&maintenance, &progress, now()), "node/a: 0 of 1 pod gone, 1 left\n");
}

/// A maintenance in the middle of its drain.
fn busy() -> NodeMaintenance {
    let spec = json!({
        "reason": "kernel\nupdate", "drainLimit": {"maxNodes": "10%", "topologyKey": "zone"},
        "drainPlan": [{"podPriority": 1000, "podType": "Default", "podSelector": {"matchLabels": {"app": "web"}}}],
    });
    let target =
        json!({"podPriority": 1000, "podType": "Default", "podSelector": {"matchLabels": {"app": "web"}}});
    let status = json!({
        "nodes": 2,
        "stageStatuses": [
            {"name": "Cordon", "startTimestamp": "2026-01-01T11:46:00Z"},
            {"name": "Drain", "startTimestamp": "2026-01-01T11:47:00Z"},
        ],
        "drainStatus": {
            "planPosition": 0, "drainMessage": "Evicting", "podsPendingEviction": 2, "podsEvicting": 3, "nodesDrained": 1,
            "expectedFinishTime": "2026-01-01T12:05:00Z",
        },
        "nodeStatuses": [
            {"nodeRef": {"name": "a"}, "drainTargets": [target], "drainMessage": "Evicting (limited by other)",
             "podsPendingEviction": 2, "podsEvicting": 3},
            {"nodeRef": {"name": "b"}, "drainMessage": "Drained"},
        ],
        "conditions": [{
            "type": "Drained", "status": "False", "reason": "Draining", "message": "Evicting",
            "lastTransitionTime": "2026-01-01T11:46:00Z",
        }],
    });
    with_status(maintenance("busy", "Drain", &["a", "b"], spec), status)
}

#[test]
fn maintenances_are_listed_in_a_table() {
    let idle = maintenance("idle", "Idle", &["c"], json!({}));
    let all = [busy(), idle].into_iter().map(|one| (key_of(&one), one)).collect();
    assert_eq!(
        table(&all, false, None, now()),
        "\
NAME   STAGE   NODES   DRAINED   PENDING   EVICTING   ETA   AGE   REASON
busy   Drain   2       1/2       2         3          5m    15m   kernel update
idle   Idle    -       -         -         -          -     15m   -
"
    );
    let wide = table(&all, true, None, now());
    assert!(wide.contains("a, b       10% at a time per zone   1/13   Evicting\n"), "{wide}");
}

#[test]
fn a_watch_prints_what_changes() {
    let mut changes = Changes::default();
    let one = |object: NodeMaintenance| [(key_of(&object), object)].into_iter().collect();
    let idle = maintenance("m", "Idle", &["c"], json!({}));
    assert_eq!(changes.lines(&one(idle.clone()), false, now()).lines().count(), 2);
    let later = "2026-01-01T12:10:00Z".parse().unwrap();
    assert_eq!(changes.lines(&one(idle), false, later), "", "that it is older is no change");
    let drains = changes.lines(&one(maintenance("m", "Drain", &["c"], json!({}))), false, later);
    assert!(drains.starts_with("m      Drain"), "{drains}");
    let gone = changes.lines(&std::collections::BTreeMap::new(), false, later);
    assert!(gone.starts_with("m      Deleted"), "{gone}");
}

#[test]
fn a_description_has_it_all() {
    let busy = busy();
    let pods = world(&[pod("web-1", "a")], &[request("web-1")], &[budget("web", 0)]);
    let other = maintenance("other", "Drain", &["a"], json!({}));
    let event = serde_json::from_value(json!({
        "metadata": {"name": "e"}, "involvedObject": {}, "lastTimestamp": "2026-01-01T11:47:00Z", "type": "Normal",
        "reason": "Drain", "message": "draining 2 nodes",
    }));
    let found = MaintenanceFound {
        maintenance: &busy,
        progress: Some(Progress::at_once(&busy, &pods, now())),
        overlaps: vec![(&other, vec!["a".to_string()])],
        events: vec![event.unwrap()],
    };
    let text = render(&found, &Environment::plain(), now());
    let head = "\
Maintenance busy drains 2 nodes.

Reason        kernel update
Created       15m ago (2026-01-01 11:45:00Z)
Selects       a, b
Limit         10% at a time per zone
Stages        Cordon   14m ago (2026-01-01 11:46:00Z)
              Drain    13m ago (2026-01-01 11:47:00Z)
Drained       no, since 14m ago (2026-01-01 11:46:00Z): Evicting
Pods          2 pending, 3 evicting
ETA           5m at best
Waiting on    disruption budget web does not allow the pod to be evicted (1 pod: shop/web-1); budget web has minAvailable 3 and \
3 pods: scale up to 4 pods or more, or lower minAvailable
Overlaps      other in stage Drain, on a
Plan          1/13    ->   Default     priority up to 1000, app=web
              2/13         Default     priority up to 1000000000
";
    assert!(text.starts_with(head), "{text}");
    let tail = "\
Nodes         NODE   PENDING   EVICTING   BLOCKED   TARGETS                    MESSAGE
              a      2         3          1         Default <= 1000, app=web   Evicting (limited by other)
              b      0         0          0         -                          Drained
Events        13m ago   Normal   Drain   draining 2 nodes
";
    assert!(text.ends_with(tail), "{text}");
}

#[test]
fn the_rows_of_nodes_in_a_description_are_not_broken() {
    let mut busy = busy();
    let long = "gke-production-europe-west1-workers-large-4f1c9b2d-x7k2.internal";
    for (name, shown) in [
        ("a", "a   "),
        ("ip-10-0-113-27.eu-west-1.compute.internal", "ip-10-0-113-27.eu-west-1.compute.internal   "),
        (long, "x7k2.internal   "),
    ] {
        let mut status = busy.status.take().unwrap();
        status.node_statuses[0].node_ref.name = name.to_string();
        status.node_statuses[0].drain_message = "Waiting for pods that nothing ends".to_string();
        busy.status = Some(status);
        let found =
            MaintenanceFound { maintenance: &busy, progress: None, overlaps: Vec::new(), events: Vec::new() };
        let text = render(&found, &Environment { width: Some(80), ..Environment::plain() }, now());
        let rows: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Nodes ")).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert!(rows.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(rows[1].contains(shown), "{text}");
    }
}
