//! Any drain plan: it is refused with reasons, or completed once and for all.

use usher_api::node_maintenance::{MAX_DRAIN_PLAN_ENTRIES, default_drain_plan};
use usher_api::{DrainPlanEntry, NodeMaintenance};
use usher_decide::admission::Verdict;
use usher_decide::admission::drain_plan::complete;
use usher_decide::maintenance::plan::{Plan, with_defaults};

fn maintenance(plan: Vec<DrainPlanEntry>) -> NodeMaintenance {
    let spec = serde_json::json!({"nodeSelector": {"nodeSelectorTerms": []}, "drainPlan": plan});
    NodeMaintenance::new("m", serde_json::from_value(spec).unwrap())
}

pub fn run(data: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Vec<DrainPlanEntry>>(data) else { return };
    let given = maintenance(plan.clone());
    match complete(None, &given) {
        Verdict::Deny(denial) => assert!(!denial.to_string().is_empty()),
        Verdict::Allow { changes, .. } => {
            let whole = changes.drain_plan.unwrap_or_else(|| plan.clone());
            assert!(whole.len() <= MAX_DRAIN_PLAN_ENTRIES);
            assert!(default_drain_plan().iter().all(|entry| whole.contains(entry)));
            assert_eq!(with_defaults(&whole), whole, "once and for all");
            let stored = maintenance(whole.clone());
            assert_eq!(complete(None, &stored), Verdict::allow(), "nothing is left to add");
            let Verdict::Allow { changes, .. } = complete(Some(&stored), &given) else {
                panic!("what was written once can be written again")
            };
            assert_eq!(changes.drain_plan.unwrap_or_else(|| plan.clone()), whole);
            assert!(Plan::new(&whole).last() < whole.len().max(1) + 1);
        }
    }
}
