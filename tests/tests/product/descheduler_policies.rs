//! Ours refuses every policy that the Go descheduler refuses. Those that it refuses beyond that say why.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use usher_descheduler::Policy;
use usher_tests::descheduling::policy_cases;

#[test]
fn policies_that_the_go_descheduler_refuses_are_refused() {
    let recorded = policy_cases::recorded().unwrap();
    let mut wrong = Vec::new();
    for case in policy_cases::load().unwrap() {
        let ours = Policy::read(&case.policy());
        let says = |errors: &dyn std::fmt::Display| errors.to_string().replace('\n', " ");
        let (fingerprint, go) =
            recorded.get(&case.name).unwrap_or_else(|| panic!("{} is not recorded", case.name));
        let current = case.fingerprint();
        assert_eq!(*fingerprint, current, "the recording of {} is out of date: run `make record`", case.name);
        match (go == "accepted", &ours, &case.stricter) {
            (true, Ok(_), None) | (true, Err(_), Some(_)) => {}
            (false, Err(_), None) if go.starts_with("refused") => {}
            (_, Ok(_), _) => wrong.push(format!("{}: Go {go}, ours accepts", case.name)),
            (_, Err(errors), _) => wrong.push(format!("{}: Go {go}, ours: {}", case.name, says(errors))),
        }
    }
    assert!(wrong.is_empty(), "{} differ, or need no reason any more:\n{}", wrong.len(), wrong.join("\n"));
}
