//! Who may go when a disruption budget allows some pods to go, and not all that want to.
//!
//! The budget's status tells how many. What was granted and does not show there yet is taken off, so that as many
//! evictions are tried as there is room, and no more. Room is given to the nodes in turn, and on a node to the request
//! that has waited longest. Those with room go one after another: every eviction writes the status of its budget, and of
//! two at a time the server lets one wait for half a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::snapshot::{Budget, Key};

/// A grant that never shows in the budget's status is forgotten after the time for which the disruption controller
/// itself counts a pod as disrupted (rule 16 of `docs/eviction-rules.md`).
const LONGEST_GRANT: SignedDuration = SignedDuration::from_mins(2);
/// A budget that has nothing left is expected to move by itself; if it does not for so long, evictions are tried for real, so
/// that what the server says can be told and counted.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// A request that waits for room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRequest {
    pub request: Key,
    pub pod: Arc<str>,
    pub node: Arc<str>,
    /// Since when the pod is asked to leave, or somebody else than the budget refused.
    pub since: Timestamp,
    /// When its back-off ends, after a failure; else since when it waits here. Not before that it tries a budget that does
    /// not move.
    pub not_before: Timestamp,
}

/// The accounts of all budgets.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Key, Account>,
    /// The budget at which a request waits or spends.
    at: BTreeMap<Key, Key>,
}

#[derive(Debug, Default)]
struct Account {
    allowed: i64,
    stuck: bool,
    /// Those who wait, by node.
    waiting: BTreeMap<Arc<str>, BTreeSet<(Timestamp, Key)>>,
    pods: BTreeMap<Key, WaitingRequest>,
    granted: BTreeMap<Key, Grant>,
    /// The one of them that may be evicted now.
    turn: Option<Key>,
    /// When a node was last given room, counted in grants.
    served: BTreeMap<Arc<str>, u64>,
    grants: u64,
    /// Those who wait, by when they may try all the same.
    tries: BTreeSet<(Timestamp, Key)>,
    /// When the budget last changed.
    changed: Timestamp,
}

#[derive(Debug)]
struct Grant {
    pod: Arc<str>,
    number: u64,
    at: Timestamp,
    /// The eviction has succeeded, or is seen in the budget: what comes first.
    evicted: bool,
    shown: bool,
}

impl Account {
    fn room(&self) -> usize {
        let hidden = self.granted.values().filter(|grant| !grant.shown).count();
        usize::try_from(self.allowed).unwrap_or(0).saturating_sub(hidden)
    }

    /// The node that was served least recently, and there the one who has waited longest.
    fn next(&self) -> Option<Key> {
        let served = |node: &Arc<str>| self.served.get(node).copied().unwrap_or(0);
        let (_, waiting) = self.waiting.iter().min_by_key(|(node, _)| (served(node), (*node).clone()))?;
        waiting.first().map(|(_, request)| request.clone())
    }

    fn grant(&mut self, request: &Key, now: Timestamp) {
        if let Some(place) = self.remove(request) {
            self.grants += 1;
            self.served.insert(place.node.clone(), self.grants);
            self.granted.insert(
                request.clone(),
                Grant { pod: place.pod, number: self.grants, at: now, evicted: false, shown: false },
            );
        }
    }

    /// Those who have not used their room yet.
    fn unused(&self) -> impl Iterator<Item = (&Key, &Grant)> {
        self.granted.iter().filter(|(_, grant)| !grant.evicted)
    }

    fn turn_ends(&mut self, request: &Key) {
        self.turn.take_if(|turn| turn == request);
    }

    fn remove(&mut self, request: &Key) -> Option<WaitingRequest> {
        let place = self.pods.remove(request)?;
        self.tries.remove(&(place.not_before, request.clone()));
        if let Some(waiting) = self.waiting.get_mut(&place.node) {
            waiting.remove(&(place.since, request.clone()));
            if waiting.is_empty() {
                self.waiting.remove(&place.node);
            }
        }
        Some(place)
    }
}

impl Ledger {
    /// The budget is now like this. Whoever waits may have room: see [`Ledger::grant`].
    pub fn observe(&mut self, budget: &Budget, now: Timestamp) {
        let account = self.accounts.entry(budget.key.clone()).or_default();
        account.allowed = budget.allowed.into();
        account.stuck = budget.can_never_free();
        account.changed = now;
        let (at, pods) = (&mut self.at, &account.pods);
        account.granted.retain(|request, grant| {
            grant.shown |= budget.disrupted_pods.contains(&*grant.pod);
            // Who has not used its room yet has it, however long those before it take.
            let counts = !grant.evicted || (!grant.shown && now < grant.at + LONGEST_GRANT);
            if !counts && !pods.contains_key(request) {
                at.remove(request);
            }
            counts
        });
    }

    /// The budget is no more; whoever waited at it is returned.
    pub fn forget(&mut self, budget: &Key) -> Vec<Key> {
        self.at.retain(|_, at| at != budget);
        self.accounts.remove(budget).map(|account| account.pods.into_keys().collect()).unwrap_or_default()
    }

    fn account_of(&self, request: &Key) -> Option<&Account> {
        self.accounts.get(self.at.get(request)?)
    }

    /// Whether the request has been given room that it has not used yet.
    pub fn is_granted(&self, request: &Key) -> bool {
        let grant = self.account_of(request).and_then(|account| account.granted.get(request));
        grant.is_some_and(|grant| !grant.evicted)
    }

    /// Whether others with room at the same budget come before it. It is told when its turn comes: see
    /// [`Ledger::grant`].
    pub fn comes_later(&self, request: &Key) -> bool {
        self.is_granted(request)
            && self.account_of(request).is_some_and(|account| account.turn.as_ref() != Some(request))
    }

    /// The request waits for room in this budget, and in no other. Who waits already does so since then.
    pub fn wait(&mut self, budget: &Key, mut place: WaitingRequest, tried: bool) {
        if self.at.get(&place.request).is_some_and(|at| at != budget) {
            self.leave(&place.request);
        }
        let account = self.accounts.entry(budget.clone()).or_default();
        match account.granted.get(&place.request) {
            Some(grant) if !grant.evicted => return,
            // Its eviction was accepted and never showed in the pod.
            Some(_) => drop(account.granted.remove(&place.request)),
            None => {}
        }
        if let Some(before) = account.remove(&place.request)
            && !tried
        {
            place.not_before = before.not_before;
        }
        account.tries.insert((place.not_before, place.request.clone()));
        account.waiting.entry(place.node.clone()).or_default().insert((place.since, place.request.clone()));
        self.at.insert(place.request.clone(), budget.clone());
        account.pods.insert(place.request.clone(), place);
    }

    /// The request wants no room any more. Room that it has used counts until the budget shows it. Returns the budget
    /// at which somebody else may have room now.
    pub fn leave(&mut self, request: &Key) -> Option<Key> {
        let budget = self.at.remove(request)?;
        let account = self.accounts.get_mut(&budget)?;
        account.remove(request);
        if account.granted.get(request).is_some_and(|grant| !grant.evicted) {
            account.granted.remove(request);
        }
        account.turn_ends(request);
        Some(budget)
    }

    /// Gives room to as many as there is room for; each of them holds it until it is used or left. Returns the one whose
    /// turn begins now, if nobody else's lasts.
    pub fn grant(&mut self, budget: &Key, now: Timestamp) -> Option<Key> {
        let account = self.accounts.get_mut(budget)?;
        while account.room() > 0
            && let Some(next) = account.next()
        {
            account.grant(&next, now);
        }
        if account.turn.is_some() {
            return None;
        }
        account.turn =
            account.unused().min_by_key(|(_, grant)| grant.number).map(|(request, _)| request.clone());
        account.turn.clone()
    }

    /// When the next eviction is to be tried at a budget that does not move; `None` while nobody waits or others are on
    /// their way.
    pub fn probe_at(&self, budget: &Key) -> Option<Timestamp> {
        let account = self.accounts.get(budget)?;
        if account.unused().next().is_some() {
            return None;
        }
        let (first, _) = account.tries.first()?;
        let patience = if account.stuck { SignedDuration::ZERO } else { PATIENCE };
        Some((*first).max(account.changed) + patience)
    }

    /// Lets the one who is next try although there seems to be no room, if it is time. Everybody has a turn: the server's
    /// answer is counted for each.
    pub fn probe(&mut self, budget: &Key, now: Timestamp) -> Option<Key> {
        if self.probe_at(budget)? > now {
            return None;
        }
        let account = self.accounts.get_mut(budget)?;
        let (_, next) = account.tries.first()?.clone();
        account.grant(&next, now);
        account.turn = Some(next.clone());
        Some(next)
    }

    /// The eviction went through. Its room counts as taken until the budget shows it. Returns the budget, where the next
    /// turn can begin.
    pub fn evicted(&mut self, request: &Key) -> Option<Key> {
        let budget = self.at.get(request)?.clone();
        let account = self.accounts.get_mut(&budget)?;
        account.turn_ends(request);
        let grant = account.granted.get_mut(request)?;
        grant.evicted = true;
        if grant.shown {
            account.granted.remove(request);
            self.at.remove(request);
        }
        Some(budget)
    }

    /// The eviction was refused for the budget's sake: what is known of the budget is behind, so nobody else tries
    /// until it changes.
    pub fn refused(&mut self, request: &Key) -> Option<Key> {
        let budget = self.at.remove(request)?;
        let account = self.accounts.get_mut(&budget)?;
        account.granted.remove(request);
        account.turn_ends(request);
        account.allowed = 0;
        Some(budget)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{BudgetRule, UnhealthyPolicy};
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn budget(allowed: i32, disrupted: &[&str]) -> Budget {
        Budget {
            key: Key::new("default", "web"),
            rule: BudgetRule::MinAvailable(IntOrString::Int(4)),
            selector: None,
            policy: UnhealthyPolicy::IfHealthyBudget,
            allowed,
            current_healthy: 5,
            desired_healthy: 4,
            expected_pods: 6,
            disrupted_pods: disrupted.iter().map(ToString::to_string).collect(),
        }
    }

    fn place(pod: &str, node: &str, since: i64) -> WaitingRequest {
        let (request, since) = (Key::new("default", pod), at(since));
        WaitingRequest { request, pod: pod.into(), node: node.into(), since, not_before: since }
    }

    fn names(keys: &[Key]) -> Vec<&str> {
        keys.iter().map(|key| &*key.name).collect()
    }

    /// A ledger with one budget at which these (pod, node, since) wait.
    fn waiting(allowed: i32, places: &[(&str, &str, i64)]) -> (Ledger, Key) {
        let mut ledger = Ledger::default();
        let budget = budget(allowed, &[]);
        ledger.observe(&budget, at(0));
        for (pod, node, since) in places {
            ledger.wait(&budget.key, place(pod, node, *since), false);
        }
        (ledger, budget.key)
    }

    #[test]
    fn as_many_as_the_budget_allows_and_the_nodes_take_turns() {
        let places = [("a1", "a", 1), ("a2", "a", 2), ("a3", "a", 3), ("b1", "b", 9), ("c1", "c", 8)];
        let (mut ledger, key) = waiting(4, &places);
        let mut gone = Vec::new();
        while let Some(turn) = ledger.grant(&key, at(10)) {
            let has_room = |name: &&str| ledger.is_granted(&Key::new("default", *name));
            let with_room = ["a1", "a2", "b1", "c1"].iter().filter(|name| has_room(name)).count();
            assert_eq!(with_room, 4 - gone.len(), "all that have room know it at once");
            assert!(!ledger.comes_later(&turn));
            assert_eq!(ledger.grant(&key, at(10)), None, "one at a time");
            assert_eq!(ledger.evicted(&turn), Some(key.clone()), "the next turn can begin");
            gone.push(turn);
        }
        assert_eq!(names(&gone), ["a1", "b1", "c1", "a2"]);
    }

    #[test]
    fn room_that_is_not_used_after_all_goes_to_the_next() {
        let (mut ledger, key) = waiting(1, &[("a", "n", 1), ("b", "n", 2)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        assert_eq!(ledger.leave(&first), Some(key.clone()));
        assert_eq!(ledger.grant(&key, at(10)), Some(Key::new("default", "b")));
    }

    /// Evictions of one budget go one after another, and each may take its time.
    #[test]
    fn who_has_room_keeps_it_however_long_those_before_it_take() {
        let (mut ledger, key) = waiting(2, &[("a", "n", 1), ("b", "n", 2)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        let second = Key::new("default", "b");
        ledger.observe(&budget(2, &[]), at(131));
        assert!(ledger.is_granted(&first) && ledger.comes_later(&second));
        ledger.evicted(&first);
        assert_eq!(ledger.grant(&key, at(132)), Some(second));
    }

    /// The server accepted, and the pod never shows it.
    #[test]
    fn who_was_evicted_in_vain_waits_again() {
        let (mut ledger, key) = waiting(1, &[("a", "n", 1)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        ledger.evicted(&first);
        ledger.wait(&key, place("a", "n", 1), true);
        ledger.observe(&budget(1, &[]), at(131));
        assert_eq!(ledger.grant(&key, at(131)), Some(first.clone()));
        assert!(ledger.leave(&first).is_some());
    }

    #[test]
    fn room_that_was_used_counts_until_the_budget_shows_it() {
        let (mut ledger, key) = waiting(1, &[("a", "n", 1), ("b", "n", 2)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        ledger.evicted(&first);
        ledger.leave(&first);
        ledger.observe(&budget(1, &[]), at(11));
        assert_eq!(ledger.grant(&key, at(11)), None, "an old status, from before the eviction");
        ledger.observe(&budget(0, &["a"]), at(12));
        assert_eq!(ledger.grant(&key, at(12)), None);
        ledger.observe(&budget(1, &[]), at(13));
        assert_eq!(ledger.grant(&key, at(13)), Some(Key::new("default", "b")));
    }

    #[test]
    fn the_status_may_be_seen_before_the_answer() {
        let (mut ledger, key) = waiting(2, &[("a", "n", 1), ("b", "n", 2)]);
        assert_eq!(ledger.grant(&key, at(10)), Some(Key::new("default", "a")));
        ledger.observe(&budget(1, &["a"]), at(11));
        ledger.wait(&key, place("c", "n", 3), false);
        assert_eq!(ledger.grant(&key, at(11)), None, "the one that is left is granted to b");
        ledger.evicted(&Key::new("default", "a"));
        assert!(
            !ledger.is_granted(&Key::new("default", "a")) && ledger.is_granted(&Key::new("default", "b"))
        );
    }

    #[test]
    fn a_grant_that_never_shows_is_forgotten_after_two_minutes() {
        let (mut ledger, key) = waiting(1, &[("a", "n", 1), ("b", "n", 2)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        ledger.evicted(&first);
        ledger.observe(&budget(1, &[]), at(131));
        assert_eq!(ledger.grant(&key, at(131)), Some(Key::new("default", "b")));
    }

    #[test]
    fn a_refusal_stops_the_others_until_the_budget_changes() {
        let (mut ledger, key) = waiting(1, &[("a", "n", 1), ("b", "n", 2)]);
        let first = ledger.grant(&key, at(10)).unwrap();
        ledger.refused(&first);
        assert_eq!(ledger.grant(&key, at(11)), None);
        ledger.observe(&budget(1, &[]), at(12));
        assert_eq!(ledger.grant(&key, at(12)), Some(Key::new("default", "b")));
    }

    #[test]
    fn at_a_budget_that_does_not_move_everybody_tries_for_real_one_at_a_time_and_each_after_its_own_back_off()
    {
        let (mut ledger, key) = waiting(0, &[("a", "n", 10), ("b", "n", 11), ("c", "m", 12)]);
        assert_eq!(ledger.probe_at(&key), Some(at(40)));
        assert_eq!(ledger.probe(&key, at(39)), None);
        let mut tried = Vec::new();
        for now in 40..200 {
            if let Some(one) = ledger.probe(&key, at(now)) {
                assert_eq!(ledger.probe_at(&key), None, "one at a time");
                ledger.refused(&one);
                let again = WaitingRequest { not_before: at(now + 60), ..place(&one.name, "n", 10) };
                ledger.wait(&key, again.clone(), true);
                ledger.wait(&key, WaitingRequest { not_before: at(now), ..again }, false);
                tried.push((one.name.to_string(), now));
            }
        }
        let wanted = [("a", 40), ("b", 41), ("c", 42), ("a", 130), ("b", 131), ("c", 132)];
        assert_eq!(tried, wanted.map(|(name, at)| (name.to_string(), at)));
    }

    #[test]
    fn who_waits_is_not_sent_back_by_being_looked_at_again() {
        let (mut ledger, key) = waiting(0, &[("a", "n", 10)]);
        ledger.wait(&key, WaitingRequest { not_before: at(35), ..place("a", "n", 10) }, false);
        assert_eq!(ledger.probe_at(&key), Some(at(40)));
    }

    #[test]
    fn a_budget_that_can_never_free_is_tried_at_once() {
        let mut ledger = Ledger::default();
        let mut stuck = budget(0, &[]);
        stuck.current_healthy = stuck.expected_pods;
        ledger.observe(&stuck, at(0));
        ledger.wait(&stuck.key, place("a", "n", 1), false);
        assert!(ledger.probe(&stuck.key, at(1)).is_some());
    }

    proptest! {
        /// Whatever happened before: if there is room, somebody waits and nobody is on the way, the next one's turn begins.
        #[test]
        fn room_is_never_left_unused(
            steps in proptest::collection::vec((0..7_u8, 0..4_usize, 0..3_i32), 1..60),
        ) {
            let (mut ledger, key) = waiting(0, &[]);
            let pods = ["p0", "p1", "p2", "p3"];
            let mut seconds = 0;
            for (step, which, number) in steps {
                seconds += 20;
                let now = at(seconds);
                let (pod, request) = (pods[which], Key::new("default", pods[which]));
                match step {
                    0 => ledger.observe(&budget(number, &[]), now),
                    1 => ledger.observe(&budget(number, &[pod]), now),
                    2 => {
                        let not_before = at(seconds + 10 * i64::from(number));
                        ledger.wait(&key, WaitingRequest { not_before, ..place(pod, "n", seconds) }, number > 1);
                    }
                    3 => drop(ledger.evicted(&request)),
                    4 => drop(ledger.leave(&request)),
                    5 => drop(ledger.refused(&request)),
                    _ => drop(ledger.probe(&key, now)),
                }
                let account = &ledger.accounts[&key];
                let idle = account.unused().next().is_none();
                let (room, waits) = (account.room() > 0, !account.pods.is_empty());
                prop_assert!(!idle || account.turn.is_none(), "a turn of nobody: {account:?}");
                prop_assert_eq!(account.tries.len(), account.pods.len());
                let turn = ledger.grant(&key, now);
                prop_assert!(!(idle && room && waits) || turn.is_some());
            }
        }

        /// Whatever happens in whatever order: what is granted, with what was granted before and does not show yet, is
        /// never more than the budget last allowed.
        #[test]
        fn never_more_than_there_is_room(
            steps in proptest::collection::vec((0..6_u8, 0..8_usize, 0..4_i32), 1..80),
        ) {
            let (mut ledger, key) = waiting(0, &[]);
            let pods = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
            let mut allowed = 0;
            // Granted, with whether the eviction went through.
            let mut hidden: BTreeMap<Key, bool> = BTreeMap::new();
            for (now, (step, which, number)) in (1_i64..).zip(steps) {
                let (pod, node) = (pods[which], if which % 2 == 0 { "n" } else { "m" });
                let request = Key::new("default", pod);
                match step {
                    0 => {
                        ledger.observe(&budget(number, &[]), at(now));
                        allowed = number;
                    }
                    1 => {
                        ledger.observe(&budget(number, &[pod]), at(now));
                        allowed = number;
                        hidden.remove(&request);
                    }
                    2 => {
                        ledger.wait(&key, place(pod, node, now), false);
                        hidden.retain(|other, evicted| *other != request || !*evicted);
                    }
                    3 if ledger.is_granted(&request) => {
                        ledger.evicted(&request);
                        hidden.entry(request).and_modify(|evicted| *evicted = true);
                    }
                    4 => {
                        ledger.leave(&request);
                        hidden.retain(|other, evicted| *other != request || *evicted);
                    }
                    5 if ledger.is_granted(&request) => {
                        ledger.refused(&request);
                        allowed = 0;
                        hidden.remove(&request);
                    }
                    _ => {}
                }
                let all = pods.map(|pod| Key::new("default", pod));
                let had: Vec<Key> = all.iter().filter(|key| ledger.is_granted(key)).cloned().collect();
                let turn = ledger.grant(&key, at(now));
                prop_assert!(turn.is_none_or(|turn| ledger.is_granted(&turn) && !ledger.comes_later(&turn)));
                let in_turn = |request: &&Key| ledger.is_granted(request) && !ledger.comes_later(request);
                prop_assert!(all.iter().filter(in_turn).count() <= 1, "one at a time");
                let is_new = |request: &Key| ledger.is_granted(request) && !had.contains(request);
                let granted: Vec<Key> = all.into_iter().filter(is_new).collect();
                prop_assert!(
                    granted.is_empty() || granted.len() + hidden.len() <= usize::try_from(allowed).unwrap(),
                    "{granted:?} with {hidden:?} hidden, {allowed} allowed"
                );
                hidden.extend(granted.into_iter().map(|request| (request, false)));
            }
        }
    }
}
