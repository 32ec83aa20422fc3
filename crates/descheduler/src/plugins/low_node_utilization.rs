//! LowNodeUtilization: takes pods from nodes above the target, as long as nodes below the thresholds have room.

use super::utilization::{Moves, Resources};
use super::{Plugin, PodInfo, Run};
use crate::cycle::Cycle;
use crate::plan::{Problem, Reason};
use crate::policy::PluginName;
use crate::policy::args::{LowNodeUtilizationArgs, UsageSource};

#[derive(Debug)]
pub struct LowNodeUtilization {
    pub args: LowNodeUtilizationArgs,
}

impl Plugin for LowNodeUtilization {
    fn name(&self) -> PluginName {
        PluginName::LowNodeUtilization
    }

    fn observe(&mut self, _: &PodInfo<'_>, _: &mut Vec<i64>) {}

    fn forget(&mut self, _: u32) {}

    fn counts_pods(&self) -> bool {
        false
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        let args = &self.args;
        if matches!(args.usage, UsageSource::Prometheus { .. }) {
            // A query measures replacements as well.
            cycle.keep_replaced();
        }
        let resources = Resources::of(&args.thresholds, &args.usage, cycle.cluster);
        resources.warn_of_unknown(cycle, run.profile, self.name(), &args.thresholds);
        let mut uses = match resources.uses(cycle, &args.usage) {
            Ok(uses) => uses,
            Err(node) => {
                let node = cycle.node(node).map(|node| node.name.to_string()).unwrap_or_default();
                let profile = run.profile.to_owned();
                cycle.plan.problems.push(Problem::NoUsageOfNode { profile, plugin: self.name(), node });
                return;
            }
        };
        let (low, target) = match args.use_deviation_thresholds {
            true => (
                resources.around_average(&uses, &args.thresholds, -1.0),
                resources.around_average(&uses, &args.target_thresholds, 1.0),
            ),
            false => (resources.thresholds(&args.thresholds), resources.thresholds(&args.target_thresholds)),
        };
        for node in &mut uses {
            node.cap(&target);
        }
        let all = uses.len();
        let (under, rest): (Vec<_>, Vec<_>) =
            uses.into_iter().partition(|node| !node.unschedulable && node.is_below(&low));
        let over: Vec<_> = rest.into_iter().filter(|node| node.is_above(&target)).collect();
        let too_few = i64::try_from(under.len()).is_ok_and(|under| under <= args.number_of_nodes);
        if under.is_empty() || too_few || under.len() == all || over.is_empty() {
            return;
        }
        let moves = Moves {
            resources: &resources,
            source: &args.usage,
            excluded_namespaces: &args.excluded_namespaces,
            limit_per_node: args.eviction_limit_per_node,
            until_below: true,
            only_asking_for: None,
            most_used_first: true,
        };
        moves.run(cycle, run, over, &under, |node| {
            let (resource, percent) = resources.foremost(node, &target);
            Reason::Overutilized { resource, percent }
        });
    }
}
