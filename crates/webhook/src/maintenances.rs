//! From a review of a node maintenance to its answer: whether the caller may delete the nodes that it can mean, and which it
//! selects at present.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use usher_api::NodeMaintenance;
use usher_decide::admission::Verdict;
use usher_decide::admission::drain_plan;
use usher_decide::admission::node_maintenance::{
    Rights as NodeRights, Selected, is_worth_a_look, on_create, on_status_or_delete, on_update,
};
use usher_decide::admission::node_rights::{has_effect, needed};
use usher_decide::maintenance::selector::NodeMatcher;

use crate::admission::Endpoint;
use crate::review::{self, Operation, Request};
use crate::rights::Rights;

pub(crate) async fn judge(
    client: &Client,
    rights: &Rights,
    endpoint: Endpoint,
    request: Request<Value>,
) -> Value {
    let Request { uid, operation, sub_resource, user_info, object, old_object, .. } = request;
    let read = |object: Option<Value>| serde_json::from_value::<NodeMaintenance>(object.unwrap_or_default());
    let objects = match operation {
        Operation::Connect => return review::answer(&uid, &Verdict::allow()),
        Operation::Create => read(object).map(|new| (None, Some(new))),
        Operation::Update => read(old_object).and_then(|old| read(object).map(|new| (Some(old), Some(new)))),
        Operation::Delete => read(old_object).map(|old| (Some(old), None)),
    };
    let (old, new) = match objects {
        Ok((old, new)) => (old, new),
        // The schema is checked after the changes are made, and says it better.
        Err(_) if endpoint == Endpoint::FillMaintenances => return review::answer(&uid, &Verdict::allow()),
        Err(why) => return review::unreadable::<NodeMaintenance>(&uid, &why.to_string()),
    };
    let (old, new) = (old.as_ref(), new.as_ref());
    if endpoint == Endpoint::FillMaintenances {
        let verdict = new.map_or_else(Verdict::allow, |new| drain_plan::complete(old, new));
        return review::answer(&uid, &verdict);
    }
    let is_status = !sub_resource.is_empty();
    if let (Some(old), Some(new)) = (old, new)
        && !is_status
        && !has_effect(old, new)
    {
        return review::answer(&uid, &Verdict::allow());
    }
    let needed = needed(old, new);
    let access = match rights.may_delete_nodes(&user_info, &needed).await {
        Ok(access) => access,
        Err(why) => {
            let what =
                format!("whether you may delete the selected nodes cannot be found out: {why}; try again");
            return review::failure(&uid, &what);
        }
    };
    let rights = NodeRights { needed, access };
    let selected = match new {
        Some(new) if !is_status && is_worth_a_look(old, new) => selected(client, new).await,
        _ => None,
    };
    let verdict = match (old, new) {
        (Some(old), Some(new)) if !is_status => on_update(old, new, &rights, selected),
        (None, Some(new)) => on_create(new, &rights, selected),
        _ => on_status_or_delete(&rights),
    };
    review::answer(&uid, &verdict)
}

/// What the selector of the maintenance meets now. Only warnings depend on it: if nodes cannot be listed, there are none.
async fn selected(client: &Client, maintenance: &NodeMaintenance) -> Option<Selected> {
    let matcher = NodeMatcher::new(&maintenance.spec.node_selector);
    let nodes: Api<Node> = Api::all(client.clone());
    let listed = nodes.list_metadata(&ListParams::default().match_any()).await;
    let nodes =
        listed.inspect_err(|why| tracing::warn!(%why, "nodes cannot be listed for a warning")).ok()?.items;
    let is_selected = |node: &&kube::core::PartialObjectMeta<Node>| {
        let no_labels = Default::default();
        let labels = node.metadata.labels.as_ref().unwrap_or(&no_labels);
        node.metadata.name.as_ref().is_some_and(|name| matcher.matches(name, labels))
    };
    Some(Selected { nodes: nodes.iter().filter(is_selected).count(), of: nodes.len() })
}
