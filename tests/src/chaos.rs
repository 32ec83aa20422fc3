//! A program over a cluster that can be killed at any await point, started again, and run twice at once.

use std::sync::Arc;
use std::time::Duration;

use embedded_apiserver::Cluster;
use embedded_apiserver::clock::{Clock, SkewedClock};
use embedded_apiserver::faults::{Fault, Matcher, Refusal, Rule, When};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use kube::Client;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::scenario::beside::manager;

/// What one run of a program is given.
pub struct Run {
    /// The name under which fault rules know it: that of the program and its place, such as `manager-1`.
    pub name: String,
    pub client: Client,
    /// The cluster's time, as far as this run knows it.
    pub clock: Arc<dyn Clock>,
}

type Program = dyn Fn(Run) -> BoxFuture<'static, ()> + Send + Sync;

/// A program, with a place for a leader and one for a second leader. All runs end when it is dropped.
pub struct Process {
    cluster: Cluster,
    name: String,
    program: Box<Program>,
    places: [Replica; 2],
}

#[derive(Default)]
struct Replica {
    running: Option<JoinHandle<()>>,
    skew: SignedDuration,
}

impl Drop for Process {
    fn drop(&mut self) {
        (1..=2).for_each(|place| self.kill(place));
    }
}

impl Process {
    pub fn new<P, F>(cluster: &Cluster, name: &str, program: P) -> Self
    where
        P: Fn(Run) -> F + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let program = Box::new(move |run: Run| -> BoxFuture<'static, ()> { Box::pin(program(run)) });
        Self { cluster: cluster.clone(), name: name.to_string(), program, places: Default::default() }
    }

    fn place(&mut self, place: usize) -> &mut Replica {
        &mut self.places[usize::from(place != 1)]
    }

    /// Starts it in place 1 or 2; what ran there is killed.
    pub fn start(&mut self, place: usize) {
        self.kill(place);
        let name = format!("{}-{place}", self.name);
        let client = Client::new(self.cluster.client_as(&name, manager()), "default");
        let offset = self.place(place).skew;
        let clock = Arc::new(SkewedClock { right: self.cluster.clock(), offset });
        let run = (self.program)(Run { name, client, clock });
        self.place(place).running = Some(tokio::spawn(run));
    }

    /// Ends it where it waits; nothing is cleaned up.
    pub fn kill(&mut self, place: usize) {
        if let Some(running) = self.place(place).running.take() {
            running.abort();
        }
    }

    /// The next run in this place has a clock that is wrong by so much.
    pub fn skew(&mut self, place: usize, offset: SignedDuration) {
        self.place(place).skew = offset;
    }

    /// Kills and starts it again and again until a time, sometimes with a second leader and a skewed clock for a
    /// while; in the end one runs, with the right time. The schedule comes from the cluster's seed.
    pub async fn upheaval(&mut self, until: Instant, longest: Duration) {
        let longest = longest.as_millis().try_into().unwrap_or(u64::MAX);
        self.start(1);
        while Instant::now() < until {
            let random = |bound: u64| self.cluster.faults().random(bound);
            let time = Duration::from_millis(1 + random(longest));
            let (what, seconds) = (random(4), i64::try_from(random(61)).unwrap_or_default() - 30);
            sleep_until((Instant::now() + time).min(until)).await;
            match what {
                0 => {
                    self.skew(2, SignedDuration::from_secs(seconds));
                    self.start(2);
                }
                1 => self.kill(2),
                _ => {
                    self.kill(1);
                    sleep(time / 4).await;
                    self.start(1);
                }
            }
        }
        self.kill(2);
        self.start(1);
    }
}

/// What goes wrong for the manager, and for a second one that believes to lead.
#[must_use]
pub fn manager_faults() -> Vec<Rule> {
    let secs = Duration::from_secs;
    let chances = [
        (0.04, Fault::Refuse(Refusal::Conflict)),
        (0.03, Fault::Refuse(Refusal::Internal)),
        (0.03, Fault::Refuse(Refusal::Unavailable)),
        (0.03, Fault::Timeout { applied: true, answered: false, after: secs(3) }),
        (0.02, Fault::Timeout { applied: false, answered: true, after: secs(3) }),
        (0.2, Fault::DropWatch { after: secs(20) }),
        (0.05, Fault::StallWatch { time: Some(secs(15)) }),
        (0.2, Fault::LateWatch { by: secs(5) }),
        (0.2, Fault::Stale { revisions: 20 }),
    ];
    let clients = ["manager-1", "manager-2"].into_iter();
    let rule = |client: &str, (chance, fault)| Rule {
        on: Matcher::any().client(client),
        when: When::chance(chance),
        fault,
    };
    clients.flat_map(|client| chances.map(|chance| rule(client, chance))).collect()
}
