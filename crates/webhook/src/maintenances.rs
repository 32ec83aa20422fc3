//! From a review of a node maintenance to its answer: the nodes that it selects, and whether the caller may delete them.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use usher_api::NodeMaintenance;
use usher_decide::admission::Verdict;
use usher_decide::admission::node_maintenance::{
    Selected, concerns_nodes, on_create, on_created, on_delete, on_update,
};
use usher_decide::maintenance::selector::NodeMatcher;

use crate::admission::Endpoint;
use crate::review::{self, Operation, Request};
use crate::rights::{Caller, Rights};

pub(crate) async fn judge(
    client: &Client,
    rights: &Rights,
    endpoint: Endpoint,
    request: Request<Value>,
) -> Value {
    let Request { uid, operation, user_info, object, old_object, .. } = request;
    let read = |object: Option<Value>| serde_json::from_value::<NodeMaintenance>(object.unwrap_or_default());
    let objects = match operation {
        Operation::Connect => return review::answer(&uid, &Verdict::allow()),
        Operation::Create => read(object).map(|new| (None, Some(new))),
        Operation::Update => read(old_object).and_then(|old| read(object).map(|new| (Some(old), Some(new)))),
        Operation::Delete => read(old_object).map(|old| (Some(old), None)),
    };
    let (old, new) = match objects {
        Ok(objects) => objects,
        // The schema is checked after the changes are made, and says it better.
        Err(_) if endpoint == Endpoint::FillMaintenances => return review::answer(&uid, &Verdict::allow()),
        Err(why) => return review::unreadable::<NodeMaintenance>(&uid, &why.to_string()),
    };
    if let (Some(old), Some(new)) = (&old, &new)
        && !concerns_nodes(old, new)
    {
        return review::answer(&uid, &Verdict::allow());
    }
    let mut selected = Selected::default();
    // Who takes nodes out of a maintenance decides on them as who puts them in.
    for maintenance in [&new, &old].into_iter().flatten() {
        match find(client, rights, &user_info, maintenance).await {
            Ok(found) if selected.user.is_empty() => selected = found,
            Ok(found) => {
                selected.forbidden.extend(found.forbidden);
                selected.is_cut |= found.is_cut;
            }
            Err(why) => {
                let what = format!(
                    "whether you may delete the selected nodes cannot be found out: {why}; try again"
                );
                return review::failure(&uid, &what);
            }
        }
        if matches!((&old, &new), (Some(old), Some(new)) if old.spec.node_selector == new.spec.node_selector)
        {
            break;
        }
    }
    selected.forbidden.sort();
    selected.forbidden.dedup();
    let verdict = match (&old, &new) {
        (Some(old), Some(new)) => on_update(old, new, &selected),
        (None, Some(new)) if endpoint == Endpoint::FillMaintenances => on_create(new, &selected),
        (None, Some(new)) => on_created(new, &selected),
        _ => on_delete(&selected),
    };
    review::answer(&uid, &verdict)
}

/// What the selector of the maintenance meets now.
async fn find(
    client: &Client,
    rights: &Rights,
    caller: &Caller,
    maintenance: &NodeMaintenance,
) -> kube::Result<Selected> {
    let matcher = NodeMatcher::new(&maintenance.spec.node_selector);
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    let of = nodes.len();
    let names: Vec<String> = nodes
        .into_iter()
        .filter_map(|node| {
            let name = node.metadata.name?;
            matcher.matches(&name, &node.metadata.labels.unwrap_or_default()).then_some(name)
        })
        .collect();
    let denied = rights.nodes_denied(caller, &names).await?;
    let user = if caller.username.is_empty() { "nobody" } else { &caller.username };
    Ok(Selected {
        nodes: names.len(),
        of,
        user: user.to_owned(),
        forbidden: denied.nodes,
        is_cut: denied.is_cut,
    })
}
