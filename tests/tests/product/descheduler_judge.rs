//! Ours decides as the Go descheduler does: on thousands of generated clusters, plugin by plugin, against its recorded verdicts.
//!
//! `USHER_SUBJECT=RemoveDuplicates` leaves out all others, and `USHER_SEED=17` shows one snapshot of it.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::collections::BTreeSet;
use std::io::Write as _;

use usher_descheduler::{Differences, InProgress, Planner, Policy};
use usher_tests::descheduling::recordings::{self, Recording, SEEDS};
use usher_tests::descheduling::verdict::Verdict;
use usher_tests::descheduling::{Snapshot, Subject, each_subject, fixed_now, subjects};

fn say(line: &str) {
    // Not println, which the test harness swallows in tests that pass.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What ours decided otherwise.
#[derive(Default)]
struct Compared {
    count: usize,
    /// Without its differences, where there is no reason for any.
    wrong: Vec<String>,
    /// As it is shipped: the difference, the subject and the seed.
    differs: BTreeSet<(String, String, u64)>,
}

fn compare(subject: Subject) -> Compared {
    let mut compared = Compared::default();
    let recorded = recordings::read(subject).unwrap();
    assert!(recorded.keys().copied().eq(1..=SEEDS), "{}: record again", subject.name);
    for (seed, Recording { hash, verdict }) in recorded {
        compared.count += 1;
        let snapshot = Snapshot::make(subject, seed, fixed_now());
        assert_eq!(hash, snapshot.hash(), "{} {seed}: the generator has changed, record again", subject.name);
        let (policy, cluster) =
            (Policy::read(&snapshot.policy).unwrap(), snapshot.objects.cluster().unwrap());
        let planned = |differences| {
            let plan = Planner::new(differences).plan(&cluster, &policy, &InProgress::default(), fixed_now());
            Verdict::pods_of(&plan, subject)
        };
        let as_go = planned(Differences::none());
        if !verdict.admits(&as_go) {
            compared.wrong.push(format!("{} {seed}: Go {verdict}, ours {}", subject.name, as_go.join(" ")));
        }
        let off = Differences::none();
        for (name, differences) in [
            ("nodeFitCountsDecisions", Differences { node_fit_counts_decisions: true, ..off }),
            ("spreadSharesMoves", Differences { spread_shares_moves: true, ..off }),
        ] {
            if !verdict.admits(&planned(differences)) {
                compared.differs.insert((name.to_owned(), subject.name.to_owned(), seed));
            }
        }
    }
    compared
}

#[test]
fn ours_decides_as_the_go_descheduler_does_and_better_where_that_is_listed() {
    let mut all = Compared::default();
    for one in each_subject(compare) {
        all.count += one.count;
        all.wrong.extend(one.wrong);
        all.differs.extend(one.differs);
    }
    assert!(all.wrong.is_empty(), "{} of {} differ:\n{}", all.wrong.len(), all.count, all.wrong.join("\n"));
    let names: Vec<&str> = subjects().iter().map(|subject| subject.name).collect();
    let mut listed = BTreeSet::new();
    for one in recordings::differences().unwrap() {
        assert!(!one.reason.is_empty(), "{} is listed without a reason", one.difference);
        for (subject, seeds) in one.cases.into_iter().filter(|(subject, _)| names.contains(&subject.as_str()))
        {
            listed.extend(seeds.into_iter().map(|seed| (one.difference.clone(), subject.clone(), seed)));
        }
    }
    let unlisted: Vec<_> = all.differs.difference(&listed).collect();
    let unneeded: Vec<_> = listed.difference(&all.differs).collect();
    assert!(
        unlisted.is_empty() && unneeded.is_empty(),
        "differ and are not listed: {unlisted:?}\nlisted, and do not differ: {unneeded:?}"
    );
}

#[test]
fn one_snapshot_is_shown() {
    let Some(seed) = std::env::var("USHER_SEED").ok().and_then(|seed| seed.parse().ok()) else {
        return;
    };
    for subject in subjects() {
        let snapshot = Snapshot::make(subject, seed, fixed_now());
        say(&serde_json::to_string_pretty(&snapshot.objects.to_json()).unwrap());
        say(&snapshot.policy);
        if let Some(recording) = recordings::read(subject).unwrap().get(&seed) {
            say(&format!("Go: {}", recording.verdict));
        }
        match snapshot.plan(Differences::none(), fixed_now()) {
            Err(error) => say(&format!("ours: {error}")),
            Ok(plan) => {
                for proposal in &plan.proposals {
                    let pod = &proposal.pod;
                    say(&format!(
                        "ours: {}/{} on {}: {}",
                        pod.namespace, pod.name, pod.node, proposal.reason
                    ));
                }
            }
        }
    }
}
