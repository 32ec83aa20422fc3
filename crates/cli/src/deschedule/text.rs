//! A plan, and an explanation, as text.

use serde::Serialize;
use serde_json::{Value, json};
use usher_descheduler::{Explanation, Plan, Problem, Proposal};
use usher_forecast::outlook::{Finding, Severity};

use super::read::ClusterRead;
use crate::Environment;
use crate::table::Table;

/// So many pods are listed; the rest is counted.
const PODS: usize = 60;

pub fn plan(plan: &Plan, findings: &[Finding], read: &ClusterRead, environment: &Environment) -> String {
    let pods = count(plan.proposals.len(), "pod");
    let leaving = match plan.still_wanted.len() {
        0 => String::new(),
        leaving => format!(" {leaving} more are wanted, and are leaving already."),
    };
    let summary = match plan.proposals.len() {
        0 => format!("Dry run: none of {} would be asked to leave.{leaving}", count(read.pods(), "pod")),
        _ => format!("Dry run: {pods} of {} would be asked to leave.{leaving}", read.pods()),
    };
    let mut text = format!("{}\n", environment.bold(&summary));
    if !plan.proposals.is_empty() {
        text.push_str(&format!("\nPlan\n{}", proposals(&plan.proposals, environment)));
    }
    section(
        &mut text,
        "\nStopped\n",
        plan.stops.iter().map(|stopped| {
            let whom =
                stopped.plugin.as_ref().map(|(profile, plugin)| format!("{plugin} of profile {profile}: "));
            format!("- {}{}\n", whom.unwrap_or_default(), stopped.by)
        }),
    );
    section(
        &mut text,
        "\nProblems\n",
        problems(read, &plan.problems).map(|problem| format!("- {}\n", environment.alarming(&problem))),
    );
    section(
        &mut text,
        "\nFindings, most severe first\n",
        findings.iter().map(|finding| {
            let sentence = finding.sentence();
            let sentence = match finding.severity() {
                Severity::Never | Severity::Loss | Severity::NoPlace => environment.alarming(&sentence),
                Severity::Delay | Severity::Note => sentence,
            };
            let pods: Vec<String> = finding.pods().iter().map(ToString::to_string).collect();
            format!("- {sentence}\n    {}\n", pods.join(", "))
        }),
    );
    if let Some(hidden) = read.not_considered() {
        text.push_str(&format!("\n{hidden}\n"));
    }
    if !plan.proposals.is_empty() {
        text.push_str(
            "\nPods are asked by EvictionRequests in the name descheduler.sigs.k8s.io; who has one already is not asked again. Pods that are \
             over, and those with the annotation request-evict-only, are evicted by the eviction API.\n",
        );
    }
    text.push_str("\nNothing was changed.\n");
    text
}

/// With its head, if there is anything in it.
fn section(text: &mut String, head: &str, lines: impl Iterator<Item = String>) {
    let lines: String = lines.collect();
    if !lines.is_empty() {
        text.push_str(head);
        text.push_str(&lines);
    }
}

fn proposals(proposals: &[Proposal], environment: &Environment) -> String {
    let mut table = Table::new(&["  NAMESPACE", "POD", "NODE", "PLUGIN", "WHY", "WOULD FIT ON"]);
    for proposal in proposals.iter().take(PODS) {
        let pod = &proposal.pod;
        table.row(vec![
            format!("  {}", pod.namespace),
            pod.name.clone(),
            pod.node.clone(),
            proposal.plugin.to_string(),
            proposal.reason.to_string(),
            proposal.fits_on.clone().unwrap_or_else(|| "no other node that stays".to_owned()),
        ]);
    }
    if let Some(width) = environment.width {
        table.fit(width, &["  NAMESPACE"], "POD");
    }
    let more = match proposals.len().saturating_sub(PODS) {
        0 => String::new(),
        more => format!("  and {} more\n", count(more, "pod")),
    };
    format!("{}{more}", table.render())
}

/// The plan for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Structured {
    proposals: Vec<Value>,
    leaving: Vec<String>,
    stops: Vec<String>,
    problems: Vec<String>,
    findings: Vec<Value>,
    /// What the user may not read.
    not_considered: Vec<&'static str>,
}

pub fn structured(plan: &Plan, findings: &[Finding], read: &ClusterRead) -> Structured {
    let proposal = |it: &Proposal| {
        json!({
            "namespace": it.pod.namespace, "pod": it.pod.name, "uid": it.pod.uid, "node": it.pod.node,
            "profile": it.profile, "plugin": it.plugin.as_str(), "reason": it.reason.to_string(), "fitsOn": it.fits_on,
        })
    };
    let finding = |it: &Finding| {
        let pods: Vec<String> = it.pods().iter().map(ToString::to_string).collect();
        json!({"finding": it.sentence(), "pods": pods, "advice": it.advice()})
    };
    Structured {
        proposals: plan.proposals.iter().map(proposal).collect(),
        leaving: plan.still_wanted.clone(),
        stops: plan.stops.iter().map(|stopped| stopped.by.to_string()).collect(),
        problems: problems(read, &plan.problems).collect(),
        findings: findings.iter().map(finding).collect(),
        not_considered: read.hidden.clone(),
    }
}

pub fn explanation(namespace: &str, name: &str, found: &Explanation, read: &ClusterRead) -> String {
    let pod = format!("pod {namespace}/{name}");
    match found {
        Explanation::NoSuchPod => format!("There is no {pod}.\n"),
        Explanation::Stopped(stop) => format!("Nobody is asked to leave: {stop}.\n"),
        Explanation::NodeNotReady { node } => {
            format!("The {pod} is on node {node}, which is not ready, so nothing of it is descheduled.\n")
        }
        Explanation::NotLookedAt { node: None } => {
            format!("The {pod} is on no node, so nothing is descheduled.\n")
        }
        Explanation::NotLookedAt { node: Some(node) } => {
            format!("The {pod} is on node {node}, which the policy does not look at (nodeSelector).\n")
        }
        Explanation::Pod { leaving, plugins, problems: of_plan } => {
            let is_proposed = plugins.iter().any(|view| view.proposed);
            let mut text = match (&leaving[..], is_proposed) {
                ([], true) => format!("The {pod} would be asked to leave.\n"),
                ([], false) => format!("The {pod} stays.\n"),
                (by, _) => format!("The {pod} is leaving already, by {}.\n", by.join(", ")),
            };
            for view in plugins {
                text.push_str(&format!("- {view}\n"));
                if let Some(node) = &view.fits_on {
                    text.push_str(&format!("    it would fit on {node}\n"));
                }
            }
            if plugins.is_empty() && of_plan.is_empty() {
                text.push_str("- no plugin of the policy is enabled\n");
            }
            for problem in problems(read, of_plan) {
                text.push_str(&format!("- {problem}\n"));
            }
            if let Some(hidden) = read.not_considered() {
                text.push_str(&format!("{hidden}\n"));
            }
            text
        }
    }
}

/// What keeps plugins from working, after why that is.
fn problems(read: &ClusterRead, of_plan: &[Problem]) -> impl Iterator<Item = String> {
    read.missing_usage().chain(of_plan.iter().map(|problem| read.problem(problem)))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
