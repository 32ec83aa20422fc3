//! The explanation of a Deployment as text.

use jiff::Timestamp;

use super::explanation::DeploymentExplanation;
use crate::Environment;
use crate::explain_node::render_group;
use crate::sheet::Sheet;

pub fn render(explanation: &DeploymentExplanation, environment: &Environment, now: Timestamp) -> String {
    let mut sheet = Sheet::new(environment);
    sheet.headline(&environment.bold(&headline(explanation)));
    sheet.put("Replicas", &replicas(explanation));
    sheet.put("Surge", &surge(explanation));
    if let Some(unknown) = &explanation.unknown_strategy {
        sheet.put("Strategy", &environment.alarming(unknown));
    }
    for (at, line) in waits_for(explanation).iter().enumerate() {
        sheet.put(if at == 0 { "Waits for" } else { "" }, line);
    }
    for group in &explanation.groups {
        sheet.space();
        render_group(&mut sheet, group, environment, now);
    }
    let program = &environment.program;
    let namespace = &explanation.namespace;
    sheet.space();
    if explanation.groups.is_empty() {
        sheet.put("To see more", &format!("{program} drain NODE --dry-run"));
    } else {
        sheet.put("More", &format!("{program} explain POD -n {namespace}"));
    }
    sheet.text
}

fn headline(explanation: &DeploymentExplanation) -> String {
    let name = format!("Deployment {}/{}", explanation.namespace, explanation.name);
    let asked = match explanation.replicas_to_evict {
        0 => return format!("{name}: none of its pods is asked to leave."),
        1 => "1 of its pods is asked to leave".to_owned(),
        count => format!("{count} of its pods are asked to leave"),
    };
    match (&explanation.declines, explanation.surge) {
        (Some(_), _) => format!("{name}: {asked}, and left to the eviction API."),
        (None, 0) => format!("{name}: {asked}."),
        (None, by) => format!("{name} surges by {by}: {asked}."),
    }
}

fn replicas(explanation: &DeploymentExplanation) -> String {
    let (wanted, available) = (explanation.wanted_replicas, explanation.available_replicas);
    match explanation.surge {
        0 => format!("{wanted} wanted, {available} available"),
        by => format!("{wanted} wanted and {by} more for now, {available} available"),
    }
}

fn surge(explanation: &DeploymentExplanation) -> String {
    if let Some(why) = &explanation.declines {
        return why.clone();
    }
    if let Some(most) = explanation.max_unavailable {
        return format!("none: at most {most} of its pods go at a time, and others come for them then");
    }
    let through = match &explanation.autoscaler {
        _ if explanation.hands_over => ", handed over beside the replicas".to_owned(),
        Some(name) => format!(", through the limits of HorizontalPodAutoscaler {name}"),
        None => String::new(),
    };
    let reverted = match explanation.reverted {
        0 => "",
        _ if explanation.hands_over => "; somebody kept setting the replicas back",
        _ => "; somebody has set it back once, and there is one more try",
    };
    format!("at most {} at a time{through}{reverted}", explanation.max_surge)
}

fn waits_for(explanation: &DeploymentExplanation) -> Vec<String> {
    let mut lines = Vec::new();
    if explanation.waiting.is_empty() && explanation.replaced.is_empty() {
        return lines;
    }
    if explanation.is_rolling_out {
        lines.push("its rollout, which goes first".to_owned());
    }
    lines.extend(
        explanation.unavailable.iter().map(|it| format!("{} {} ({})", it.pod, it.message, it.reason)),
    );
    if explanation.missing > 0 {
        let why = explanation.replica_failure.as_ref();
        let why =
            why.map(|why| format!(", which cannot be made: {why} (ReplicaFailure)")).unwrap_or_default();
        let pods = if explanation.missing == 1 { "pod" } else { "pods" };
        lines.push(format!("{} more {pods}{why}", explanation.missing));
    }
    lines
}
