//! HighNodeUtilization: empties nodes that are used little, the least used first, as long as others have room.

use super::utilization::{Moves, Resources};
use super::{Plugin, PodInfo, Run};
use crate::cycle::Cycle;
use crate::plan::Reason;
use crate::policy::PluginName;
use crate::policy::args::{HighNodeUtilizationArgs, Thresholds, UsageSource};

#[derive(Debug)]
pub struct HighNodeUtilization {
    pub args: HighNodeUtilizationArgs,
}

impl Plugin for HighNodeUtilization {
    fn name(&self) -> PluginName {
        PluginName::HighNodeUtilization
    }

    fn observe(&mut self, _: &PodInfo<'_>, _: &mut Vec<i64>) {}

    fn forget(&mut self, _: u32) {}

    fn counts_pods(&self) -> bool {
        false
    }

    fn run(&mut self, cycle: &mut Cycle<'_>, run: &mut Run<'_>) {
        let args = &self.args;
        let source = UsageSource::Requests;
        let resources = Resources::of(&args.thresholds, &source, cycle.cluster);
        resources.warn_of_unknown(cycle, run.profile, self.name(), &args.thresholds);
        let Ok(mut uses) = resources.uses(cycle, &source) else {
            return;
        };
        let thresholds = resources.thresholds(&args.thresholds);
        let full: Thresholds = args.thresholds.keys().map(|name| (name.clone(), 100.0)).collect();
        let full = resources.thresholds(&full);
        for node in &mut uses {
            node.cap(&full);
        }
        let all = uses.len();
        let (under, rest): (Vec<_>, Vec<_>) = uses.into_iter().partition(|node| node.is_below(&thresholds));
        let schedulable: Vec<_> = rest.into_iter().filter(|node| !node.unschedulable).collect();
        let too_few = i64::try_from(under.len()).is_ok_and(|under| under <= args.number_of_nodes);
        if under.is_empty() || too_few || under.len() == all || schedulable.is_empty() {
            return;
        }
        let only_asking_for = args.only_thresholding_resources.then(|| resources.numbers(&args.thresholds));
        let moves = Moves {
            resources: &resources,
            source: &source,
            excluded_namespaces: &args.excluded_namespaces,
            limit_per_node: None,
            until_below: false,
            only_asking_for,
            most_used_first: false,
        };
        moves.run(cycle, run, under, &schedulable, |node| {
            let (resource, percent) = resources.foremost(node, &thresholds);
            Reason::Underutilized { resource, percent }
        });
    }
}
