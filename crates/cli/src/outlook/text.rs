//! An outlook as text.

use std::collections::BTreeMap;

use usher_api::DrainPlanEntry;
use usher_api::node_maintenance::{
    HIGHEST_USER_PRIORITY, SYSTEM_CLUSTER_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL_PRIORITY,
};
use usher_decide::snapshot::Key;
use usher_forecast::outlook::{Finding, Outlook, Severity, Stop};

use super::Context;
use crate::Environment;
use crate::table::Table;

/// So many nodes are listed, and so many pods named; the rest is counted.
const NODES: usize = 40;
const PODS: usize = 5;

pub fn render(outlook: &Outlook, context: &Context, environment: &Environment) -> String {
    let mut text = format!("{}\n", environment.bold(&summary(outlook, context)));
    if outlook.nodes() == 0 {
        text.push_str(
            "\nNothing was changed. See kubectl get nodes --show-labels for what can be selected.\n",
        );
        return text;
    }
    text.push_str(&format!("\nOrder\n{}{}", order(outlook), more_nodes(outlook)));
    if outlook.pods() > 0 {
        text.push_str(&format!("\nPlan\n{}", plan(outlook)));
    }
    if !outlook.findings.is_empty() {
        text.push_str("\nFindings, most severe first\n");
        for finding in &outlook.findings {
            text.push_str(&describe(finding, context, environment));
        }
    }
    text.push_str(&format!("\n{}", room(outlook)));
    text.push_str(&match &context.missing[..] {
        [] => "\nNothing was changed. To do it, run the same command without --dry-run.\n".to_string(),
        missing => {
            format!("\nNothing was changed. Without {} the drain would be refused.\n", missing.join(" "))
        }
    });
    text
}

fn summary(outlook: &Outlook, context: &Context) -> String {
    let (nodes, pods, waves) = (outlook.nodes(), outlook.pods(), outlook.waves.len());
    if nodes == 0 {
        return "Dry run: no node is selected, so nothing would be done.".to_string();
    }
    let waves = match waves {
        1 => "at once".to_string(),
        waves => format!("in {waves} waves"),
    };
    let pods_of = |is_meant: &dyn Fn(&Finding) -> bool| -> usize {
        outlook.findings.iter().filter(|finding| is_meant(finding)).map(|finding| finding.pods().len()).sum()
    };
    let stuck = pods_of(&|finding| context.is_stuck_by(finding));
    let homeless = pods_of(&|finding| finding.severity() == Severity::NoPlace);
    let end = match (stuck, homeless) {
        (0, 0) if !context.missing.is_empty() => String::new(),
        (0, 0) if context.budgets_are_hidden => "Nothing else is in the way.".to_string(),
        (0, 0) => "Nothing is in the way.".to_string(),
        (0, homeless) => format!("All can be evicted, but {homeless} will not fit elsewhere."),
        (stuck, 0) => format!("{} cannot be evicted.", count(stuck, "pod")),
        (stuck, homeless) => {
            format!("{} cannot be evicted, and {homeless} will not fit elsewhere.", count(stuck, "pod"))
        }
    };
    let hidden = match context.budgets_are_hidden {
        true => " Disruption budgets are not considered, as you may not list them.",
        false => "",
    };
    let refused = match &context.missing[..] {
        [] => String::new(),
        missing => format!("Without {} it would be refused.", missing.join(" ")),
    };
    let (nodes, pods) = (count(nodes, "node"), count(pods, "pod"));
    let start = format!("Dry run: {nodes} with {pods} would be drained {waves}.{hidden}");
    let sentences = [start, end, refused].into_iter().filter(|sentence| !sentence.is_empty());
    sentences.collect::<Vec<_>>().join(" ")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn order(outlook: &Outlook) -> String {
    let mut table = Table::new(&["  WAVE", "NODE", "PODS", "BY STEP", "NOW"]);
    let stops = outlook
        .waves
        .iter()
        .enumerate()
        .flat_map(|(number, wave)| wave.iter().map(move |stop| (number + 1, stop)));
    for (wave, stop) in stops.take(NODES) {
        let pods: usize = stop.pods.values().map(Vec::len).sum();
        table.row(vec![
            format!("  {wave}"),
            stop.node.to_string(),
            pods.to_string(),
            by_step(stop),
            if stop.is_cordoned { "cordoned" } else { "" }.to_string(),
        ]);
    }
    table.render()
}

/// `1: 9, 5: 3`.
fn by_step(stop: &Stop) -> String {
    let steps = stop.pods.iter().map(|(step, pods)| format!("{}: {}", step + 1, pods.len()));
    steps.collect::<Vec<_>>().join(", ")
}

fn more_nodes(outlook: &Outlook) -> String {
    match outlook.nodes().saturating_sub(NODES) {
        0 => String::new(),
        1 => "  and 1 more node\n".to_string(),
        more => format!("  and {more} more nodes\n"),
    }
}

fn plan(outlook: &Outlook) -> String {
    let mut pods: BTreeMap<usize, usize> = BTreeMap::new();
    for stop in outlook.waves.iter().flatten() {
        for (step, keys) in &stop.pods {
            *pods.entry(*step).or_default() += keys.len();
        }
    }
    let mut table = Table::new(&["  STEP", "PODS", "TYPE", "UP TO PRIORITY", "LABELS"]);
    for (step, count) in pods {
        let Some(entry) = outlook.plan.steps().get(step).map(|step| &step.entry) else { continue };
        table.row(vec![
            format!("  {}", step + 1),
            count.to_string(),
            format!("{:?}", entry.pod_type),
            priority(entry),
            labels(entry),
        ]);
    }
    table.render()
}

fn priority(entry: &DrainPlanEntry) -> String {
    let name = match entry.pod_priority {
        HIGHEST_USER_PRIORITY => "highest user priority",
        SYSTEM_CLUSTER_CRITICAL_PRIORITY => "system-cluster-critical",
        SYSTEM_NODE_CRITICAL_PRIORITY => "system-node-critical",
        i32::MAX => "any",
        other => return other.to_string(),
    };
    format!("{} ({name})", entry.pod_priority)
}

fn labels(entry: &DrainPlanEntry) -> String {
    let Some(selector) = &entry.pod_selector else { return String::new() };
    kube::core::Selector::try_from(selector.clone()).map(|selector| selector.to_string()).unwrap_or_default()
}

fn describe(finding: &Finding, context: &Context, environment: &Environment) -> String {
    let sentence = finding.sentence();
    let sentence = match finding.severity() {
        Severity::Never | Severity::Loss | Severity::NoPlace => environment.alarming(&sentence),
        Severity::Delay | Severity::Note => sentence,
    };
    let mut lines = format!("- {sentence}\n");
    let who: Vec<String> = match finding {
        Finding::Overlap(overlap) => overlap.nodes.iter().map(ToString::to_string).collect(),
        _ => finding.pods().iter().map(Key::to_string).collect(),
    };
    lines.push_str(&format!("    {}\n", some(&who)));
    let advice = match finding {
        // To be told what one does already helps nobody.
        Finding::MirrorPods { .. } if context.ignores_daemons => {
            "run the node agent there (deploy/node-agent), or remove the manifests on the node".to_string()
        }
        Finding::UnansweredDaemonSet { .. } if context.ignores_daemons => {
            "name daemonset in the manager's flag --interceptors".to_string()
        }
        _ => finding.advice(),
    };
    if advice != "nothing" {
        lines.push_str(&format!("    you can: {advice}\n"));
    }
    lines
}

fn some(names: &[String]) -> String {
    let named = names.iter().take(PODS).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(PODS) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn room(outlook: &Outlook) -> String {
    let placed = outlook.fit.places.len();
    let all = placed + outlook.fit.misfits.iter().map(|misfit| misfit.pods.len()).sum::<usize>();
    if all == 0 {
        return "Capacity: no pod will be recreated elsewhere.\n".to_string();
    }
    let mut onto: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, node) in &outlook.fit.places {
        *onto.entry(node).or_default() += 1;
    }
    let (all, nodes) = (count(all, "pod"), count(outlook.open_nodes, "remaining schedulable node"));
    let mut text = format!("Capacity: {placed} of {all} that will be recreated fit on the {nodes}.\n");
    if !onto.is_empty() {
        let onto: Vec<String> = onto.into_iter().map(|(node, pods)| format!("{node} {pods}")).collect();
        text.push_str(&format!("  filled one node after the other: {}\n", some(&onto)));
    }
    text.push_str(
        "  by requests, node affinity and taints; not considered: pod affinity and spreading, volumes, preemption\n",
    );
    text
}
