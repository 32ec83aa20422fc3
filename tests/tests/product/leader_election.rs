//! Candidates on the embedded cluster, in virtual time: whatever happens, never two act at once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use embedded_apiserver::{Cluster, ClusterService, Options};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower::Service;
use usher_apply::Clock;
use usher_controllers::leader::Election;

const UP: u8 = 0;
/// Nothing that is sent arrives.
const CUT: u8 = 1;
/// All that is sent arrives, and no answer comes back.
const DEAF: u8 = 2;

/// The way to the server, which can be broken.
#[derive(Clone)]
struct Link {
    service: ClusterService,
    state: Arc<AtomicU8>,
}

type Answer = <ClusterService as Service<Request<Body>>>::Response;

impl Service<Request<Body>> for Link {
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (mut service, state) = (self.service.clone(), self.state.clone());
        Box::pin(async move {
            if state.load(Relaxed) == CUT {
                std::future::pending::<()>().await;
            }
            let answer = service.call(request).await;
            if state.load(Relaxed) == DEAF {
                std::future::pending::<()>().await;
            }
            answer
        })
    }
}

/// What candidates share with the test.
#[derive(Clone, Default)]
struct Stage {
    acting: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    /// Milliseconds after the start at which somebody last acted, and who.
    last: Arc<AtomicI64>,
    who: Arc<AtomicUsize>,
}

struct Acting<'a>(&'a Stage);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.acting.fetch_sub(1, Relaxed);
    }
}

impl Stage {
    async fn act(&self, number: usize, start: Instant, mut stop: watch::Receiver<bool>) {
        self.most.fetch_max(self.acting.fetch_add(1, Relaxed) + 1, Relaxed);
        let _acting = Acting(self);
        while !*stop.borrow_and_update() {
            self.last.store(i64::try_from(start.elapsed().as_millis()).unwrap(), Relaxed);
            self.who.store(number, Relaxed);
            tokio::select! {
                () = sleep(Duration::from_millis(100)) => {}
                // Whoever could have asked is gone: the scene is over.
                changed = stop.changed() => if changed.is_err() { return },
            }
        }
    }

    fn acted(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.last.load(Relaxed)).unwrap())
    }
}

struct Candidate {
    link: Arc<AtomicU8>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

struct Scene {
    cluster: Cluster,
    stage: Stage,
    start: Instant,
    started: usize,
}

impl Scene {
    fn new() -> Self {
        let cluster = Cluster::new(Options { seed: Some(1), ..Options::default() });
        Self { cluster, stage: Stage::default(), start: Instant::now(), started: 0 }
    }

    /// With a clock that is wrong by so many seconds.
    fn candidate(&mut self, skew: i64) -> Candidate {
        self.started += 1;
        let number = self.started;
        let link = Arc::new(AtomicU8::new(UP));
        let client = Client::new(Link { service: self.cluster.service(), state: link.clone() }, "default");
        let start = self.start;
        let clock = Clock::from_fn(move || {
            let passed = SignedDuration::try_from(start.elapsed()).unwrap();
            Timestamp::from_second(1_800_000_000 + skew).unwrap() + passed
        });
        let election = Election::new(client, "default", "usher-manager", &format!("c{number}"), clock);
        let (stop, stopping) = watch::channel(false);
        let stage = self.stage.clone();
        let task = tokio::spawn(async move {
            election.run(stopping.clone(), || stage.act(number, start, stopping.clone())).await;
        });
        Candidate { link, stop, task }
    }

    async fn lease(&self) -> Lease {
        let client = Client::new(self.cluster.service(), "default");
        Api::namespaced(client, "default").get("usher-manager").await.unwrap()
    }

    /// How long it takes until this candidate acts.
    async fn until_acts(&self, number: usize) -> Duration {
        let asked = Instant::now();
        while self.stage.who.load(Relaxed) != number {
            assert!(asked.elapsed() < Duration::from_secs(60), "c{number} does not act");
            sleep(Duration::from_millis(50)).await;
        }
        asked.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_followed_after_its_lease() {
    let mut scene = Scene::new();
    let first = scene.candidate(0);
    scene.until_acts(1).await;
    let _second = scene.candidate(0);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(scene.stage.who.load(Relaxed), 1, "a leader that renews stays");
    first.task.abort();
    let waited = scene.until_acts(2).await;
    assert!(waited >= Duration::from_secs(12) && waited <= Duration::from_secs(18), "{waited:?}");
    let spec = scene.lease().await.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("c2"), Some(1)));
    assert_eq!(scene.stage.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_releases_the_lease() {
    let mut scene = Scene::new();
    let first = scene.candidate(0);
    scene.until_acts(1).await;
    let _second = scene.candidate(0);
    sleep(Duration::from_secs(30)).await;
    first.stop.send_replace(true);
    timeout(Duration::from_secs(1), first.task).await.unwrap().unwrap();
    let waited = scene.until_acts(2).await;
    assert!(waited <= Duration::from_secs(3), "{waited:?}");
    assert_eq!(scene.stage.most.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_another_begins_whatever_their_clocks_say() {
    for (skew, broken) in [(0, CUT), (-3600, CUT), (3600, CUT), (0, DEAF), (3600, DEAF)] {
        let mut scene = Scene::new();
        let first = scene.candidate(skew);
        scene.until_acts(1).await;
        let _second = scene.candidate(-skew);
        sleep(Duration::from_secs(60)).await;
        let cut = scene.start.elapsed();
        first.link.store(broken, Relaxed);
        while scene.stage.acting.load(Relaxed) > 0 {
            assert!(scene.start.elapsed() < cut + Duration::from_secs(10), "{skew} {broken}: acts on");
            sleep(Duration::from_millis(10)).await;
        }
        let stopped = scene.stage.acted();
        scene.until_acts(2).await;
        let gap = scene.stage.acted().checked_sub(stopped).unwrap();
        assert!(gap >= Duration::from_secs(3), "{skew} {broken}: {gap:?} between the two");
        first.link.store(UP, Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert_eq!((scene.stage.most.load(Relaxed), scene.stage.who.load(Relaxed)), (1, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_does_not_make_two_leaders() {
    let mut scene = Scene::new();
    let _first = scene.candidate(0);
    scene.until_acts(1).await;
    let _second = scene.candidate(0);
    sleep(Duration::from_secs(31)).await;
    let client = Client::new(scene.cluster.service(), "default");
    let leases: Api<Lease> = Api::namespaced(client, "default");
    leases.delete("usher-manager", &kube::api::DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!((scene.stage.most.load(Relaxed), scene.stage.acting.load(Relaxed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn chaos_never_makes_two_act_and_somebody_acts_when_it_is_over() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scene = Scene::new();
        let mut candidates: Vec<Candidate> =
            (0..3).map(|_| scene.candidate(random.i64(-7200..7200))).collect();
        for _ in 0..25 {
            sleep(Duration::from_millis(random.u64(100..20_000))).await;
            let at = random.usize(..candidates.len());
            match random.u8(..6) {
                0 => candidates[at].link.store(CUT, Relaxed),
                1 => candidates[at].link.store(DEAF, Relaxed),
                2 | 3 => candidates[at].link.store(UP, Relaxed),
                4 => {
                    candidates[at].task.abort();
                    candidates[at] = scene.candidate(random.i64(-7200..7200));
                }
                _ => {
                    candidates[at].stop.send_replace(true);
                    candidates[at] = scene.candidate(random.i64(-7200..7200));
                }
            }
        }
        candidates.iter().for_each(|candidate| candidate.link.store(UP, Relaxed));
        sleep(Duration::from_secs(40)).await;
        let found = (scene.stage.most.load(Relaxed), scene.stage.acting.load(Relaxed));
        assert_eq!(found, (1, 1), "seed {seed}: the most at once, and now");
    }
}
