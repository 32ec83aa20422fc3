//! Any objects as a watch sends them: they are read, or named as unreadable, and decided on.
//!
//! The input is a list of up to eight objects, in this order: a request, a pod, a budget, a node, a maintenance, a DaemonSet, a
//! StatefulSet, a namespace.

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use usher_api::NodeMaintenance;
use usher_api::lenient::Lenient;
use usher_api::workloads::{BundledInterceptor, Strategy};
use usher_decide::eviction_request::{Case, Target, decide};
use usher_decide::maintenance::plan::with_defaults;
use usher_decide::maintenance::pods;
use usher_decide::maintenance::selector::{self, NodeMatcher};
use usher_decide::snapshot::{
    Budget, BudgetOnWire, DaemonSet, DaemonSetOnWire, Maintenance, Namespace, NamespaceOnWire, Node,
    NodeOnWire, Pod, PodOnWire, Request, RequestOnWire, StatefulSet, StatefulSetOnWire,
};

fn read<W: serde::de::DeserializeOwned, T: From<W>>(object: Option<&&RawValue>) -> Option<T> {
    let lenient: Lenient<W> = serde_json::from_str(object?.get()).ok()?;
    match lenient.read() {
        Ok(wire) => Some(T::from(wire)),
        Err(unreadable) => {
            // It can be named.
            let _ = unreadable.to_string();
            None
        }
    }
}

pub fn run(data: &[u8]) {
    let Ok(objects) = serde_json::from_slice::<Vec<&RawValue>>(data) else { return };
    let request: Option<Request> = read::<RequestOnWire, _>(objects.first());
    let pod: Option<Pod> = read::<PodOnWire, _>(objects.get(1));
    let budget: Option<Budget> = read::<BudgetOnWire, _>(objects.get(2));
    let node: Option<Node> = read::<NodeOnWire, _>(objects.get(3));
    let maintenance: Option<NodeMaintenance> = read::<NodeMaintenance, _>(objects.get(4));

    let daemon_set: Option<DaemonSet> = read::<DaemonSetOnWire, _>(objects.get(5));
    let stateful_set: Option<StatefulSet> = read::<StatefulSetOnWire, _>(objects.get(6));
    let namespace: Option<Namespace> = read::<NamespaceOnWire, _>(objects.get(7));
    let inherited = namespace.as_ref().and_then(|namespace| namespace.strategy.as_deref());
    let own = [
        daemon_set.as_ref().and_then(|set| set.strategy.as_deref()),
        stateful_set.as_ref().and_then(|set| set.strategy.as_deref()),
    ];
    let said = std::iter::zip(BundledInterceptor::ALL, own)
        .map(|(interceptor, own)| Strategy::of(interceptor, own, inherited).unwrap_or_default());
    let strategies: Vec<Strategy> = said.collect();

    let budgets: Vec<&Budget> = budget.iter().collect();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    if let Some(request) = &request {
        let targets = [pod.as_ref().map(Target::Found), Some(Target::Gone), Some(Target::NeverSeen)];
        for target in targets.into_iter().flatten() {
            for mut granted in [true, false] {
                let case = Case {
                    request,
                    pod: target,
                    budgets: &budgets,
                    attempt: None,
                    daemon_set: granted.then_some(strategies[0]),
                    interceptors_limit: granted.then(|| SignedDuration::from_hours(12)),
                    withdraw_after: Some(SignedDuration::from_mins(5)),
                };
                for now in [now, Timestamp::MIN, Timestamp::MAX] {
                    let _ = decide(&case, &mut granted, now);
                }
            }
        }
    }
    if let Some(pod) = &pod {
        for is_targeted in [true, false] {
            let _ = pods::decide(pod, request.as_ref(), is_targeted);
        }
    }
    if let Some(maintenance) = maintenance {
        let of = &maintenance.spec.node_selector;
        let _ =
            (selector::check(of), selector::names(of).is_ok(), with_defaults(&maintenance.spec.drain_plan));
        if let Some(node) = &node {
            let _ = NodeMatcher::new(of).matches(&node.name, &node.labels);
            assert!(node.is_like(node));
        }
        let _ = Maintenance::from(maintenance);
    }
}
