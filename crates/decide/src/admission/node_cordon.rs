//! A node that a maintenance holds, and somebody cordons or uncordons: never refused, but told what will come of it.

use super::{Changes, Verdict};

/// `held_by` is the mark on the node, `unschedulable` what somebody sets.
pub fn on_update(node: &str, held_by: &str, unschedulable: bool) -> Verdict {
    let names: Vec<&str> = held_by.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Verdict::allow();
    }
    let (all, each) = (names.join(", "), names.join(" "));
    let warning = if unschedulable {
        format!(
            "node {node} is under maintenance {all}, which cordons and drains it: this cordon ends with the maintenance; see \
             kubectl describe nodemaintenance {each}"
        )
    } else {
        format!(
            "node {node} is under maintenance {all} and will be cordoned again: to get it back, end it with \
             kubectl patch nodemaintenance {each} --type=merge -p '{{\"spec\":{{\"stage\":\"Complete\"}}}}'"
        )
    };
    Verdict::Allow { changes: Changes::default(), warnings: vec![warning] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cordons_or_uncordons_a_held_node_is_told_what_comes_of_it() {
        let rows = [
            ("a", false, Some("under maintenance a and will be cordoned again")),
            ("a,b", false, Some("under maintenance a, b and will be cordoned again")),
            ("a", true, Some("this cordon ends with the maintenance")),
            ("", false, None),
        ];
        for (held_by, unschedulable, part) in rows {
            let Verdict::Allow { warnings, changes } = on_update("n1", held_by, unschedulable) else {
                panic!("refused")
            };
            assert!(changes.is_empty());
            assert_eq!(warnings.len(), usize::from(part.is_some()), "{held_by}");
            assert!(
                warnings.iter().all(|warning| warning.contains(part.unwrap_or_default())),
                "{warnings:?}"
            );
        }
    }
}
