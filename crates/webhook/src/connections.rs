//! The open connections of a server, and which one makes way when there is no room for another.
//!
//! Everybody who reaches a port can open connections and say nothing. They are all accepted, so that the newest always gets its
//! chance, and the one that has the least to lose is closed for it: first whoever has not sent a request in time, then whoever was
//! answered and waits, then whoever has only just come, then whoever is sending a request; the longest first. Who is being
//! answered stays. Those who have only just come take a quarter of the room from the others, and make way for each other beyond.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A review of the largest size comes in a fraction of this from a server nearby.
const SLOW: Duration = Duration::from_millis(200);

/// An API server has sent its first request after a fraction of this. Until then, whoever comes makes way for nobody but those who
/// come later.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// How many connections a server keeps, and how long they may be of no use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// More are not open at a time.
    pub connections: usize,
    /// From the first packet to the whole head of a request.
    pub first_request_within: Duration,
    /// From an answer to the next request.
    pub idle: Duration,
}

/// All connections of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Connections {
    limits: Limits,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// When it came, or when its last request began to come or was answered.
    since: Instant,
    coming: usize,
    answering: usize,
    is_served: bool,
    closing: Arc<Notify>,
}

/// What a connection is doing, in the order in which connections make way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Silent,
    Idle,
    /// It has only just come, and is in its handshake.
    Coming,
    Sending,
    Answering,
}

impl Entry {
    fn stage(&self) -> Stage {
        match self {
            Self { answering: 1.., .. } => Stage::Answering,
            Self { coming: 1.., .. } => Stage::Sending,
            Self { is_served: true, .. } => Stage::Idle,
            Self { since, .. } if since.elapsed() < HANDSHAKE => Stage::Coming,
            _ => Stage::Silent,
        }
    }
}

impl Open {
    /// Closes the one that makes way; false if nobody does.
    fn close(&mut self, may_go: impl Fn(u64, Stage, Instant) -> bool) -> bool {
        let all = self.by_number.iter().map(|(number, entry)| (entry.stage(), entry.since, *number));
        let first = all.filter(|(stage, since, number)| may_go(*number, *stage, *since)).min();
        let Some(entry) = first.and_then(|(.., number)| self.by_number.remove(&number)) else { return false };
        entry.closing.notify_one();
        true
    }
}

impl Connections {
    /// None is open yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Takes in a connection, for which another one is closed if need be. `None`: all others are being answered.
    pub fn enter(&self) -> Option<Connection> {
        let mut open = self.open.lock();
        if open.by_number.len() >= self.limits.connections {
            // A part of the room is for those who come, and no more than that while others have been served.
            let is_new = |stage| matches!(stage, Stage::Silent | Stage::Coming);
            let new = open.by_number.values().filter(|entry| is_new(entry.stage())).count();
            let are_many = new >= self.limits.connections.div_ceil(4);
            let made_way = (are_many && open.close(|_, stage, _| is_new(stage)))
                || open.close(|_, stage, _| stage < Stage::Answering);
            if !made_way {
                return None;
            }
        }
        let number = open.next;
        open.next += 1;
        let closing = Arc::new(Notify::new());
        let entry = Entry {
            since: Instant::now(),
            coming: 0,
            answering: 0,
            is_served: false,
            closing: closing.clone(),
        };
        open.by_number.insert(number, entry);
        Some(Connection(Arc::new(Held { number, closing, all: self.clone() })))
    }
}

/// A connection that is open. Cheap to clone; it leaves when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Connection(Arc<Held>);

#[derive(Debug)]
struct Held {
    number: u64,
    closing: Arc<Notify>,
    all: Connections,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.open.lock().by_number.remove(&self.number);
    }
}

impl Connection {
    /// Resolves when the connection is to be closed: to make way, or because it was of no use for too long.
    pub async fn overstayed(&self) {
        let Limits { first_request_within, idle, .. } = self.0.all.limits;
        loop {
            let until = match self.0.all.open.lock().by_number.get(&self.0.number) {
                None => return,
                Some(entry) => match entry.stage() {
                    Stage::Silent | Stage::Coming => entry.since + first_request_within,
                    Stage::Idle => entry.since + idle,
                    // Requests have their own limits; look again later.
                    Stage::Sending | Stage::Answering => Instant::now() + first_request_within,
                },
            };
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = self.0.closing.notified() => return,
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// The head of a request is there.
    pub fn begin(&self) -> Exchange {
        self.change(|entry| {
            entry.coming += 1;
            entry.since = Instant::now();
        });
        Exchange { connection: self.clone(), is_whole: false }
    }

    /// Somebody holds what this one needs: whoever has been sending for the longest is closed, if it is for longer than [`SLOW`].
    pub fn press(&self) {
        let now = Instant::now();
        self.0.all.open.lock().close(|number, stage, since| {
            stage == Stage::Sending && number != self.0.number && now.duration_since(since) > SLOW
        });
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        self.0.all.open.lock().by_number.get_mut(&self.0.number).map(change);
    }
}

/// A request and its answer.
#[derive(Debug)]
pub struct Exchange {
    connection: Connection,
    is_whole: bool,
}

impl Exchange {
    /// The request has come whole, and is being answered.
    pub fn is_whole(&mut self) {
        self.is_whole = true;
        self.connection.change(|entry| {
            entry.coming = entry.coming.saturating_sub(1);
            entry.answering += 1;
        });
    }

    /// See [`Connection::press`].
    pub fn press(&self) {
        self.connection.press();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let is_whole = self.is_whole;
        self.connection.change(|entry| {
            let count = if is_whole { &mut entry.answering } else { &mut entry.coming };
            *count = count.saturating_sub(1);
            entry.is_served |= is_whole;
            entry.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(room: usize) -> Connections {
        Connections::new(Limits {
            connections: room,
            first_request_within: Duration::from_secs(5),
            idle: Duration::from_secs(60),
        })
    }

    fn is_open(connection: &Connection) -> bool {
        connection.0.all.open.lock().by_number.contains_key(&connection.0.number)
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_comes_in_and_who_said_nothing_for_the_longest_goes() {
        let all = connections(4);
        let enter = || all.enter().unwrap();
        let (silent, younger, served, answered) = (enter(), enter(), enter(), enter());
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut exchange = served.begin();
        exchange.is_whole();
        drop(exchange);
        let mut busy = answered.begin();
        busy.is_whole();
        let sending = enter();
        let _coming = sending.begin();
        assert!(!is_open(&silent) && is_open(&younger));
        silent.overstayed().await;
        let _fifth = enter();
        assert!(!is_open(&younger) && is_open(&sending) && is_open(&served));
        let mut rest = Vec::new();
        for _ in 0..10 {
            rest.push(enter());
            assert!(is_open(&answered), "who is being answered stays");
        }
        assert!(!is_open(rest.first().unwrap()) && is_open(rest.last().unwrap()));
        assert!(is_open(&served) && is_open(&sending), "silent ones go first");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_served_once_does_not_push_out_who_is_in_its_handshake() {
        let all = connections(4);
        let served: Vec<Connection> = (0..4).map(|_| all.enter().unwrap()).collect();
        for connection in &served {
            let mut exchange = connection.begin();
            exchange.is_whole();
        }
        let newcomer = all.enter().unwrap();
        assert!(!is_open(&served[0]) && is_open(&newcomer), "who waits for the longest goes");
        let _next = all.enter().unwrap();
        assert!(!is_open(&newcomer), "a quarter of the room is for those who come");
        assert!(served[1..].iter().all(is_open), "however many they are");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_comes_in_while_all_are_being_answered() {
        let all = connections(2);
        let open = [all.enter().unwrap(), all.enter().unwrap()];
        let mut busy: Vec<Exchange> = open.iter().map(Connection::begin).collect();
        busy.iter_mut().for_each(Exchange::is_whole);
        assert!(all.enter().is_none());
        drop(busy);
        assert!(all.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_and_work_does_not() {
        let all = connections(9);
        let (silent, served, busy) = (all.enter().unwrap(), all.enter().unwrap(), all.enter().unwrap());
        let mut exchange = served.begin();
        exchange.is_whole();
        drop(exchange);
        let mut at_work = busy.begin();
        at_work.is_whole();
        let start = Instant::now();
        silent.overstayed().await;
        assert_eq!(start.elapsed().as_secs(), 5);
        served.overstayed().await;
        assert_eq!(start.elapsed().as_secs(), 60);
        let never = tokio::time::timeout(Duration::from_secs(600), busy.overstayed()).await;
        assert!(never.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_for_the_longest_makes_way_for_who_needs_memory() {
        let all = connections(9);
        let (slow, other, mine) = (all.enter().unwrap(), all.enter().unwrap(), all.enter().unwrap());
        let _slow = slow.begin();
        tokio::time::advance(Duration::from_secs(1)).await;
        let (_other, my) = (other.begin(), mine.begin());
        my.press();
        my.press();
        assert!(!is_open(&slow) && is_open(&other) && is_open(&mine));
    }
}
