//! Twenty users of few rights and strangers on the network try all they can think of, at random, beside the maintenances of an
//! administrator: these take no more than twice as long as beside users who only read, the manager stays small and ready, and nobody learns anything.
//!
//! `USHER_ATTACK_SECONDS` says how long (20), `USHER_ATTACK_SEED` which way. The strict choice of `deploy/` is installed, and
//! interceptors have a limit: what the specification leaves open holds up drains, as docs/threat-model.md says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

mod administrator;
mod attack;
#[path = "../common/mod.rs"]
mod common;
mod moves;
mod pulse;
mod stranger;
mod tally;
mod users;

use std::time::{Duration, Instant};

use administrator::{admin, furnish, look, round, until};
use attack::Attack;
use common::Scene;
use common::calls::{client_of, list};
use fastrand::Rng;
use http::Method;
use kube::Client;
use moves::MAINTENANCES;
use serde_json::{Value, json};
use stranger::Stranger;
use tally::Move;
use users::{EDGE, IN_ENVIRONMENTS, IN_NODE_LABELS, IN_SECRETS};

/// With users who only read, as busily as they attack later: what they cost the machine is not the attack.
const BASELINE_ROUNDS: usize = 5;
/// What the tests of others, on the same machine, may add to a single round.
const NOISE: Duration = Duration::from_secs(30);
/// Of all interceptors of a pod together: so long a tenant may hold up his pod, and with it a round.
const INTERCEPTORS_LIMIT: Duration = Duration::from_secs(3);
/// Some of these are anybody's right, so in time each of them is accepted once.
const GETS_THROUGH: [Move; 9] = [
    Move::HostileValue,
    Move::UnreadableTime,
    Move::NestedFields,
    Move::ForgedOwner,
    Move::ForgedGate,
    Move::ForgedStrategy,
    Move::HundredInterceptors,
    Move::AskForEviction,
    Move::Delete,
];
/// A short attack goes on for so long at most until they are.
const CHANCES: Duration = Duration::from_secs(180);
const RESIDENT_MAX_KIB: u64 = 400 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn median(took: &[Duration]) -> Duration {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// In events of ours, whoever reads them, and in the log.
async fn said_by_the_manager(client: &Client, log: &str) {
    let events = list(client, "/api/v1/events").await;
    let ours: Vec<String> = events
        .iter()
        .filter(|event| event["source"]["component"] == "usher")
        .map(|event| format!("{} {}", event["message"], event["metadata"]["annotations"]))
        .collect();
    println!("{} of {} events are ours; the log has {} letters", ours.len(), events.len(), log.len());
    assert!(!ours.is_empty(), "it tells what it does");
    let never = [IN_SECRETS, IN_ENVIRONMENTS, IN_NODE_LABELS, "PRIVATE KEY"];
    for line in log.lines().chain(ours.iter().map(String::as_str)) {
        assert!(!never.iter().any(|marker| line.contains(marker)), "told: {line}");
        assert!(line.len() < 16 << 10, "long: {line}");
        assert!(!line.contains("panicked"), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_users_and_strangers_neither_stop_nor_slow_nor_learn_on_the_real_server() {
    let seconds = Duration::from_secs(number("USHER_ATTACK_SECONDS", 20));
    let seed = number("USHER_ATTACK_SEED", Rng::new().u64(..));
    println!("USHER_ATTACK_SEED={seed} USHER_ATTACK_SECONDS={}", seconds.as_secs());
    let strict: &[&str] = &["-f", "deploy/strict/roles.yaml", "-f", "deploy/strict/policies.yaml"];
    let scene = Scene::alone(1, &[&["-k", "deploy"], strict]).await;
    let log = scene.plane.folder().join("attacked-manager.log");
    let limit = format!("--interceptors-time-limit={}s", INTERCEPTORS_LIMIT.as_secs());
    let mut manager = scene.manager_process(&[&limit], Some(&log)).await;
    let client = client_of(&scene).await;
    furnish(&scene).await;
    let users = users::create(&scene).await;
    assert_eq!(users.len(), 20);

    let busy = Attack::new(&client).await;
    let readers = busy.keep_busy(&users, seed);
    let mut unharmed = Vec::new();
    for number in 0..BASELINE_ROUNDS {
        unharmed.push(round(&client, number).await.took);
    }
    busy.end(readers).await;
    let limit = median(&unharmed) * 2 + INTERCEPTORS_LIMIT;
    println!("beside users who only read: {unharmed:.1?}, so {limit:.1?} by the median");

    // Beside those that end, one that stays, of a node which changes its labels. Its name is a bound, so that nobody draws
    // other nodes in by their labels.
    let edge = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance",
        "metadata": {"name": "edge", "annotations": {"nodemaintenance.k8s.io/keep-nodes": "true"}},
        "spec": {"stage": "Cordon", "nodeSelector": {"nodeSelectorTerms": [
            {
                "matchExpressions": [{"key": "example.com/tier", "operator": "In", "values": ["edge"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": [EDGE]}],
            },
        ]}},
    });
    let edge = admin(&client, Method::POST, MAINTENANCES, edge).await;
    assert_eq!(edge.code, 201, "{}", edge.text);

    let certificates = [
        "get",
        "secret",
        "usher-webhook-certificates",
        "-n",
        "usher-system",
        "-o=go-template={{index .data \"ca.crt\" | base64decode}}",
    ];
    let authority = scene.kubectl(&certificates, None).await;
    let stranger = Stranger::new(manager.webhook, manager.health, manager.metrics, &authority);
    let attack = Attack::new(&client).await;
    let pulse = pulse::watch(&manager, &attack.stop);
    let begun = Instant::now();
    let attackers = attack.start(&users, &stranger, seed);
    let mut rounds = Vec::new();
    let is_missing = || GETS_THROUGH.into_iter().any(|of| attack.tally.accepted(of) == 0);
    while begun.elapsed() < seconds || rounds.len() < 2 || (is_missing() && begun.elapsed() < CHANCES) {
        rounds.push(round(&client, BASELINE_ROUNDS + rounds.len()).await);
    }
    attack.end(attackers).await;
    let pulse = pulse.await.unwrap();

    let tally = &attack.tally;
    tally.print();
    let took: Vec<Duration> = rounds.iter().map(|round| round.took).collect();
    println!(
        "attacked for {:.0?}: {} rounds, {:.1?} by the median, of {took:.1?}",
        begun.elapsed(),
        rounds.len(),
        median(&took)
    );
    println!(
        "{} ended maintenances were kept by a foreign finalizer",
        rounds.iter().filter(|round| round.was_kept).count()
    );
    println!(
        "{} probes ({} once more), the slowest {:.1?}; {} MiB resident at most",
        pulse.asked,
        pulse.repeated,
        pulse.slowest,
        pulse.resident_kib >> 10
    );

    for of in Move::OF_USERS.into_iter().chain(Move::OF_STRANGERS) {
        assert!(tally.tried(of) > 0, "{of:?} was never tried");
    }
    // If none got through, the attackers did nothing.
    for of in GETS_THROUGH {
        assert!(tally.accepted(of) > 0, "{of:?} was never accepted");
    }
    for of in [Move::SkipInterceptors, Move::ForgedMirror, Move::ForgedNodeStatuses, Move::Metrics] {
        assert_eq!(tally.accepted(of), 0, "{of:?} is nobody's right here");
    }
    assert!(tally.leaks().is_empty(), "told to who may not know: {:#?}", tally.leaks());
    assert!(
        median(&took) <= limit && took.iter().all(|took| *took <= limit + NOISE),
        "{took:.1?} with attackers, {unharmed:.1?} without: {limit:.1?} by the median, and no round {NOISE:?} more"
    );
    assert!(pulse.unready.is_empty(), "of {} probes: {:#?}", pulse.asked, pulse.unready);
    assert!(pulse.repeated * 20 <= pulse.asked, "{} of {} probes were repeated", pulse.repeated, pulse.asked);
    assert!(pulse.resident_kib < RESIDENT_MAX_KIB, "{} MiB are resident", pulse.resident_kib >> 10);
    assert!(manager.process.try_wait().unwrap().is_none(), "it still runs");
    let left: Vec<(Value, Value)> = look(&client)
        .await
        .maintenances
        .into_iter()
        .map(|m| (m["metadata"]["name"].clone(), m["spec"].clone()))
        .collect();
    assert_eq!(
        left,
        [(json!("edge"), edge.json()["spec"].clone())],
        "no maintenance is theirs, and none is changed"
    );
    // It acts as before.
    let label = json!({"metadata": {"labels": {"example.com/tier": "edge"}}});
    let node = format!("/api/v1/nodes/{EDGE}");
    assert_eq!(admin(&client, Method::PATCH, &node, label).await.code, 200);
    until(&client, &node, "is held", |node| {
        node["spec"]["unschedulable"] == true
            && node["metadata"]["annotations"]["nodemaintenance.k8s.io/held-by"] == "edge"
    })
    .await;
    said_by_the_manager(&client, &std::fs::read_to_string(&log).unwrap()).await;
    manager.end().await;
    scene.plane.stop().await.unwrap();
}
