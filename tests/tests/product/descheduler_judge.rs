//! Ours decides as the Go descheduler does: on thousands of generated clusters, plugin by plugin, against its recorded verdicts.
//!
//! `USHER_RECORD=1` asks the Go descheduler again, which takes minutes. `USHER_SUBJECT=RemoveDuplicates` leaves out all others, and
//! `USHER_SEED=17` shows one snapshot of it.
#![allow(clippy::unwrap_used, reason = "a test that fails here has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use jiff::Timestamp;
use parking_lot::Mutex;
use usher_descheduler::{Differences, InProgress, Planner, Policy};
use usher_tests::descheduling::judge::{Asking, Judge};
use usher_tests::descheduling::recordings::{self, Recording};
use usher_tests::descheduling::verdict::Verdict;
use usher_tests::descheduling::{Snapshot, Subject, fixed_now};
use usher_tests::seeds;

/// Snapshots of each plugin, and of several together.
const SEEDS: u64 = 260;
const ASKING: Asking = Asking { least: 12, most: 60, own_indexes: false };

fn subjects() -> Vec<Subject> {
    let only = std::env::var("USHER_SUBJECT").ok();
    Subject::all().filter(|subject| only.as_deref().is_none_or(|only| only == subject.name)).collect()
}

fn say(line: &str) {
    // Not println, which the test harness swallows in tests that pass.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What the Go descheduler says now. Snapshots are as old as its clock says.
fn judged(judge: &mut Judge, subject: Subject, seed: u64) -> Verdict {
    let Snapshot { objects, policy } = Snapshot::make(subject, seed, Timestamp::now());
    Verdict::of(&judge.ask(&policy, &objects, ASKING).unwrap(), subject)
}

/// Does the work of each subject, as many at a time as there are cores.
fn each_subject<T: Send>(work: impl Fn(Subject) -> T + Sync) -> Vec<T> {
    let waiting = Mutex::new(subjects().into_iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().next();
                    let Some(subject) = next else { break };
                    let result = work(subject);
                    done.lock().push(result);
                }
            });
        }
    });
    done.into_inner()
}

#[test]
fn the_recordings_of_the_go_descheduler() {
    if !std::env::var("USHER_RECORD").is_ok_and(|value| value == "1") {
        return;
    }
    // Built once, before all that start it.
    drop(Judge::start().unwrap());
    each_subject(|subject| {
        let mut judge = Judge::start().unwrap();
        let mut recorded = BTreeMap::new();
        for seed in 1..=SEEDS {
            let hash = Snapshot::make(subject, seed, fixed_now()).hash();
            recorded.insert(seed, Recording { hash, verdict: judged(&mut judge, subject, seed) });
        }
        recordings::write(subject, &recorded).unwrap();
        say(&format!("recorded {}", subject.name));
    });
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

/// Building the Go descheduler takes minutes, so that this is only done where `USHER_JUDGE=1` asks for it: about a few recorded snapshots,
/// or with `USHER_SEEDS=261-760` about those, which nobody has asked about before.
#[test]
fn the_go_descheduler_still_says_what_it_said() {
    if !std::env::var("USHER_JUDGE").is_ok_and(|value| value == "1") {
        say("not asked: the Go descheduler, as USHER_JUDGE=1 is not set");
        return;
    }
    let wanted = seeds::wanted(SEEDS).unwrap();
    let step = if std::env::var_os("USHER_SEEDS").is_some() { 1 } else { 50 };
    let seeds: Vec<u64> = wanted.step_by(step).collect();
    drop(Judge::start().unwrap());
    let wrong: Vec<String> = each_subject(|subject| {
        let mut judge = Judge::start().unwrap();
        let mut wrong = Vec::new();
        for seed in &seeds {
            let said = judged(&mut judge, subject, *seed);
            let plan =
                Snapshot::make(subject, *seed, fixed_now()).plan(Differences::none(), fixed_now()).unwrap();
            let ours = Verdict::pods_of(&plan, subject);
            if !said.admits(&ours) {
                wrong.push(format!("{} {seed}: Go {said}, ours {}", subject.name, ours.join(" ")));
            }
        }
        wrong
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
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
