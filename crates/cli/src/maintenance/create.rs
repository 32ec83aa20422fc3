//! Creating a maintenance, or finding the one that does the same already.

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use usher_api::NodeMaintenance;
use usher_decide::maintenance::selector::selected;
use usher_decide::snapshot::Node;
use usher_forecast::joining::{Choice, choose};

use super::guards::GuardArguments;
use super::selection::describe;
use crate::Error;
use crate::ask::FIELD_MANAGER;
use crate::error::is_code;
use crate::reading::{Read, sent};
use crate::world::list;

/// Others may create maintenances at the same time, but hardly so often.
const ATTEMPTS: usize = 20;

/// What came of it.
#[derive(Debug)]
pub enum Made {
    Created(Box<NodeMaintenance>),
    /// There was one that drains the same nodes.
    Existing(Box<NodeMaintenance>),
}

/// `is_named`: the person has chosen the name. `joins`: one that does the same already is as good. `guards`: what the person has
/// agreed to lose, if that matters.
pub async fn create(
    client: &Client,
    draft: &NodeMaintenance,
    is_named: bool,
    joins: bool,
    guards: Option<&GuardArguments>,
    nodes: &[Node],
    program: &str,
) -> Result<Made, Error> {
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    let post = PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_string()) };
    let mut unchecked = guards;
    for _ in 0..ATTEMPTS {
        let known = list(&maintenances, None).await?;
        match choose(draft, is_named, joins, &known, nodes) {
            Choice::Follow(one) => return Ok(Made::Existing(Box::new(one.clone()))),
            Choice::Planned(one) => return Err(planned(one, program)),
            Choice::NameTaken(one) => return Err(name_taken(one, program)),
            Choice::Create(name) => {
                if let Some(guards) = unchecked.take() {
                    guards.check(client, &names_of(draft, nodes)).await?;
                }
                let mut wanted = draft.clone();
                wanted.metadata.name = Some(name);
                match maintenances.create(&post, &sent(wanted)?).await {
                    Ok(created) => return Ok(Made::Created(Box::new(created.wanted()?))),
                    // Somebody was faster: look again.
                    Err(why) if is_code(&why, 409) => {}
                    Err(why) => return Err(why.into()),
                }
            }
        }
    }
    Err(Error::Refused("others keep changing the maintenances: try again in a moment".to_string()))
}

/// What a drain would do.
#[derive(Debug, PartialEq, Eq)]
pub enum Would {
    /// Create a maintenance of this name.
    Create(String),
    /// Follow this one, which drains the nodes already.
    Follow(String),
}

/// What a drain would do, seeing what is there.
pub async fn would(
    client: &Client,
    draft: &NodeMaintenance,
    is_named: bool,
    nodes: &[Node],
    program: &str,
) -> Result<Would, Error> {
    let known = list(&Api::all(client.clone()), None).await?;
    match choose(draft, is_named, true, &known, nodes) {
        Choice::Create(name) => Ok(Would::Create(name)),
        Choice::Follow(one) => Ok(Would::Follow(one.name_any())),
        Choice::Planned(one) => Err(planned(one, program)),
        Choice::NameTaken(one) => Err(name_taken(one, program)),
    }
}

/// The maintenance as the server would create it. Nothing is stored.
pub async fn create_dry(
    client: &Client,
    draft: &NodeMaintenance,
    name: String,
) -> Result<NodeMaintenance, Error> {
    let maintenances: Api<Read<NodeMaintenance>> = Api::all(client.clone());
    let post = PostParams { dry_run: true, field_manager: Some(FIELD_MANAGER.to_string()) };
    let mut wanted = draft.clone();
    wanted.metadata.name = Some(name);
    maintenances.create(&post, &sent(wanted)?).await?.wanted()
}

/// The nodes that it selects.
pub fn names_of(maintenance: &NodeMaintenance, nodes: &[Node]) -> Vec<String> {
    selected(&maintenance.spec.node_selector, nodes).iter().map(|node| node.name.to_string()).collect()
}

fn planned(one: &NodeMaintenance, program: &str) -> Error {
    let (name, stage) = (one.name_any(), one.spec.stage);
    Error::Refused(format!(
        "maintenance {name} is planned for these nodes, in stage {stage:?}: continue with {program} maintenance drain {name}, or \
         give this one a --name of its own"
    ))
}

fn name_taken(one: &NodeMaintenance, program: &str) -> Error {
    let (name, stage) = (one.name_any(), one.spec.stage);
    Error::Refused(format!(
        "there is a maintenance {name:?} already, in stage {stage:?} and of {}: choose another --name, or see {program} \
         maintenance describe {name}",
        describe(&one.spec.node_selector)
    ))
}

/// What of the draft the maintenance that is followed does not have.
pub fn differences(found: &NodeMaintenance, draft: &NodeMaintenance) -> Vec<String> {
    let mut differences = Vec::new();
    let plan = &draft.spec.drain_plan;
    if !plan.is_empty() && !plan.iter().all(|entry| found.spec.drain_plan.contains(entry)) {
        differences.push("it keeps its own plan, which cannot change");
    }
    if draft.spec.drain_limit.is_some() && draft.spec.drain_limit != found.spec.drain_limit {
        differences.push("it keeps its own limit of nodes");
    }
    if !draft.spec.reason.is_empty() && draft.spec.reason != found.spec.reason {
        differences.push("it keeps its own reason");
    }
    differences.into_iter().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::maintenance;
    use serde_json::json;

    #[test]
    fn who_may_not_make_a_maintenance_is_told_of_the_one_that_is_there() {
        let idle = maintenance("idle", "Idle", &["n1"], json!({}));
        let why = planned(&idle, "usher").to_string();
        assert!(why.contains("in stage Idle: continue with usher maintenance drain idle"), "{why}");
        let other = maintenance("m", "Drain", &["n2", "n3"], json!({}));
        let why = name_taken(&other, "usher").to_string();
        assert!(why.contains("in stage Drain and of n2, n3"), "{why}");
    }

    #[test]
    fn who_follows_learns_what_is_different() {
        let found = maintenance("m", "Drain", &["n1"], json!({"reason": "disks"}));
        let plain = maintenance("m", "Drain", &["n1"], json!({}));
        assert!(differences(&found, &plain).is_empty());
        let other =
            json!({"reason": "kernel", "drainPlan": [{"podPriority": 5}], "drainLimit": {"maxNodes": 1}});
        assert_eq!(differences(&found, &maintenance("m", "Drain", &["n1"], other)).len(), 3);
    }
}
