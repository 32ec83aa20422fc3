//! Why one pod is proposed, or is not.

use std::fmt;

use jiff::Timestamp;

use crate::cluster::node::Node;
use crate::cluster::pod::UNBOUND;
use crate::cycle::Seen;
use crate::evictor::kept::Kept;
use crate::nodes::NodeList;
use crate::plan::{Problem, Reason, Stop};
use crate::policy::PluginName;
use crate::{Cluster, InProgress, Planner, Policy};

/// What a policy has to say of one pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Explanation {
    NoSuchPod,
    /// Nothing is descheduled at all.
    Stopped(Stop),
    /// Its node is not ready, and on such nodes nothing is descheduled.
    NodeNotReady {
        node: String,
    },
    /// It is on no node, or on one that the policy does not look at.
    NotLookedAt {
        node: Option<String>,
    },
    Pod {
        /// Who asked it to leave before, if anybody did.
        leaving: Vec<String>,
        plugins: Vec<PluginView>,
        problems: Vec<Problem>,
    },
}

/// How a plugin of a profile sees the pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginView {
    pub profile: String,
    pub plugin: PluginName,
    /// Why the plugin wants the pod to leave, if it does.
    pub wants: Option<Reason>,
    /// The filter that keeps it. Plugins that balance count only pods that pass, so it may come before any want.
    pub kept: Option<Kept>,
    /// The limit that it would exceed.
    pub stopped: Option<Stop>,
    /// It is in the plan, and fits there.
    pub proposed: bool,
    pub fits_on: Option<String>,
}

impl fmt::Display for PluginView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of profile {:?} ", self.plugin, self.profile)?;
        match (&self.wants, &self.kept, &self.stopped) {
            (Some(reason), Some(kept), _) => {
                write!(f, "wants it to leave ({reason}), and it is kept: {kept}")
            }
            (Some(reason), None, Some(stop)) => write!(f, "wants it to leave ({reason}), and {stop}"),
            (Some(reason), None, None) => write!(f, "wants it to leave: {reason}"),
            (None, Some(kept), _) => write!(f, "does not look at it: {kept}"),
            (None, None, _) => write!(f, "does not want it to leave"),
        }
    }
}

/// Which plugin wants the pod to leave, or which filter keeps it and why.
pub fn explain(
    cluster: &Cluster,
    policy: &Policy,
    in_progress: &InProgress,
    now: Timestamp,
    namespace: &str,
    name: &str,
) -> Explanation {
    let found = cluster.find(namespace, name).and_then(|slot| Some((slot, cluster.pod(slot)?)));
    let Some((slot, pod)) = found else {
        return Explanation::NoSuchPod;
    };
    let (plan, seen) = Planner::default().run(cluster, policy, in_progress, now, Some(slot));
    if let Some(stopped) = plan.stops.iter().find(|stopped| stopped.plugin.is_none()) {
        return Explanation::Stopped(stopped.by.clone());
    }
    let mut nodes = NodeList::default();
    nodes.refresh(cluster, policy.node_selector.as_ref());
    if pod.node == UNBOUND || !nodes.has(pod.node) {
        let node = cluster.node(pod.node).filter(|_| pod.node != UNBOUND);
        let name = node.map(|node| node.name.to_string());
        return match (name, node.is_some_and(Node::is_ready)) {
            (Some(node), false) => Explanation::NodeNotReady { node },
            (node, _) => Explanation::NotLookedAt { node },
        };
    }
    let uid = pod.uid.to_string();
    let asked =
        in_progress.pods().find(|(one, other, of, _)| *one == namespace && *other == name && *of == uid);
    let views = plan.counts.iter().map(|count| {
        let of_plugin = |one: &&Seen| one.profile == count.profile && one.plugin == count.plugin;
        // What a plugin came to in the end says more than a filter on the way.
        let last = seen
            .iter()
            .filter(of_plugin)
            .max_by_key(|one| (one.proposed, one.wants.is_some(), one.stopped.is_some()));
        PluginView {
            profile: count.profile.clone(),
            plugin: count.plugin,
            wants: last.and_then(|one| one.wants.clone()),
            kept: last.and_then(|one| one.kept.clone()),
            stopped: last.and_then(|one| one.stopped.clone()),
            proposed: last.is_some_and(|one| one.proposed),
            fits_on: last.and_then(|one| one.fits_on.clone()),
        }
    });
    Explanation::Pod {
        leaving: asked.map(|(_, _, _, asked)| asked.by.clone()).unwrap_or_default(),
        plugins: views.collect(),
        problems: plan.problems,
    }
}
