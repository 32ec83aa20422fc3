//! Hours of eviction requests in which nothing fails and everybody is difficult: interceptors that are done within the same
//! second or whose clocks are wrong, budgets that come, go and overlap, people who tamper with status fields, requests made
//! past admission, and a manager that is restarted. Half of them have the webhooks, which are away now and then, so that what they
//! would refuse is there when they come back. Whoever can go must go, and soon.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use cluster_simulator as life;
use embedded_apiserver::faults::{Fault, Matcher, Outage, Rule, When};
use futures::future::join_all;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use usher_api::names::INTERCEPTOR_ANNOTATION_PREFIX;

use crate::budget_watch::{BudgetWatch, Watched};
use crate::living::{BUDGETS, DEPLOYMENTS, Living, PODS, TIMES, template, workload};
use crate::request_hours::manager;
use crate::requests::{DRAIN, REQUESTS};
use crate::scenario::beside;
use crate::seeds::Trace;
use crate::witness::{Witness, admitted, names_interceptors};

/// How long everybody is difficult, and how long the rest may take: a deadline and a bit.
const HOURS: Duration = Duration::from_secs(2 * 3600);
const REST: Duration = Duration::from_secs(1200);
/// The shortest deadline that is allowed.
const DEADLINE: i64 = 600;
/// Clocks of a cluster differ by so much at most.
const SKEW: i64 = 30;
/// Whoever can go is gone within this time. A turn passes within it too.
const BOUND: SignedDuration = SignedDuration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A second budget over the same pods.
const SECOND: &str = "web-too";

/// The scenario for one seed.
///
/// # Errors
/// A rule was broken, or somebody stayed who could have gone.
pub async fn calm_hours_of_requests(seed: u64, trace: Trace) -> Result<()> {
    let options = life::Options {
        times: TIMES,
        trace: trace.clone(),
        without_events: true,
        ..life::Options::default()
    };
    let living = Living::start_with(seed, 3, options).await?;
    let cluster = &living.cluster;
    living.install_crds().await?;
    living.install_policies(&["policies.yaml"]).await?;
    let has_webhooks = seed.is_multiple_of(2);
    if has_webhooks {
        let webhook = kube::Client::new(cluster.service_as(beside::manager()), "default");
        for (path, configuration) in beside::answer_inside(cluster, webhook, &[]) {
            living.create(&path, &configuration).await?;
        }
    }
    let budgets =
        BudgetWatch::start(cluster, &[Watched { app: "web", least: 3 }], SignedDuration::from_mins(5));
    living.create(DEPLOYMENTS, &workload("Deployment", "web", json!({"replicas": 4}))).await?;
    living.create(DEPLOYMENTS, &workload("Deployment", "free", json!({"replicas": 3}))).await?;
    for number in 0..3 {
        let mut pod = template("alone", "100m");
        pod["metadata"]["name"] = format!("alone-{number}").into();
        living.create(PODS, &pod).await?;
    }
    living.budget("web", "web", json!({"maxUnavailable": 1})).await?;
    sleep(Duration::from_secs(120)).await;
    if let Some(trace) = trace {
        cluster.faults().trace_to(trace);
    }

    let witness = Witness::of(cluster);
    let mut manager = manager(cluster, &witness);
    manager.start(1);
    cluster.faults().set(outages(&living));
    let end = Instant::now() + HOURS;
    let people = join_all((0..6).map(|_| somebody(&living, has_webhooks, end)));
    let restarts = async {
        while Instant::now() < end {
            sleep(Duration::from_secs(600 + cluster.faults().random(2400))).await;
            manager.kill(1);
            manager.start(1);
        }
    };
    let everybody = async { tokio::join!(people, owner(&living, end), vandal(&living, end), restarts).0 };
    let mut liveness = Liveness::default();
    let people = {
        let mut everybody = std::pin::pin!(everybody);
        loop {
            tokio::select! {
                people = &mut everybody => break people,
                () = sleep(LOOK_EVERY) => liveness.observe(&living).await?,
            }
        }
    };
    people.into_iter().collect::<Result<Vec<()>>>()?;

    // Who asked past admission takes it back, and every budget is gone: the rest leaves.
    withdraw_what_waits_for_ever(&living).await?;
    budgets.be_lenient(true);
    for budget in ["web", SECOND] {
        living.send(Method::DELETE, &format!("{BUDGETS}/{budget}"), &Value::Null).await?;
    }
    let over = Instant::now() + REST;
    loop {
        liveness.observe(&living).await?;
        let requests = living.get(REQUESTS).await?;
        match requests["items"].as_array().and_then(|all| all.first()) {
            None => break,
            Some(left) if Instant::now() > over => bail!("a request is left: {left:#}"),
            Some(_) => sleep(LOOK_EVERY).await,
        }
    }
    let seen = witness.seen();
    let seen = seen.lock();
    ensure!(seen.breaches.is_empty(), "{}", seen.breaches.join("\n"));
    let verdict = budgets.verdict();
    ensure!(verdict.overdrawn.is_empty(), "{}", verdict.overdrawn.join("\n"));
    Ok(())
}

/// Since when each request could have moved on, and did not.
#[derive(Default)]
struct Liveness {
    since: HashMap<String, (String, Timestamp)>,
}

impl Liveness {
    async fn observe(&mut self, living: &Living) -> Result<()> {
        let now = living.cluster.now();
        let [requests, pods, budgets] = [REQUESTS, PODS, BUDGETS].map(|path| living.get(path));
        let (requests, pods, budgets) = (requests.await?, pods.await?, budgets.await?);
        let (pods, budgets) = (items(&pods), items(&budgets));
        let mut still = HashMap::new();
        for request in items(&requests) {
            let uid = request["spec"]["podRef"]["uid"].as_str().unwrap_or_default().to_owned();
            let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == uid.as_str());
            let Some(pod) = pod.filter(|pod| can_go(request, pod, budgets, now)) else { continue };
            // What it could have moved on from: the same turn of the same request.
            let turn = request["status"]["activeInterceptorClass"].to_string();
            let before = self.since.get(&uid).filter(|(known, _)| *known == turn);
            let since = before.map_or(now, |(_, since)| *since);
            if now.duration_since(since) > BOUND {
                bail!(
                    "since {since} nothing is in the way of {pod:#}, and at {now} it is there: {request:#}"
                );
            }
            still.insert(uid, (turn, since));
        }
        self.since = still;
        Ok(())
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Nobody's turn lasts, the budget has room, and somebody wants it: stated here anew, not taken from the code under test.
fn can_go(request: &Value, pod: &Value, budgets: &[Value], now: Timestamp) -> bool {
    let finalizers = request["metadata"]["finalizers"].as_array();
    let wanted = finalizers.is_some_and(|all| all.iter().any(|finalizer| finalizer == DRAIN));
    let alive = pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running";
    let (spec, status) = (&request["spec"], &request["status"]);
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let has_interceptors = spec["interceptors"].as_array().is_some_and(|all| !all.is_empty());
    let turn_is_over = if has_interceptors {
        let since = time(&status["progressTimestamp"]).unwrap_or(now);
        status["activeInterceptorCompleted"] == true || now.duration_since(since).as_secs() > DEADLINE + SKEW
    } else {
        !names_interceptors(pod) || admitted(request)
    };
    let app = &pod["metadata"]["labels"]["app"];
    let selecting: Vec<&Value> =
        budgets.iter().filter(|budget| budget["spec"]["selector"]["matchLabels"]["app"] == *app).collect();
    let room = match &selecting[..] {
        [] => true,
        [budget] => {
            budget["status"]["disruptionsAllowed"].as_i64() > Some(0)
                && budget["status"]["observedGeneration"] == budget["metadata"]["generation"]
        }
        _ => false,
    };
    // The next turn begins whatever the budget says; only the eviction needs room.
    let last = spec["interceptors"].as_array().into_iter().flatten().min_by_key(|i| i["priority"].as_i64());
    let is_last = last.is_none_or(|last| last["interceptorClass"] == status["activeInterceptorClass"]);
    wanted && alive && turn_is_over && (room || !is_last)
}

/// The webhooks are away some of the time, each by itself.
fn outages(living: &Living) -> Vec<Rule> {
    let random = |bound: u64| {
        let seconds = i64::try_from(living.cluster.faults().random(bound)).unwrap_or(0);
        SignedDuration::from_secs(seconds)
    };
    let start = living.cluster.now();
    let of = |name: &'static str| {
        let from = start + random(HOURS.as_secs());
        Rule {
            on: Matcher::webhook(&format!("{name}.evictionrequest.coordination.k8s.io")),
            when: When::always().during(from, from + random(1800)),
            fault: Fault::Webhook(Outage::Refused),
        }
    };
    ["fill", "check", "status", "status", "status"].map(of).into()
}

async fn pause(living: &Living) {
    let random = |bound: u64| living.cluster.faults().random(bound);
    let time = match random(4) {
        0 => Duration::from_millis(20 + random(200)),
        1 => Duration::from_millis(300 + random(2000)),
        2 => Duration::from_secs(1 + random(30)),
        _ => Duration::from_secs(1 + random(300)),
    };
    sleep(time).await;
}

/// Names interceptors on a pod, asks for its eviction and plays them, again and again.
async fn somebody(living: &Living, has_webhooks: bool, end: Instant) -> Result<()> {
    let random = |bound: u64| living.cluster.faults().random(bound);
    while Instant::now() < end {
        sleep(Duration::from_secs(1 + random(600))).await;
        let list = living.get(PODS).await?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let alive: Vec<&Value> =
            pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        let Some(pod) = alive.get(usize::try_from(random(alive.len() as u64)).unwrap_or(0)) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let classes: Vec<(String, u64)> =
            (0..random(3)).map(|n| (format!("i{n}.example.com"), 100 * n + 5)).collect();
        let mut annotations = json!({});
        for (class, priority) in &classes {
            annotations[format!("{INTERCEPTOR_ANNOTATION_PREFIX}{class}")] = priority.to_string().into();
        }
        let annotated = json!({"metadata": {"annotations": annotations}});
        living.send(Method::PATCH, &format!("{PODS}/{name}"), &annotated).await?;
        // Without the webhook nobody copies them.
        let past_admission = !has_webhooks && random(8) == 0;
        let interceptors: Vec<Value> = classes
            .iter()
            .filter(|_| !past_admission && !has_webhooks)
            .map(|(class, priority)| json!({"interceptorClass": class, "priority": priority}))
            .collect();
        let mut request = json!({
            "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": {"name": uid, "finalizers": [DRAIN]},
            "spec": {
                "podRef": {"name": name, "uid": uid}, "interceptors": interceptors, "progressDeadlineSeconds": DEADLINE,
            },
        });
        if !past_admission && !has_webhooks {
            request["metadata"]["annotations"] =
                json!({"evictionrequest.coordination.k8s.io/interceptors-resolved": "true"});
        }
        let (code, answer) = living.send(Method::POST, REQUESTS, &request).await?;
        match code {
            201 => intercept(living, &format!("{REQUESTS}/{uid}"), end).await?,
            409 => {}
            // The webhook is away, or the pod is gone.
            422 | 500 if has_webhooks => {}
            _ => bail!("{answer}"),
        }
    }
    Ok(())
}

/// Plays the interceptors of a request, each with a clock of its own.
async fn intercept(living: &Living, path: &str, end: Instant) -> Result<()> {
    let random = |bound: u64| living.cluster.faults().random(bound);
    let mut clock = SignedDuration::ZERO;
    while Instant::now() < end {
        pause(living).await;
        let (code, request) = living.send(Method::GET, path, &Value::Null).await?;
        if code == 404 {
            return Ok(());
        }
        let status = &request["status"];
        if status["activeInterceptorClass"].is_null() || status["activeInterceptorCompleted"] == true {
            if random(6) == 0 {
                return Ok(());
            }
            continue;
        }
        if random(3) == 0 {
            clock = SignedDuration::from_secs(i64::try_from(random(61)).unwrap_or(0) - SKEW);
        }
        let now = (living.cluster.now() + clock).to_string();
        let patch = match random(10) {
            // It falls silent.
            0 => return Ok(()),
            1..=4 => json!({"activeInterceptorCompleted": true, "progressTimestamp": now}),
            5 => json!({"activeInterceptorCompleted": true}),
            6 | 7 => json!({"conditions": with_or_without_own(status, random(2) == 0, &now)}),
            _ => json!({"progressTimestamp": now}),
        };
        // A client that patches, or one that writes the whole object back as it read it.
        let (code, answer) = if random(3) == 0 {
            let mut whole = request.clone();
            for (field, value) in patch.as_object().into_iter().flatten() {
                whole["status"][field] = value.clone();
            }
            living.send(Method::PUT, &format!("{path}/status"), &whole).await?
        } else {
            living.send(Method::PATCH, &format!("{path}/status"), &json!({"status": patch})).await?
        };
        // A patch of conditions is a whole list, and the manager may have written its own meanwhile; and it has still to put a time right
        // that somebody set to the future.
        let said = answer["message"].as_str().unwrap_or_default();
        let overtaken =
            code == 422 && ["the manager's", "set back", "back to"].iter().any(|words| said.contains(words));
        ensure!(
            matches!(code, 200 | 404 | 409) || overtaken,
            "whoever has the turn may answer: {patch} {answer}"
        );
    }
    Ok(())
}

/// The conditions of others, and one of the interceptor's own or none.
fn with_or_without_own(status: &Value, with: bool, now: &str) -> Vec<Value> {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let own = json!({
        "type": "DataMoved", "status": "False", "reason": "Copying", "message": "", "lastTransitionTime": now,
    });
    all.into_iter().filter(|of| of["type"] != own["type"]).chain(with.then_some(own.clone())).collect()
}

/// The owner of the application changes its budget, adds a second one, and takes them away.
async fn owner(living: &Living, end: Instant) -> Result<()> {
    let random = |bound: u64| living.cluster.faults().random(bound);
    while Instant::now() < end {
        sleep(Duration::from_secs(20 + random(400))).await;
        let web = format!("{BUDGETS}/web");
        match random(4) {
            0 => drop(living.send(Method::PATCH, &web, &json!({"spec": {"maxUnavailable": 0}})).await?),
            1 | 2 => drop(living.send(Method::PATCH, &web, &json!({"spec": {"maxUnavailable": 1}})).await?),
            _ => {
                living.budget(SECOND, "web", json!({"maxUnavailable": 1})).await?;
                sleep(Duration::from_secs(5 + random(1500))).await;
                living.delete(&format!("{BUDGETS}/{SECOND}")).await?;
            }
        }
    }
    Ok(())
}

/// Somebody writes nonsense into the status of requests. What the server takes must not make anybody stay.
async fn vandal(living: &Living, end: Instant) -> Result<()> {
    let random = |bound: u64| living.cluster.faults().random(bound);
    while Instant::now() < end {
        sleep(Duration::from_secs(30 + random(300))).await;
        let list = living.get(REQUESTS).await?;
        let requests = list["items"].as_array().cloned().unwrap_or_default();
        let Some(request) = requests.get(usize::try_from(random(requests.len() as u64)).unwrap_or(0)) else {
            continue;
        };
        let now = living.cluster.now();
        let condition = |status: &str, reason: &str| {
            json!({"conditions": [{
                "type": "EvictionBlocked", "status": status, "reason": reason, "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z",
            }]})
        };
        let patch = match random(10) {
            0 => json!({"progressTimestamp": null}),
            1 => json!({"progressTimestamp": (now - SignedDuration::from_hours(2)).to_string()}),
            2 => condition("False", "ProgressReported"),
            3 => condition("True", "DisruptionBudget"),
            4 => json!({"conditions": null}),
            5 => json!({"failedAPIEvictionCounter": 1_000_000_000}),
            6 => json!({"progressTimestamp": (now + SignedDuration::from_hours(2)).to_string()}),
            7 => json!({"progressTimestamp": (now - SignedDuration::from_secs(50)).to_string()}),
            8 => json!({"activeInterceptorCompleted": false}),
            _ => json!({"message": "x".repeat(32_768)}),
        };
        let path = format!("{REQUESTS}/{}/status", request["metadata"]["name"].as_str().unwrap_or_default());
        let class = &request["status"]["activeInterceptorClass"];
        let (code, answer) = living.send(Method::PATCH, &path, &json!({"status": patch})).await?;
        let removed = patch.get("progressTimestamp").is_some_and(Value::is_null);
        let had = !request["status"]["progressTimestamp"].is_null();
        ensure!(!(removed && had && code == 200), "progress was removed: {answer:#}");
        ensure!(!answer["message"].as_str().is_some_and(|said| said.contains("expression")), "{answer:#}");
        // Whatever the server took: the manager puts progress right that was undone, or lies in the future.
        if patch["progressTimestamp"].is_string() && code == 200 && !class.is_null() {
            sleep(Duration::from_secs(90)).await;
            let (code, found) =
                living.send(Method::GET, path.trim_end_matches("/status"), &Value::Null).await?;
            let progress = |request: &Value| {
                request["status"]["progressTimestamp"]
                    .as_str()
                    .and_then(|text| text.parse::<Timestamp>().ok())
            };
            let same_turn = code == 200 && found["status"]["activeInterceptorClass"] == *class;
            let (before, after) = (progress(request), progress(&found));
            let is_undone = before.zip(after).is_some_and(|(before, after)| after < before);
            let is_over = found["status"]["activeInterceptorCompleted"] == true;
            ensure!(!same_turn || is_over || !is_undone, "progress stays undone, from {before:?}: {found:#}");
            let is_future = after.is_some_and(|after| after > now + SignedDuration::from_mins(30));
            ensure!(!same_turn || !is_future, "progress stays in the future: {found:#}");
        }
    }
    Ok(())
}

/// Requests that were made past admission for pods that name interceptors wait, and say so, until they are taken back.
async fn withdraw_what_waits_for_ever(living: &Living) -> Result<()> {
    let (requests, pods) = (living.get(REQUESTS).await?, living.get(PODS).await?);
    let pods = pods["items"].as_array().cloned().unwrap_or_default();
    for request in requests["items"].as_array().into_iter().flatten() {
        let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == request["spec"]["podRef"]["uid"]);
        if !admitted(request) && pod.is_some_and(names_interceptors) {
            let path = format!("{REQUESTS}/{}", request["metadata"]["name"].as_str().unwrap_or_default());
            living.send(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await?;
        }
    }
    Ok(())
}
