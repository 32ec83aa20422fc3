//! A node that a maintenance holds, and somebody cordons or uncordons: never refused, but told what will come of it.

use std::collections::BTreeSet;

use super::{Changes, Verdict};

/// What comes of it that somebody cordons or uncordons a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CordonOutcome<'a> {
    /// No maintenance holds the node: it stays as it is set.
    Stays,
    /// It is cordoned, and uncordoned when all of these maintenances have ended.
    EndsWith(Vec<&'a str>),
    /// It is cordoned, was so before these maintenances came, and stays so afterwards.
    Outlasts(Vec<&'a str>),
    /// It is uncordoned, and these maintenances cordon it again.
    CordonedAgain {
        by: Vec<&'a str>,
        /// It was cordoned before they came, and stays so afterwards.
        stays_afterwards: bool,
    },
    /// It is uncordoned, as the manager is about to do by itself: the maintenances that are marked on it are gone.
    Released(Vec<&'a str>),
}

/// `holders` are the maintenances that are marked on the node, `was_unschedulable` is its mark that it was cordoned before they came, and
/// `unschedulable` what somebody sets. `known` are the names of all maintenances, where these may be seen.
pub fn outcome<'a>(
    holders: impl IntoIterator<Item = &'a str>,
    was_unschedulable: bool,
    unschedulable: bool,
    known: Option<&BTreeSet<String>>,
) -> CordonOutcome<'a> {
    let by: Vec<&str> = holders.into_iter().collect();
    let are_gone = known.is_some_and(|known| by.iter().all(|name| !known.contains(*name)));
    match (unschedulable, was_unschedulable) {
        _ if by.is_empty() => CordonOutcome::Stays,
        (true, true) => CordonOutcome::Outlasts(by),
        (true, false) => CordonOutcome::EndsWith(by),
        (false, _) if are_gone => CordonOutcome::Released(by),
        (false, stays_afterwards) => CordonOutcome::CordonedAgain { by, stays_afterwards },
    }
}

/// `held_by` is the mark on the node, the others as for [`outcome`].
pub fn on_update(node: &str, held_by: &str, was_unschedulable: bool, unschedulable: bool) -> Verdict {
    let names = held_by.split(',').map(str::trim).filter(|name| !name.is_empty());
    let warning = match outcome(names, was_unschedulable, unschedulable, None) {
        CordonOutcome::Stays | CordonOutcome::Released(_) => return Verdict::allow(),
        CordonOutcome::EndsWith(by) => cordon_warning(node, &by, "this cordon ends with the maintenance"),
        CordonOutcome::Outlasts(by) => {
            cordon_warning(node, &by, "it was cordoned before that, and stays cordoned afterwards")
        }
        CordonOutcome::CordonedAgain { by, stays_afterwards } => {
            let (all, each) = (by.join(", "), by.join(" "));
            let afterwards = if stays_afterwards {
                "; it was cordoned before the maintenance and stays cordoned afterwards"
            } else {
                ""
            };
            format!(
                "node {node} is under maintenance {all} and will be cordoned again: to get it back, end it with \
                 kubectl patch nodemaintenance {each} --type=merge -p '{{\"spec\":{{\"stage\":\"Complete\"}}}}'{afterwards}"
            )
        }
    };
    Verdict::Allow { changes: Changes::default(), warnings: vec![warning] }
}

fn cordon_warning(node: &str, by: &[&str], end: &str) -> String {
    let (all, each) = (by.join(", "), by.join(" "));
    format!(
        "node {node} is under maintenance {all}, which cordons and drains it: {end}; see \
         kubectl describe nodemaintenance {each}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_node_is_cordoned_again_and_stays_cordoned_if_it_was_so_before() {
        use CordonOutcome::{CordonedAgain, EndsWith, Outlasts, Released, Stays};
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let (others, one, both) = (names(&["x"]), names(&["a"]), || vec!["a", "b"]);
        let again = |stays_afterwards| CordonedAgain { by: both(), stays_afterwards };
        for (holders, was_unschedulable, unschedulable, known, wanted) in [
            (vec![], false, true, None, Stays),
            (vec![], true, false, Some(&others), Stays),
            (both(), false, true, None, EndsWith(both())),
            (both(), true, true, None, Outlasts(both())),
            (both(), false, false, None, again(false)),
            (both(), true, false, Some(&one), again(true)),
            (both(), false, false, Some(&others), Released(both())),
        ] {
            let found = outcome(holders, was_unschedulable, unschedulable, known);
            assert_eq!(found, wanted, "{was_unschedulable} {unschedulable} {known:?}");
        }
    }

    #[test]
    fn who_cordons_or_uncordons_a_held_node_is_told_what_comes_of_it() {
        let rows = [
            ("a", false, false, Some("under maintenance a and will be cordoned again")),
            ("a,b", false, false, Some("under maintenance a, b and will be cordoned again")),
            ("a", true, false, Some("and stays cordoned afterwards")),
            ("a", false, true, Some("this cordon ends with the maintenance")),
            ("a", true, true, Some("it was cordoned before that, and stays cordoned afterwards; see")),
            ("", false, false, None),
        ];
        for (held_by, was_unschedulable, unschedulable, part) in rows {
            let Verdict::Allow { warnings, changes } =
                on_update("n1", held_by, was_unschedulable, unschedulable)
            else {
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
