//! From a review of a node maintenance to its answer: whether the caller may delete the nodes that it can mean, and which it
//! selects at present.

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::Request as Call;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use usher_api::NodeMaintenance;
use usher_decide::admission::Verdict;
use usher_decide::admission::drain_plan;
use usher_decide::admission::node_maintenance::{
    Rights as NodeRights, Selected, is_worth_a_look, on_create, on_status_or_delete, on_update,
};
use usher_decide::admission::node_rights::{Needed, has_effect, needed};
use usher_decide::maintenance::selector::NodeMatcher;

use crate::admission::Endpoint;
use crate::objects::Object;
use crate::review::{self, Operation, Request};
use crate::rights::Rights;
use usher_client::kind_of;

pub(crate) async fn judge(
    client: &Client,
    rights: &Rights,
    endpoint: Endpoint,
    request: Request<'_>,
) -> Value {
    let Request { uid, operation, sub_resource, user_info, object, old_object, .. } = request;
    let (object, old_object) = (Object::new(object), Object::new(old_object));
    let is_status = !sub_resource.is_empty();
    let objects = match operation {
        Operation::Connect => return review::answer(&uid, &Verdict::allow()),
        Operation::Create => object.maintenance().map(|new| (None, Some(new))),
        Operation::Update => match (old_object.maintenance(), object.maintenance()) {
            (Ok(old), Ok(new)) => Ok((Some(old), Some(new))),
            // What is there cannot be read and stays, or is set right: nobody knows which nodes it means.
            (Err(_), Ok(_)) => Ok((None, None)),
            (_, Err(_)) if is_status || object.has_spec_of(&old_object) => Ok((None, None)),
            (_, Err(why)) => Err(why),
        },
        Operation::Delete => Ok((old_object.maintenance().ok(), None)),
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
    if let (Some(old), Some(new)) = (old, new)
        && !is_status
        && !has_effect(old, new)
    {
        return review::answer(&uid, &Verdict::allow());
    }
    let needed = match (old, new) {
        (None, None) => Needed::All { term: 0, is_old: true },
        (old, new) => needed(old, new),
    };
    let access = match rights.may_delete_nodes(&user_info, &needed).await {
        Ok(access) => access,
        Err(why) => {
            let why = kind_of(&why);
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
    let request = Call::new(Node::url_path(&(), None)).list_metadata(&ListParams::default().match_any());
    let text = match request.map_err(kube::Error::BuildRequest) {
        Ok(request) => client.request_text(request).await,
        Err(why) => Err(why),
    };
    let text = text
        .inspect_err(|why| tracing::warn!(why = kind_of(why), "nodes cannot be listed for a warning"))
        .ok()?;
    let nodes = serde_json::from_str::<Listed<'_>>(&text).ok()?.items;
    let is_selected = |node: &&&RawValue| {
        let node = Object::new(Some(node));
        matcher.matches(&node.name(), &node.labels())
    };
    Some(Selected { nodes: nodes.iter().filter(is_selected).count(), of: nodes.len() })
}

#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}
