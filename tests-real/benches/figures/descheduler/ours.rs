//! Our descheduler, measured in a process of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Instant;

use anyhow::{Result, ensure};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;
use usher_apply::{Clock, Descheduling, Events};
use usher_descheduler::requester::{Options, Requester};
use usher_descheduler::{Cluster, Differences, InProgress, Plan, Planner, Policy};
use usher_tests::descheduler::named;

use super::{RUNS, cluster, median};
use crate::process_memory::of_this_process;

/// Times are medians in seconds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    pub pods: usize,
    /// All pods, from their JSON.
    pub read: f64,
    /// A full plan by a planner that knows nothing of an earlier one.
    pub planning: f64,
    pub proposals: usize,
    /// A request for each proposal.
    pub evicting: f64,
    /// A plan after which nothing has changed.
    pub unchanged: f64,
    /// A plan after one pod in a hundred has changed.
    pub changed: f64,
    pub megabytes: f64,
}

pub fn measure(nodes: usize) -> Result<Measured> {
    let policy = Policy::read(&cluster::policy()).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let now = Timestamp::now();
    let mut known = Cluster::default();
    let mut read = 0.0;
    for number in 0..nodes {
        known.set_node(&serde_json::from_value(cluster::node(number))?);
    }
    let pods = nodes * cluster::PODS_OF_NODE;
    for number in 0..pods {
        let pod = serde_json::from_value(cluster::pod(number, nodes, 0, now))?;
        let start = Instant::now();
        known.set_pod(&pod);
        read += start.elapsed().as_secs_f64();
    }
    for namespace in cluster::namespaces() {
        known.set_namespace(&serde_json::from_value(namespace)?);
    }
    let cycle = |planner: &mut Planner, known: &Cluster, in_progress: &InProgress| {
        let start = Instant::now();
        let plan = planner.plan(known, &policy, in_progress, now);
        (plan, start.elapsed().as_secs_f64())
    };
    let mut planner = Planner::new(Differences::default());
    let (plan, first) = cycle(&mut planner, &known, &InProgress::default());
    let mut full = vec![first];
    for _ in 1..RUNS {
        full.push(cycle(&mut Planner::new(Differences::default()), &known, &InProgress::default()).1);
    }
    let evicting = (0..RUNS).map(|_| evict(&plan, &policy, now)).collect::<Result<_>>()?;
    let mut in_progress = InProgress::default();
    for proposal in &plan.proposals {
        let pod = &proposal.pod;
        in_progress.set_leaving(&pod.namespace, &pod.name, &pod.uid, "somebody", now);
    }
    let (mut unchanged, mut changed) = (Vec::new(), Vec::new());
    for round in 1..=RUNS as usize {
        unchanged.push(cycle(&mut planner, &known, &in_progress).1);
        for number in (0..pods).filter(|number| number % 100 == 50) {
            known.set_pod(&serde_json::from_value(cluster::pod(number, nodes, round, now))?);
        }
        changed.push(cycle(&mut planner, &known, &in_progress).1);
    }
    Ok(Measured {
        pods,
        read,
        planning: median(full)?,
        proposals: plan.proposals.len(),
        evicting: median(evicting)?,
        unchanged: median(unchanged)?,
        changed: median(changed)?,
        megabytes: of_this_process("VmHWM")? / 1e6,
    })
}

/// The time to decide on a request for each proposal and to send it to a server that answers at once. Its events are included.
fn evict(plan: &Plan, policy: &Policy, now: Timestamp) -> Result<f64> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = kube::Client::new(tower::service_fn(accept), "default");
        let events = Events::start(client.clone(), Clock::system());
        let apply = Descheduling::new(client, events, named("usher-system"));
        let start = Instant::now();
        let effects = Requester::new(Options::default()).decide(plan, now);
        let applied = apply.carry_out(effects, policy, &HashMap::new()).await;
        let took = start.elapsed().as_secs_f64();
        ensure!(applied.failure.is_none(), "{:?}", applied.failure);
        let (asked, wanted) = (applied.outcomes.len(), plan.proposals.len());
        ensure!(asked == wanted, "{asked} of {wanted} pods were asked to leave");
        Ok(took)
    })
}

/// Answers a write with the object that was sent, as if it was stored.
async fn accept(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut response = Response::new(Body::from(body.to_vec()));
    *response.status_mut() = http::StatusCode::CREATED;
    Ok(response)
}
