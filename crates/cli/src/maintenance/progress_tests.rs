//! A drain that is followed by events: it shows what is there, and costs as much as has changed.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use usher_api::NodeMaintenance;
use usher_decide::snapshot::{Budget, Key, Pod, PodOnWire, Request, RequestOnWire};

use super::progress::{NodeProgress, Progress};
use crate::live::Changed;
use crate::samples::{NOW, budget, maintenance, pod, request};
use crate::world::World;

/// A drain, and the world as it is told of it.
struct Followed {
    world: World,
    progress: Progress,
    changed: Changed,
    now: Timestamp,
}

impl Followed {
    fn of(maintenance: &NodeMaintenance) -> Self {
        let now = NOW.parse().unwrap();
        let mut progress = Progress::new(now);
        progress.observe(maintenance);
        Self { world: World::default(), progress, changed: Changed::default(), now }
    }

    fn pod(&mut self, pod: Value) {
        let pod = Pod::from(serde_json::from_value::<PodOnWire>(pod).unwrap());
        self.changed.pod(self.world.pods.get(&pod.key), Some(&pod));
        self.world.pods.insert(pod.key.clone(), pod);
    }

    fn request(&mut self, request: Value) {
        let request = Request::from(serde_json::from_value::<RequestOnWire>(request).unwrap());
        self.changed.request(self.world.requests.get(&request.key), Some(&request));
        self.world.requests.insert(request.key.clone(), request);
    }

    fn budget(&mut self, budget: Value) {
        let budget = Budget::from(&serde_json::from_value(budget).unwrap());
        self.changed.budget(self.world.budgets.get(&budget.key), Some(&budget));
        self.world.budgets.insert(budget.key.clone(), budget);
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        let key = Key::new("shop", name);
        match kind {
            Kind::Pod => self.changed.pod(self.world.pods.remove(&key).as_ref(), None),
            Kind::Request => self.changed.request(self.world.requests.remove(&key).as_ref(), None),
            Kind::Budget => self.changed.budget(self.world.budgets.remove(&key).as_ref(), None),
        }
    }

    /// How many pods were looked at.
    fn recount_changed(&mut self) -> usize {
        let before = self.progress.looks;
        self.progress.note(std::mem::take(&mut self.changed));
        self.progress.recount_changed(&self.world, self.now);
        self.progress.looks - before
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Pod,
    Request,
    Budget,
}

fn drain_of(nodes: usize) -> NodeMaintenance {
    let names: Vec<String> = (0..nodes).map(|number| format!("n{number:03}")).collect();
    let mut drain =
        maintenance("m", "Drain", &names.iter().map(String::as_str).collect::<Vec<_>>(), json!({}));
    let statuses: Vec<Value> =
        names.iter().map(|name| json!({"nodeRef": {"name": name}, "drainMessage": "Evicting"})).collect();
    drain.status = Some(serde_json::from_value(json!({"nodes": nodes, "nodeStatuses": statuses})).unwrap());
    drain
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

fn on_node(number: usize, nodes: usize) -> Value {
    pod(&name(number), &format!("n{:03}", number % nodes))
}

/// The pods of so many nodes, all of one budget that blocks, and all asked to leave.
fn blocked(pods: usize, nodes: usize) -> Followed {
    let mut followed = Followed::of(&drain_of(nodes));
    (0..pods).for_each(|number| followed.pod(on_node(number, nodes)));
    (0..pods).for_each(|number| followed.request(request(&name(number))));
    followed.budget(budget("web", 0));
    followed.recount_changed();
    followed
}

#[test]
fn what_an_event_costs_does_not_depend_on_the_number_of_pods() {
    let costs = |pods: usize, nodes: usize| {
        let mut followed = blocked(pods, nodes);
        assert_eq!(
            (followed.progress.all().blocked, followed.recount_changed()),
            (pods, 0),
            "nothing has changed"
        );
        followed.request(request(&name(1)));
        let of_request = followed.recount_changed();
        let mut terminating = on_node(2, nodes);
        terminating["metadata"]["deletionTimestamp"] = NOW.into();
        followed.pod(terminating.clone());
        let of_pod = followed.recount_changed();
        followed.pod(terminating);
        assert_eq!(followed.recount_changed(), 0, "what is told twice has not changed");
        followed.remove(Kind::Pod, &name(2));
        let of_end = followed.recount_changed();
        followed.pod(pod("web-elsewhere", "other-node"));
        let elsewhere = followed.recount_changed();
        assert_eq!(followed.progress.all().blocked, pods - 1);
        [of_request, of_pod, of_end, elsewhere]
    };
    assert_eq!(costs(10, 2), [1, 1, 0, 0]);
    assert_eq!(costs(10_002, 667), [1, 1, 0, 0]);
}

#[test]
fn a_budget_of_ten_thousand_pods_that_changes_with_each_of_them_is_followed_some_pods_at_a_time() {
    let mut followed = blocked(10_002, 667);
    for (change, allowed) in (0..30).zip([1, 0].into_iter().cycle()) {
        (0..100).for_each(|more| {
            let mut changing = budget("web", allowed);
            changing["status"]["expectedPods"] = json!(20_000 + more + change);
            followed.budget(changing);
        });
        assert!(followed.recount_changed() <= 1000, "a thousand at a look");
    }
    followed.budget(budget("web", 2));
    let looks: usize = (0..12).map(|_| followed.recount_changed()).sum();
    assert!((10_002..=20_004).contains(&looks), "all of them, in the end: {looks}");
    assert_eq!((followed.progress.all().blocked, followed.progress.all().evicting), (0, 10_002));
}

/// The drain of the report: 667 nodes and 10,002 pods. Each pod is asked, is evicted and goes, its replacement comes up elsewhere
/// and the budget counts along. Looking at all pods after each event would be 10,002 looks for each.
#[test]
fn following_a_drain_to_its_end_costs_a_few_looks_for_each_pod() {
    const PODS: usize = 10_002;
    const NODES: usize = 667;
    let mut followed = Followed::of(&drain_of(NODES));
    (0..PODS).for_each(|number| followed.pod(on_node(number, NODES)));
    followed.budget(budget("web", 0));
    let (mut looks, mut events) = (followed.recount_changed(), 0);
    for number in 0..PODS {
        followed.request(request(&name(number)));
        let mut terminating = on_node(number, NODES);
        terminating["metadata"]["deletionTimestamp"] = NOW.into();
        followed.pod(terminating);
        followed.pod(pod(&format!("new-{number}"), "elsewhere"));
        followed.budget(budget("web", i32::from(number % 2 == 0)));
        followed.remove(Kind::Pod, &name(number));
        followed.remove(Kind::Request, &format!("uid-{}", name(number)));
        events += 6;
        // A second has so many events.
        if events % 600 == 0 {
            looks += followed.recount_changed();
        }
    }
    looks += followed.recount_changed();
    let all = followed.progress.all();
    assert_eq!((all.gone(), all.left(), all.seen), (PODS, 0, PODS));
    assert!(looks < 4 * PODS, "{looks} looks for {events} events");
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn often(&mut self) -> bool {
        self.below(4) > 0
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()].clone()
    }

    fn pod(&mut self) -> Value {
        let mut pod = pod(&name(self.below(8) as usize), self.one_of(&["n000", "n001", "elsewhere"]));
        pod["metadata"]["labels"]["app"] = self.one_of(&["web", "db"]).into();
        pod["metadata"]["ownerReferences"][0]["kind"] = self.one_of(&["ReplicaSet", "DaemonSet"]).into();
        pod["status"]["phase"] = self.one_of(&["Running", "Running", "Running", "Pending", "Failed"]).into();
        if !self.often() {
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:30Z".into();
        }
        pod
    }

    fn request(&mut self, now: Timestamp) -> Value {
        let mut request = request(&name(self.below(8) as usize));
        if self.often() {
            request["spec"]["interceptors"] = json!([{"interceptorClass": "a.com", "priority": 2}, {"interceptorClass": "b.com", "priority": 1}]);
            request["status"] = json!({
                "activeInterceptorClass": self.one_of(&["a.com", "b.com"]),
                "activeInterceptorCompleted": !self.often(),
                "progressTimestamp": (now - SignedDuration::from_mins(self.below(40).cast_signed())).to_string(),
            });
        }
        request
    }

    fn budget(&mut self) -> Value {
        let mut budget = budget(self.one_of(&["web", "db"]), self.below(3) as i32);
        budget["spec"]["selector"]["matchLabels"]["app"] = self.one_of(&["web", "web", "db"]).into();
        budget
    }
}

/// Without what depends on the past.
fn shown(progress: &Progress) -> Vec<NodeProgress> {
    let all = progress.nodes().iter().chain([progress.all()]);
    all.map(|node| NodeProgress { seen: 0, ..node.clone() }).collect()
}

#[test]
fn a_drain_that_is_followed_shows_what_one_look_at_all_of_it_would() {
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let drain = drain_of(2);
        let mut followed = Followed::of(&drain);
        for _ in 0..60 {
            for _ in 0..dice.below(4) {
                match dice.below(8) {
                    0..3 => followed.pod(dice.pod()),
                    3..5 => followed.request(dice.request(followed.now)),
                    5 => followed.budget(dice.budget()),
                    _ => {
                        let number = dice.below(8) as usize;
                        match dice.one_of(&[Kind::Pod, Kind::Request, Kind::Budget]) {
                            Kind::Pod => followed.remove(Kind::Pod, &name(number)),
                            Kind::Request => followed.remove(Kind::Request, &format!("uid-{}", name(number))),
                            Kind::Budget => followed.remove(Kind::Budget, dice.one_of(&["web", "db"])),
                        }
                    }
                }
            }
            followed.now += SignedDuration::from_mins(dice.below(10).cast_signed());
            followed.recount_changed();
            let anew = Progress::at_once(&drain, &followed.world, followed.now);
            assert_eq!(shown(&followed.progress), shown(&anew), "seed {seed}");
        }
    }
}
