//! Creating a maintenance, or finding the one that does the same already.

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use usher_api::{NodeMaintenance, NodeMaintenanceStage as Stage};
use usher_decide::followed_drain::is_active;
use usher_decide::snapshot::Node;

use super::guards::GuardArguments;
use super::selection::{is_by_name, selected};
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

/// What to do about a draft, seeing what is there.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Create(String),
    /// This one does the same.
    Follow(String),
    Refuse(String),
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
        match choose(draft, is_named, joins, &known, nodes, program) {
            Choice::Refuse(why) => return Err(Error::Refused(why)),
            Choice::Follow(name) => {
                let found = known.into_iter().find(|one| one.name_any() == name);
                return found.map(|found| Made::Existing(Box::new(found))).ok_or_else(busy);
            }
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
    Err(busy())
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
    match choose(draft, is_named, true, &known, nodes, program) {
        Choice::Create(name) => Ok(Would::Create(name)),
        Choice::Follow(name) => Ok(Would::Follow(name)),
        Choice::Refuse(why) => Err(Error::Refused(why)),
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

fn busy() -> Error {
    Error::Refused("others keep changing the maintenances: try again in a moment".to_string())
}

fn choose(
    draft: &NodeMaintenance,
    is_named: bool,
    joins: bool,
    known: &[NodeMaintenance],
    nodes: &[Node],
    program: &str,
) -> Choice {
    let base = draft.name_any();
    let of_that_name = |name: &str| known.iter().find(|one| one.name_any() == name);
    if is_named {
        return match of_that_name(&base) {
            None => Choice::Create(base),
            Some(one) if joins && is_active(one) && does_the_same(one, draft, nodes) => {
                follow(one, draft, program)
            }
            Some(one) => Choice::Refuse(format!(
                "there is a maintenance {base:?} already, in stage {:?} and of {}: choose another --name, or see {program} \
                 maintenance describe {base}",
                one.spec.stage,
                super::selection::describe(&one.spec.node_selector)
            )),
        };
    }
    let same = known.iter().filter(|one| joins && is_active(one) && does_the_same(one, draft, nodes));
    // The one that has come furthest is the one that does it.
    match same.max_by_key(|one| one.spec.stage) {
        Some(one) => follow(one, draft, program),
        None => {
            let numbered = (2_usize..).map(|number| format!("{base}-{number}"));
            let mut free =
                std::iter::once(base.clone()).chain(numbered).filter(|name| of_that_name(name).is_none());
            Choice::Create(free.next().unwrap_or(base))
        }
    }
}

fn follow(one: &NodeMaintenance, draft: &NodeMaintenance, program: &str) -> Choice {
    let (name, stage) = (one.name_any(), one.spec.stage);
    if stage >= draft.spec.stage {
        return Choice::Follow(name);
    }
    Choice::Refuse(format!(
        "maintenance {name} is planned for these nodes, in stage {stage:?}: continue with {program} maintenance drain {name}, or \
         give this one a --name of its own"
    ))
}

/// Labels may mean other nodes tomorrow; names do not.
fn does_the_same(one: &NodeMaintenance, draft: &NodeMaintenance, nodes: &[Node]) -> bool {
    one.spec.node_selector == draft.spec.node_selector
        || (is_by_name(&draft.spec.node_selector) && names_of(one, nodes) == names_of(draft, nodes))
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

/// Other maintenances that are at work on some of the nodes, with these nodes.
pub fn overlaps<'a>(
    of: &NodeMaintenance,
    known: &'a [NodeMaintenance],
    nodes: &[Node],
) -> Vec<(&'a NodeMaintenance, Vec<String>)> {
    let own = selected(&of.spec.node_selector, nodes);
    let others = known.iter().filter(|one| one.name_any() != of.name_any());
    let at_work = others.filter(|one| is_active(one) && one.spec.stage != Stage::Idle);
    let shared = at_work.map(|one| {
        let theirs = selected(&one.spec.node_selector, nodes);
        let both = own.iter().filter(|node| theirs.iter().any(|other| other.name == node.name));
        (one, both.map(|node| node.name.to_string()).collect::<Vec<_>>())
    });
    shared.filter(|(_, both)| !both.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{maintenance, node};
    use serde_json::json;

    fn chosen(draft: &NodeMaintenance, is_named: bool, known: &[NodeMaintenance]) -> Choice {
        let nodes = [node("n1"), node("n2"), node("n3")];
        choose(draft, is_named, true, known, &nodes, "usher")
    }

    #[test]
    fn the_same_nodes_are_drained_once() {
        let draft = maintenance("drain-n1", "Drain", &["n1"], json!({}));
        let named = |name: &str, stage: &str, nodes: &[&str]| maintenance(name, stage, nodes, json!({}));
        let create = |name: &str| Choice::Create(name.to_string());
        let follow = |name: &str| Choice::Follow(name.to_string());
        let rows = [
            (vec![], create("drain-n1")),
            (vec![named("other", "Drain", &["n1", "n2"])], create("drain-n1")),
            (vec![named("other", "Drain", &["n1"])], follow("other")),
            (vec![named("drain-n1", "Complete", &["n1"])], create("drain-n1-2")),
            (vec![named("drain-n1", "Drain", &["n2"])], create("drain-n1-2")),
            (vec![named("a", "Idle", &["n1"]), named("b", "Drain", &["n1"])], follow("b")),
        ];
        for (known, wanted) in rows {
            assert_eq!(chosen(&draft, false, &known), wanted, "{known:?}");
        }
        let Choice::Refuse(why) = chosen(&draft, false, &[named("idle", "Idle", &["n1"])]) else {
            panic!("a maintenance that is only planned is started by whoever planned it")
        };
        assert!(why.contains("usher maintenance drain idle"), "{why}");
    }

    #[test]
    fn a_name_that_is_taken_is_refused_unless_it_means_the_same() {
        let draft = maintenance("m", "Drain", &["n1"], json!({}));
        assert_eq!(chosen(&draft, true, &[]), Choice::Create("m".into()));
        let same = maintenance("m", "Drain", &["n1"], json!({}));
        assert_eq!(chosen(&draft, true, &[same]), Choice::Follow("m".into()));
        let other = maintenance("m", "Drain", &["n2", "n3"], json!({}));
        let Choice::Refuse(why) = chosen(&draft, true, &[other]) else { panic!("it is of other nodes") };
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

    #[test]
    fn maintenances_at_work_on_the_same_nodes_are_named() {
        let nodes = [node("n1"), node("n2"), node("n3")];
        let of = maintenance("m", "Drain", &["n1", "n2"], json!({}));
        let known = [
            maintenance("m", "Drain", &["n1", "n2"], json!({})),
            maintenance("idle", "Idle", &["n1"], json!({})),
            maintenance("over", "Complete", &["n1"], json!({})),
            maintenance("elsewhere", "Drain", &["n3"], json!({})),
            maintenance("other", "Cordon", &["n2", "n3"], json!({})),
        ];
        let found: Vec<(String, Vec<String>)> =
            overlaps(&of, &known, &nodes).into_iter().map(|(one, both)| (one.name_any(), both)).collect();
        assert_eq!(found, [("other".to_string(), vec!["n2".to_string()])]);
    }
}
