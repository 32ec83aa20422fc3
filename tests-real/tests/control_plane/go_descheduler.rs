//! The Go descheduler itself. `make record` asks it about every recorded cluster and policy, which takes minutes; a normal run asks it about a few.

use std::collections::BTreeMap;

use jiff::Timestamp;
use usher_descheduler::Differences;
use usher_tests::descheduling::recordings::{self, Recording, SEEDS};
use usher_tests::descheduling::verdict::Verdict;
use usher_tests::descheduling::{Snapshot, Subject, each_subject, fixed_now, policy_cases};
use usher_tests::seeds;
use usher_tests_real::go_descheduler::{Asking, Judge};

/// A normal run asks about one seed in this many.
const ASKED_IN: usize = 50;
const ASKING: Asking = Asking { least: 12, most: 60, own_indexes: false };

fn records() -> bool {
    std::env::var("USHER_RECORD").is_ok_and(|value| value == "1")
}

/// What the Go descheduler says now. Snapshots are as old as its clock says.
fn judged(judge: &mut Judge, subject: Subject, seed: u64) -> Verdict {
    let Snapshot { objects, policy } = Snapshot::make(subject, seed, Timestamp::now());
    Verdict::of(&judge.ask(&policy, &objects, ASKING).unwrap(), subject)
}

/// `USHER_SEEDS=261-760` asks about clusters that nobody has asked about before. With `USHER_RECORD=1` all are asked about, and recorded.
#[test]
fn the_go_descheduler_still_says_what_it_said() {
    // Built once, before all that start it.
    drop(Judge::start().unwrap());
    if records() {
        each_subject(|subject| {
            let mut judge = Judge::start().unwrap();
            let mut recorded = BTreeMap::new();
            for seed in 1..=SEEDS {
                let hash = Snapshot::make(subject, seed, fixed_now()).hash();
                recorded.insert(seed, Recording { hash, verdict: judged(&mut judge, subject, seed) });
            }
            recordings::write(subject, &recorded).unwrap();
        });
        return;
    }
    let step = if std::env::var_os("USHER_SEEDS").is_some() { 1 } else { ASKED_IN };
    let seeds: Vec<u64> = seeds::wanted(SEEDS).unwrap().step_by(step).collect();
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

/// The policy lies in a temporary folder, whose name differs each time.
fn without_folder(text: &str) -> String {
    let part =
        |part: &str| if part.ends_with("/policy.yaml") { "policy.yaml".to_owned() } else { part.to_owned() };
    text.split('"').map(part).collect::<Vec<_>>().join("\"")
}

#[test]
fn the_go_descheduler_still_refuses_the_policies_that_it_refused() {
    let mut judge = Judge::start().unwrap();
    let subject = Subject::all().next().unwrap();
    let cluster = Snapshot::make(subject, 1, Timestamp::now()).objects;
    let mut answers = Vec::new();
    for case in policy_cases::load().unwrap() {
        let asking = Asking { least: 1, most: 1, own_indexes: false };
        let answer = match judge.ask(&case.policy(), &cluster, asking).unwrap().refused {
            None => "accepted".to_owned(),
            Some(why) => format!("refused {}", without_folder(&why.replace('\n', " "))),
        };
        answers.push((case, answer));
    }
    if records() {
        policy_cases::record(&answers).unwrap();
        return;
    }
    let recorded = policy_cases::recorded().unwrap();
    for (case, answer) in answers {
        assert_eq!(recorded[&case.name], (case.fingerprint(), answer), "{}", case.name);
    }
}
