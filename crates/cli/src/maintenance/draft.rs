//! A maintenance as it was asked for on the command line, before it is created.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use usher_api::{DrainLimit, DrainPlanEntry, NodeMaintenance, NodeMaintenanceSpec, NodeMaintenanceStage};
use usher_decide::admission::Verdict;
use usher_decide::admission::node_maintenance::{Selected, before_create};

use super::selection::NodeArguments;
use crate::Error;

#[derive(Debug, clap::Args)]
pub struct DraftArguments {
    #[command(flatten)]
    pub nodes: NodeArguments,
    /// Why it is done, for everybody to read.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// The order in which pods are evicted: a YAML or JSON list of {podPriority, podType, podSelector}, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Drain no more than so many nodes at a time: a number or a percentage.
    #[arg(long, value_name = "N|P%", value_parser = max_nodes)]
    max_nodes: Option<IntOrString>,
    /// The label by which --max-nodes is counted, such as topology.kubernetes.io/zone.
    #[arg(long, value_name = "LABEL", requires = "max_nodes")]
    topology_key: Option<String>,
    /// The name of the maintenance; by default it is made from the nodes.
    #[arg(long, value_name = "NAME", value_parser = maintenance_name)]
    pub name: Option<String>,
}

/// So long a name may become that is made from nodes.
const NAME_LENGTH: usize = 40;

impl DraftArguments {
    /// Reads the plan. It is not checked against the cluster yet: see [`check`].
    pub fn draft(&self, stage: NodeMaintenanceStage) -> Result<NodeMaintenance, Error> {
        let drain_plan = self.plan.as_deref().map(read_plan).transpose()?.unwrap_or_default();
        let drain_limit = self.max_nodes.clone().map(|max_nodes| DrainLimit {
            max_nodes,
            topology_key: self.topology_key.clone().unwrap_or_default(),
        });
        let spec = NodeMaintenanceSpec {
            node_selector: self.nodes.selector(),
            stage,
            drain_plan,
            drain_limit,
            reason: self.reason.clone(),
        };
        let verb = if stage == NodeMaintenanceStage::Drain { "drain" } else { "maintain" };
        let name = self.name.clone().unwrap_or_else(|| name_from(verb, &self.nodes.summary()));
        Ok(NodeMaintenance::new(&name, spec))
    }
}

/// What admission would say, as far as that can be known here; its warnings.
pub fn check(draft: &NodeMaintenance, selected: usize, all: usize) -> Result<Vec<String>, Error> {
    match before_create(draft, Selected { nodes: selected, of: all }) {
        Verdict::Allow { warnings, .. } => Ok(warnings),
        Verdict::Deny(denial) => Err(Error::Usage(denial.to_string())),
    }
}

fn name_from(verb: &str, nodes: &str) -> String {
    let mut name = format!("{verb}-");
    for letter in nodes.chars() {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => name.push(letter),
            _ if name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(NAME_LENGTH);
    name.trim_end_matches('-').to_string()
}

fn maintenance_name(text: &str) -> Result<String, String> {
    if usher_api::domain::is_subdomain(text) {
        return Ok(text.to_string());
    }
    Err(format!("{text:?} cannot be the name of a maintenance: use lower-case letters, digits, '-' and '.'"))
}

fn max_nodes(text: &str) -> Result<IntOrString, String> {
    let wrong = || "it must be a number of nodes, 1 or more, or a percentage from 1% to 100%".to_string();
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse::<u32>() {
            Ok(1..=100) => Ok(IntOrString::String(text.to_string())),
            _ => Err(wrong()),
        },
        None => match text.parse::<i32>() {
            Ok(count @ 1..) => Ok(IntOrString::Int(count)),
            _ => Err(wrong()),
        },
    }
}

fn read_plan(file: &Path) -> Result<Vec<DrainPlanEntry>, Error> {
    let mut text = String::new();
    let is_read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text))
    };
    let wrong = |why: String| Error::Usage(format!("the plan {} cannot be used: {why}", file.display()));
    is_read.map_err(|why| wrong(why.to_string()))?;
    plan_of(&text).map_err(wrong)
}

/// A list of entries, or something that has one in `drainPlan`, such as a whole maintenance.
fn plan_of(text: &str) -> Result<Vec<DrainPlanEntry>, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|why| one_line(&why.to_string()))?;
    let entries = match &value {
        Value::Array(_) => &value,
        Value::Object(_) if value.get("drainPlan").is_some() => &value["drainPlan"],
        Value::Object(_) if value["spec"].get("drainPlan").is_some() => &value["spec"]["drainPlan"],
        _ => return Err("it is not a list of entries; write for example - {podPriority: 1000}".to_string()),
    };
    let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().enumerate().map(|(at, entry)| entry_of(at + 1, entry)).collect()
}

fn entry_of(number: usize, entry: &Value) -> Result<DrainPlanEntry, String> {
    // What is misspelt would be left out silently, and the plan would mean something else.
    let known = ["podPriority", "podType", "podSelector"];
    let unknown = entry.as_object().into_iter().flatten().find(|(key, _)| !known.contains(&key.as_str()));
    if let Some((key, _)) = unknown {
        return Err(format!("entry {number} has {key:?}; an entry has podPriority, podType and podSelector"));
    }
    serde_json::from_value(entry.clone()).map_err(|why| format!("entry {number}: {why}"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_api::PodType;

    #[test]
    fn a_name_is_made_from_the_nodes() {
        assert_eq!(name_from("drain", "node-1"), "drain-node-1");
        assert_eq!(name_from("drain", "pool in (Blue, green)"), "drain-pool-in-blue-green");
        assert_eq!(name_from("maintain", "!gpu"), "maintain-gpu");
        assert!(name_from("drain", &"n".repeat(300)).len() <= NAME_LENGTH);
        for name in ["drain-node-1", "drain-pool-in-blue-green"] {
            assert!(maintenance_name(name).is_ok());
        }
        assert!(maintenance_name("My_Maintenance").is_err());
    }

    #[test]
    fn a_limit_is_a_number_or_a_percentage() {
        assert_eq!(max_nodes("3"), Ok(IntOrString::Int(3)));
        assert_eq!(max_nodes("10%"), Ok(IntOrString::String("10%".into())));
        for wrong in ["0", "-1", "0%", "101%", "ten", ""] {
            assert!(max_nodes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_is_a_list_of_entries_wherever_it_is() {
        let entries = "- {podPriority: 1000}\n- {podPriority: 2000, podType: DaemonSet}\n";
        let plan = plan_of(entries).unwrap();
        assert_eq!(plan[0], DrainPlanEntry::up_to(1000, PodType::Default));
        assert_eq!(plan[1], DrainPlanEntry::up_to(2000, PodType::DaemonSet));
        let inside = r#"{"spec": {"drainPlan": [{"podPriority": 1000}]}}"#;
        assert_eq!(plan_of(inside).unwrap(), plan[..1]);
        assert_eq!(plan_of("drainPlan: [{podPriority: 1000}]").unwrap(), plan[..1]);
        for (text, part) in [
            ("hello", "it is not a list of entries"),
            ("- {podPriority: 1, podselector: {}}", "entry 1 has \"podselector\""),
            ("- {podType: Static}", "entry 1: missing field `podPriority`"),
            ("- {podPriority: 1}\n- {podPriority: 1, podType: Other}", "entry 2: unknown variant `Other`"),
        ] {
            let message = plan_of(text).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }
}
