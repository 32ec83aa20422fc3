//! Hours of eviction requests in which everything goes wrong that can: the manager is killed, doubled and given a wrong
//! clock, the server refuses, loses and delays, while requesters ask and withdraw and interceptors work, fall silent,
//! forbid and give up. Then it stops, and nothing may be forgotten or left behind.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cluster_simulator as life;
use embedded_apiserver::Cluster;
use embedded_apiserver::faults::{Fault, Matcher, Refusal, Rule, When};
use futures::future::join_all;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_apply::Clock;
use usher_controllers::eviction_request;

use crate::budget_watch::{BudgetWatch, Watched};
use crate::chaos::Process;
use crate::living::{BUDGETS, DEPLOYMENTS, Living, PODS, STATEFUL_SETS, TIMES, template, workload};
use crate::requests::{DRAIN, REQUESTS};
use crate::seeds::Trace;
use crate::witness::Witness;

/// How long things go wrong, and how long they may take to be well again: longer than two deadlines in a row.
const TROUBLE: Duration = Duration::from_secs(2 * 3600);
const RECOVERY: Duration = Duration::from_secs(3 * 3600);
/// The shortest deadline that is allowed.
const DEADLINE: i64 = 600;

/// The scenario for one seed.
///
/// # Errors
/// A rule was broken, or something was forgotten.
pub async fn hours_of_requests(seed: u64, trace: Trace) -> Result<()> {
    let living = Living::start_with(
        seed,
        3,
        life::Options {
            times: TIMES,
            trace: trace.clone(),
            without_events: true,
            ..life::Options::default()
        },
    )
    .await?;
    let cluster = &living.cluster;
    living.install_crds().await?;
    living.install_policies(&["policies.yaml"]).await?;
    let watched = [Watched { app: "web", least: 3 }];
    let budgets = BudgetWatch::start(cluster, &watched, SignedDuration::from_mins(5));
    fill(&living).await?;
    sleep(Duration::from_secs(120)).await;
    if let Some(trace) = trace {
        cluster.faults().trace_to(trace);
    }

    let witness = Witness::of(cluster);
    let mut manager = manager(cluster, &witness);
    let start = cluster.now();
    cluster.faults().set(rules(start));
    let end = Instant::now() + TROUBLE;
    let people = join_all((0..8).map(|_| somebody(&living)));
    let ((), people) = tokio::join!(manager.upheaval(end, Duration::from_secs(400)), people);
    cluster.faults().stop();
    let asked: Vec<Asked> = people.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();

    let recovered = Instant::now() + RECOVERY;
    loop {
        match state(&living, &asked).await? {
            None => break,
            Some(why) if Instant::now() > recovered => bail!("{why}"),
            Some(_) => sleep(Duration::from_secs(30)).await,
        }
    }
    let seen = witness.seen();
    let seen = seen.lock();
    ensure!(seen.breaches.is_empty(), "{}", seen.breaches.join("\n"));
    let verdict = budgets.verdict();
    ensure!(verdict.overdrawn.is_empty(), "{}", verdict.overdrawn.join("\n"));
    Ok(())
}

pub(crate) fn manager(cluster: &Cluster, witness: &Witness) -> Process {
    let witness = witness.clone();
    Process::new(cluster, "manager", move |run| {
        let clock = Clock::from_fn(move || run.clock.now());
        eviction_request::run(witness.manager(&run.name), clock)
    })
}

async fn fill(living: &Living) -> Result<()> {
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 4}))).await?;
    let spec = json!({"replicas": 2, "serviceName": "db"});
    living.create(STATEFUL_SETS, &workload("StatefulSet", "db", spec)).await?;
    for number in 0..3 {
        let mut pod = template("alone", "100m");
        pod["metadata"]["name"] = format!("alone-{number}").into();
        living.create(PODS, &pod).await?;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    living.create(BUDGETS, &budget).await?;
    Ok(())
}

/// What goes wrong between the manager and the server.
fn rules(start: Timestamp) -> Vec<Rule> {
    let end = start + SignedDuration::try_from(TROUBLE).unwrap_or_default();
    let secs = Duration::from_secs;
    let faults = [
        (0.1, Fault::DropWatch { after: secs(90) }),
        (0.1, Fault::StallWatch { time: Some(secs(200)) }),
        (0.05, Fault::Refuse(Refusal::Conflict)),
        (0.03, Fault::Refuse(Refusal::TooManyRequests { retry_after: 1 })),
        (0.03, Fault::Refuse(Refusal::Internal)),
        (0.02, Fault::Timeout { applied: true, answered: false, after: secs(10) }),
        (0.02, Fault::Timeout { applied: false, answered: false, after: secs(10) }),
        (0.02, Fault::Timeout { applied: true, answered: true, after: secs(30) }),
        (0.05, Fault::Latency(Duration::from_millis(500))),
        (0.01, Fault::Latency(secs(4))),
    ];
    let of = |client: &'static str| {
        faults.map(|(chance, fault)| Rule {
            on: Matcher::any().client(client),
            when: When::chance(chance).during(start, end),
            fault,
        })
    };
    of("manager-1").into_iter().chain(of("manager-2")).collect()
}

/// A pod that was asked to leave, and whether that was taken back.
struct Asked {
    pod: String,
    uid: String,
    withdrawn: bool,
}

async fn random_sleep(cluster: &Cluster, most: u64) {
    sleep(Duration::from_secs(1 + cluster.faults().random(most))).await;
}

/// Asks for the eviction of some pod three times, plays its interceptors, and sometimes changes its mind.
async fn somebody(living: &Living) -> Result<Vec<Asked>> {
    let cluster = &living.cluster;
    let random = |bound: u64| cluster.faults().random(bound);
    let mut asked = Vec::new();
    for _ in 0..2 {
        random_sleep(cluster, 1500).await;
        let list = living.get(PODS).await?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let alive: Vec<&Value> =
            pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        let Some(pod) = alive.get(usize::try_from(random(alive.len() as u64)).unwrap_or(0)) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let classes: Vec<Value> = (0..random(3))
            .map(|n| json!({"interceptorClass": format!("i{n}.example.com"), "priority": 100 * n + 5}))
            .collect();
        let request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": [DRAIN]},
            "spec": {
                "podRef": {"name": name, "uid": uid}, "interceptors": classes, "progressDeadlineSeconds": DEADLINE,
            },
        });
        let (code, answer) = living.send(Method::POST, REQUESTS, &request).await?;
        match code {
            201 => {}
            409 => continue,
            _ => bail!("{answer}"),
        }
        let path = format!("{REQUESTS}/{uid}");
        let mut withdrawn = false;
        match random(5) {
            0 => {
                random_sleep(cluster, 900).await;
                withdrawn = withdraw(living, &path).await?;
            }
            1 => {
                random_sleep(cluster, 600).await;
                // Somebody else deletes the pod.
                living.send(Method::DELETE, &format!("{PODS}/{name}"), &Value::Null).await?;
            }
            _ => {}
        }
        asked.push(Asked { pod: name, uid, withdrawn });
        intercept(living, &path).await?;
    }
    Ok(asked)
}

/// Takes the wish back, if it is still there; whether that was possible.
async fn withdraw(living: &Living, path: &str) -> Result<bool> {
    let (code, answer) = living.send(Method::PATCH, path, &json!({"metadata": {"finalizers": null}})).await?;
    ensure!(matches!(code, 200 | 404), "{answer}");
    Ok(code == 200)
}

/// Plays the interceptors of a request for a while: they report, complete, or say nothing.
async fn intercept(living: &Living, path: &str) -> Result<()> {
    let cluster = &living.cluster;
    for _ in 0..12 {
        random_sleep(cluster, 280).await;
        let (code, request) = living.send(Method::GET, path, &Value::Null).await?;
        if code == 404 {
            return Ok(());
        }
        let status = &request["status"];
        if status["activeInterceptorClass"].is_null() || status["activeInterceptorCompleted"] == true {
            continue;
        }
        let now = cluster.now().to_string();
        let patch = match cluster.faults().random(8) {
            0 => continue,
            1 | 2 => json!({"activeInterceptorCompleted": true, "progressTimestamp": now}),
            3 => json!({"evictionRequestCancellationPolicy": "Forbid", "progressTimestamp": now}),
            4 => json!({"evictionRequestCancellationPolicy": "Allow", "progressTimestamp": now}),
            _ => json!({"progressTimestamp": now}),
        };
        let pinned = json!({
            "metadata": {"resourceVersion": request["metadata"]["resourceVersion"]}, "status": patch,
        });
        let (code, answer) = living.send(Method::PATCH, &format!("{path}/status"), &pinned).await?;
        ensure!(matches!(code, 200 | 404 | 409), "{answer}");
    }
    Ok(())
}

/// What is not as it should be in the end, if anything.
async fn state(living: &Living, asked: &[Asked]) -> Result<Option<String>> {
    let requests = living.get(REQUESTS).await?;
    if let Some(left) = requests["items"].as_array().and_then(|all| all.first()) {
        return Ok(Some(format!("a request is left: {left:#}")));
    }
    for Asked { pod, uid, withdrawn } in asked {
        let (code, found) = living.send(Method::GET, &format!("{PODS}/{pod}"), &Value::Null).await?;
        if !withdrawn && code == 200 && found["metadata"]["uid"] == uid.as_str() {
            return Ok(Some(format!("{pod} was asked to leave, and is there: {found:#}")));
        }
    }
    Ok(None)
}
