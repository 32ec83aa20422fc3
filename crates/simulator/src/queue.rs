//! What the components have to look at, in its order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use super::tasks::{Component, Task};
use embedded_apiserver::Key;

/// What is to be looked at: now in order of arrival, or at a time. A task is in it once.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    order: VecDeque<Task>,
    /// Those of the kubelets: what they do takes longer than what controllers do.
    last: VecDeque<Task>,
    /// The kubelets whose turn it is. They are processes of their own and act at the same time, so controllers see what
    /// all of them did, and not one after another.
    turn: VecDeque<Task>,
    queued: BTreeSet<Task>,
    /// Tasks whose actions are under way, and whether they are to be looked at again afterwards.
    busy: BTreeMap<Task, bool>,
    /// Pods that wait until the scheduler is done with another one, so that no room is given away twice.
    waiting: VecDeque<Task>,
    times: BTreeSet<(Timestamp, Task)>,
    time_of: BTreeMap<Task, Timestamp>,
    failures: BTreeMap<Task, u32>,
    /// Pods that got no node: how often, and when they may be looked at again.
    refused: BTreeMap<Key, (u32, Timestamp)>,
    now: Timestamp,
}

impl Queue {
    pub(crate) fn add(&mut self, task: Task) {
        if task.0 == Component::Scheduler
            && let Some((_, until)) = self.refused.get(&task.1)
            && *until > self.now
        {
            let until = *until;
            self.add_at(task, until);
            return;
        }
        if let Some(again) = self.busy.get_mut(&task) {
            *again = true;
        } else if self.queued.insert(task.clone()) {
            let order = if task.0 == Component::Kubelet { &mut self.last } else { &mut self.order };
            order.push_back(task);
        }
    }

    /// Look at it at that time, unless an earlier one is set already.
    pub(crate) fn add_at(&mut self, task: Task, at: Timestamp) {
        if let Some(known) = self.time_of.get(&task) {
            if *known <= at {
                return;
            }
            self.times.remove(&(*known, task.clone()));
        }
        self.time_of.insert(task.clone(), at);
        self.times.insert((at, task));
    }

    /// After a failure: later and later, up to a quarter of an hour.
    pub(crate) fn retry(&mut self, task: Task, now: Timestamp) {
        let failures = self.failures.entry(task.clone()).or_default();
        let millis = 10_i64.saturating_mul(1 << (*failures).min(17)).min(900_000);
        *failures += 1;
        self.add_at(task, now + jiff::SignedDuration::from_millis(millis));
    }

    /// A pod got no node: it is not looked at again for a second, then two, up to ten.
    pub(crate) fn refused(&mut self, pod: Key) {
        let (times, until) = self.refused.entry(pod).or_default();
        let seconds = (1_i64 << (*times).min(4)).min(10);
        *times += 1;
        *until = self.now + jiff::SignedDuration::from_secs(seconds);
    }

    /// It got one, or needs none any more.
    pub(crate) fn not_refused(&mut self, pod: &Key) {
        self.refused.remove(pod);
    }

    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Moves what is due into the order.
    pub(crate) fn wake(&mut self, now: Timestamp) {
        self.now = now;
        while let Some((at, _)) = self.times.first()
            && *at <= now
            && let Some((_, task)) = self.times.pop_first()
        {
            self.time_of.remove(&task);
            self.add(task);
        }
    }

    /// The next task; it is busy until [`Queue::done`].
    pub(crate) fn take(&mut self) -> Option<Task> {
        while let Some(task) = self.next() {
            let scheduling = |task: &Task| task.0 == Component::Scheduler;
            if scheduling(&task) && self.busy.keys().any(scheduling) {
                self.waiting.push_back(task);
                continue;
            }
            self.queued.remove(&task);
            self.busy.insert(task.clone(), false);
            return Some(task);
        }
        None
    }

    fn next(&mut self) -> Option<Task> {
        if let Some(task) = self.turn.pop_front().or_else(|| self.order.pop_front()) {
            return Some(task);
        }
        std::mem::swap(&mut self.turn, &mut self.last);
        self.turn.pop_front()
    }

    /// Forgets all that is waiting or set for a time, and earlier failures; what is under way comes back by
    /// [`Queue::done`].
    pub(crate) fn forget(&mut self, mine: impl Fn(&Task) -> bool) {
        self.order.retain(|task| !mine(task));
        self.last.retain(|task| !mine(task));
        self.turn.retain(|task| !mine(task));
        self.waiting.retain(|task| !mine(task));
        self.queued.retain(|task| !mine(task));
        self.times.retain(|(_, task)| !mine(task));
        self.time_of.retain(|task, _| !mine(task));
        self.failures.retain(|task, _| !mine(task));
        self.refused.retain(|pod, _| !mine(&(Component::Scheduler, pod.clone())));
        self.busy.iter_mut().filter(|(task, _)| mine(task)).for_each(|(_, again)| *again = false);
    }

    pub(crate) fn done(&mut self, task: Task, succeeded: bool) {
        let again = self.busy.remove(&task).unwrap_or_default();
        if succeeded {
            self.failures.remove(&task);
        }
        if task.0 == Component::Scheduler {
            self.order.extend(self.waiting.drain(..));
        }
        if again {
            self.add(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing::at;

    fn task(component: Component, name: &str) -> Task {
        (component, Key::new("default", name))
    }

    #[test]
    fn a_task_waits_once_and_is_looked_at_again_if_it_changed_while_busy() {
        let mut queue = Queue::default();
        let web = task(Component::ReplicaSet, "web");
        queue.add(web.clone());
        queue.add(web.clone());
        assert_eq!((queue.take(), queue.take()), (Some(web.clone()), None));
        queue.add(web.clone());
        assert_eq!(queue.take(), None, "it is busy");
        queue.done(web.clone(), true);
        assert_eq!(queue.take(), Some(web));
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut queue = Queue::default();
        let [web, busy, late] = ["web", "busy", "late"].map(|name| task(Component::ReplicaSet, name));
        let other = task(Component::Job, "other");
        queue.add(busy.clone());
        assert_eq!(queue.take(), Some(busy.clone()));
        for task in [&busy, &web, &other] {
            queue.add(task.clone());
        }
        queue.add_at(late.clone(), at(10));
        queue.retry(web.clone(), at(0));
        queue.forget(|task| task.0 == Component::ReplicaSet);
        assert_eq!((queue.next_time(), queue.take(), queue.take()), (None, Some(other), None));
        queue.done(busy, false);
        assert_eq!(queue.take(), None, "nobody looks at it again");
        queue.add(web.clone());
        assert_eq!(queue.take(), Some(web.clone()));
        queue.retry(web, at(0));
        assert_eq!(queue.next_time().unwrap().as_millisecond(), 10, "earlier failures are forgotten");
    }

    #[test]
    fn kubelets_act_when_controllers_have() {
        let mut queue = Queue::default();
        let tasks = [Component::Kubelet, Component::Job, Component::Scheduler].map(|who| task(who, "p"));
        tasks.iter().for_each(|task| queue.add(task.clone()));
        let order: Vec<Task> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(order, [1, 2, 0].map(|at: usize| tasks[at].clone()));
    }

    #[test]
    fn controllers_see_what_all_kubelets_did_at_once() {
        let mut queue = Queue::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| task(Component::Kubelet, name));
        let set = task(Component::ReplicaSet, "set");
        queue.add(a.clone());
        queue.add(b.clone());
        assert_eq!(queue.take(), Some(a.clone()));
        queue.add(set.clone());
        queue.add(c.clone());
        queue.done(a, true);
        let order: Vec<Task> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(order, [b, set, c], "who comes later waits for the next turn");
    }

    #[test]
    fn pods_are_scheduled_one_after_another() {
        let mut queue = Queue::default();
        let [a, b] = ["a", "b"].map(|name| task(Component::Scheduler, name));
        queue.add(a.clone());
        queue.add(b.clone());
        assert_eq!((queue.take(), queue.take()), (Some(a.clone()), None));
        queue.done(a, true);
        assert_eq!(queue.take(), Some(b));
    }

    #[test]
    fn a_pod_that_got_no_node_is_looked_at_later_and_later() {
        let mut queue = Queue::default();
        let pod = task(Component::Scheduler, "p");
        let mut waits = Vec::new();
        for round in 0..6 {
            queue.wake(at(100 * round));
            queue.refused(pod.1.clone());
            queue.add(pod.clone());
            assert_eq!(queue.take(), None);
            waits.push(queue.next_time().unwrap().as_second() - 100 * round);
            queue.wake(queue.next_time().unwrap());
            assert_eq!(queue.take(), Some(pod.clone()));
            queue.done(pod.clone(), true);
        }
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
        queue.not_refused(&pod.1);
        queue.add(pod.clone());
        assert_eq!(queue.take(), Some(pod));
    }

    #[test]
    fn the_earliest_time_counts_and_failures_back_off() {
        let mut queue = Queue::default();
        let web = task(Component::ReplicaSet, "web");
        queue.add_at(web.clone(), at(20));
        queue.add_at(web.clone(), at(10));
        queue.add_at(web.clone(), at(30));
        assert_eq!(queue.next_time(), Some(at(10)));
        queue.wake(at(10));
        assert_eq!((queue.take(), queue.next_time()), (Some(web.clone()), None));
        queue.done(web.clone(), false);
        let mut waits = Vec::new();
        for _ in 0..20 {
            queue.retry(web.clone(), at(0));
            let next = queue.next_time().unwrap();
            waits.push(next.as_millisecond());
            queue.wake(next);
            queue.take();
            queue.done(web.clone(), false);
        }
        assert_eq!((waits[0], waits[1], waits[2], waits[19]), (10, 20, 40, 900_000));
    }
}
