//! Everybody who attacks, side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use fastrand::Rng;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::administrator::{look, send};
use super::moves::{World, attempt};
use super::stranger::Stranger;
use super::tally::{Move, Tally};
use super::users::{MARKERS, User};

const STRANGERS: u64 = 2;

pub struct Attack {
    pub client: Client,
    pub tally: Arc<Tally>,
    pub world: Arc<RwLock<Arc<World>>>,
    pub stop: Arc<AtomicBool>,
}

impl Attack {
    pub async fn new(client: &Client) -> Arc<Self> {
        let world = Arc::new(RwLock::new(Arc::new(look(client).await)));
        Arc::new(Self { client: client.clone(), tally: Arc::default(), world, stop: Arc::default() })
    }

    pub async fn end(&self, mut all: JoinSet<()>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = all.join_next().await {
            ended.unwrap();
        }
    }

    /// The users do nothing but read, as busily, until they are told to stop.
    pub fn keep_busy(self: &Arc<Self>, users: &[User], seed: u64) -> JoinSet<()> {
        self.start_users(users, &[Move::Read], seed)
    }

    fn start_users(self: &Arc<Self>, users: &[User], moves: &'static [Move], seed: u64) -> JoinSet<()> {
        let mut all = JoinSet::new();
        for (number, user) in (1..).zip(users.iter().cloned()) {
            let (attack, random) = (Arc::clone(self), Rng::with_seed(seed.wrapping_add(number)));
            all.spawn(async move { attack.user(&user, moves, random).await });
        }
        all
    }

    /// All of them, until they are told to stop.
    pub fn start(self: &Arc<Self>, users: &[User], stranger: &Stranger, seed: u64) -> JoinSet<()> {
        let mut all = self.start_users(users, &Move::OF_USERS, seed);
        for number in 0..STRANGERS {
            let (attack, stranger) = (Arc::clone(self), stranger.clone());
            let random = Rng::with_seed(seed.wrapping_sub(number));
            all.spawn(async move { attack.stranger(&stranger, random).await });
        }
        let attack = Arc::clone(self);
        all.spawn(async move {
            while !attack.stop.load(Ordering::Relaxed) {
                let world = Arc::new(look(&attack.client).await);
                *attack.world.write().unwrap() = world;
                sleep(Duration::from_millis(300)).await;
            }
        });
        all
    }

    fn world(&self) -> Arc<World> {
        Arc::clone(&self.world.read().unwrap())
    }

    async fn user(&self, user: &User, moves: &[Move], mut random: Rng) {
        while !self.stop.load(Ordering::Relaxed) {
            let of = *random.choice(moves).unwrap();
            if let Some(call) = attempt(of, &mut random, user, &self.world()) {
                let what = format!("{} {}", call.method, call.path);
                let said = format!("{what} {}", call.body);
                let answer = send(&self.client, Some(&user.name), call).await;
                self.tally.count(of, answer.code);
                if let Some(marker) = user.learns(&answer.text, &said) {
                    let at = answer.text.find(marker).unwrap_or(0);
                    let around = String::from_utf8_lossy(
                        &answer.text.as_bytes()[at.saturating_sub(200)..answer.text.len().min(at + 100)],
                    )
                    .into_owned();
                    self.tally.leak(&user.name, of, &format!("{marker} by {what}: {} {around}", answer.code));
                }
            }
            sleep(Duration::from_millis(random.u64(10..100))).await;
        }
    }

    async fn stranger(&self, stranger: &Stranger, mut random: Rng) {
        while !self.stop.load(Ordering::Relaxed) {
            let of = random.choice(Move::OF_STRANGERS).unwrap();
            let (code, text) = stranger.attempt(of, &mut random, &self.world()).await;
            self.tally.count(of, code);
            if let Some(marker) = MARKERS.into_iter().find(|marker| text.contains(marker)) {
                self.tally.leak("a stranger", of, &format!("{marker}: {text}"));
            }
            sleep(Duration::from_millis(random.u64(50..300))).await;
        }
    }
}
