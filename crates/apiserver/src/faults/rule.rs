//! Rules: who asks for what, when, and what goes wrong then.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// A request, as rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Asked<'a> {
    /// The name that the client was given.
    pub client: &'a str,
    /// As rights name it; `call` for the server's call of a webhook.
    pub verb: &'a str,
    /// Plural; of a call the webhook's name.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.client, self.verb, self.resource)?;
        for part in [self.namespace, self.name, self.subresource].iter().filter(|part| !part.is_empty()) {
            write!(f, "/{part}")?;
        }
        Ok(())
    }
}

/// Which requests a rule is about; what is not given may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Matcher {
    client: Option<String>,
    verb: Option<String>,
    resource: Option<String>,
    namespace: Option<String>,
}

impl Matcher {
    pub fn any() -> Self {
        Self::default()
    }

    /// The server's calls of a webhook.
    pub fn webhook(name: &str) -> Self {
        Self::any().verb("call").resource(name)
    }

    pub fn client(self, name: &str) -> Self {
        Self { client: Some(name.to_string()), ..self }
    }

    pub fn verb(self, verb: &str) -> Self {
        Self { verb: Some(verb.to_string()), ..self }
    }

    pub fn resource(self, plural: &str) -> Self {
        Self { resource: Some(plural.to_string()), ..self }
    }

    pub fn namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_string()), ..self }
    }

    fn matches(&self, asked: &Asked<'_>) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.client, asked.client)
            && fits(&self.verb, asked.verb)
            && fits(&self.resource, asked.resource)
            && fits(&self.namespace, asked.namespace)
    }
}

/// From a time on, up to but not including another, on the cluster's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Window {
    fn holds(&self, now: Timestamp) -> bool {
        self.from <= now && now < self.until
    }
}

/// When a rule strikes, among the requests that it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    /// Only in these; at any time if there are none.
    during: Vec<Window>,
    pick: Pick,
}

/// Which of the requests at such a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pick {
    Every,
    /// Only this one, counted from 1.
    Nth(u64),
    /// Each with this probability.
    Chance(f64),
}

impl When {
    pub fn always() -> Self {
        Self { during: Vec::new(), pick: Pick::Every }
    }

    pub fn nth(number: u64) -> Self {
        Self { during: Vec::new(), pick: Pick::Nth(number) }
    }

    pub fn chance(probability: f64) -> Self {
        Self { during: Vec::new(), pick: Pick::Chance(probability) }
    }

    #[must_use]
    pub fn during(mut self, from: Timestamp, until: Timestamp) -> Self {
        self.during.push(Window { from, until });
        self
    }

    fn holds(&self, now: Timestamp) -> bool {
        self.during.is_empty() || self.during.iter().any(|window| window.holds(now))
    }
}

/// What the server says instead of doing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 409: somebody else wrote it. Only for writes of what is there.
    Conflict,
    /// 429, with the seconds after which to come back.
    TooManyRequests { retry_after: u32 },
    /// 500.
    Internal,
    /// 503.
    Unavailable,
}

/// How a webhook cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Nobody listens.
    Refused,
    /// Somebody listens but does not answer in time.
    Silent,
}

/// What goes wrong. Times are of the cluster's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Refuse(Refusal),
    /// The client learns only after a time that it got no answer: by a 504 or by a connection that breaks. What it
    /// asked for was done nevertheless, or was not.
    Timeout {
        applied: bool,
        answered: bool,
        after: Duration,
    },
    /// The request arrives later.
    Latency(Duration),
    /// A watch ends after a time.
    DropWatch {
        after: Duration,
    },
    /// A watch stays open and says nothing: for a time, or until it ends by its own timeout.
    StallWatch {
        time: Option<Duration>,
    },
    /// A watch tells everything so much later.
    LateWatch {
        by: Duration,
    },
    /// A get or list shows the state of so many revisions ago, but none before a resourceVersion that was asked for.
    Stale {
        revisions: u64,
    },
    /// A webhook cannot be called.
    Webhook(Outage),
}

impl Fault {
    /// Whether this can happen to such a request.
    fn fits(self, asked: &Asked<'_>) -> bool {
        let call = asked.verb == "call";
        match self {
            Self::Refuse(Refusal::Conflict) => match asked.verb {
                "update" | "patch" | "delete" | "deletecollection" => true,
                "create" => !asked.subresource.is_empty(),
                _ => false,
            },
            Self::Refuse(_) | Self::Timeout { .. } | Self::Latency(_) => !call,
            Self::DropWatch { .. } | Self::StallWatch { .. } | Self::LateWatch { .. } => {
                asked.verb == "watch"
            }
            Self::Stale { .. } => matches!(asked.verb, "get" | "list"),
            Self::Webhook(_) => call,
        }
    }

    /// Whether it strikes watches that are open.
    pub(super) fn is_of_watches(self) -> bool {
        matches!(self, Self::DropWatch { .. } | Self::StallWatch { .. } | Self::LateWatch { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse(Refusal::Conflict) => write!(f, "409"),
            Self::Refuse(Refusal::TooManyRequests { retry_after }) => {
                write!(f, "429, again in {retry_after}s")
            }
            Self::Refuse(Refusal::Internal) => write!(f, "500"),
            Self::Refuse(Refusal::Unavailable) => write!(f, "503"),
            Self::Timeout { applied, answered, after } => {
                let how = if *answered { "504" } else { "broken connection" };
                let done = if *applied { "done" } else { "not done" };
                write!(f, "{how} after {}s, {done}", after.as_secs_f64())
            }
            Self::Latency(time) => write!(f, "{}s late", time.as_secs_f64()),
            Self::DropWatch { after } => write!(f, "watch ends after {}s", after.as_secs_f64()),
            Self::StallWatch { time: Some(time) } => {
                write!(f, "watch is silent for {}s", time.as_secs_f64())
            }
            Self::StallWatch { time: None } => write!(f, "watch is silent until it ends"),
            Self::LateWatch { by } => write!(f, "watch is {}s late", by.as_secs_f64()),
            Self::Stale { revisions } => write!(f, "answered from {revisions} revisions ago"),
            Self::Webhook(Outage::Refused) => write!(f, "connection refused"),
            Self::Webhook(Outage::Silent) => write!(f, "no answer"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub on: Matcher,
    pub when: When,
    pub fault: Fault,
}

/// All rules, and how often each was met.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<(Rule, u64)>,
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        Self { rules: rules.into_iter().map(|rule| (rule, 0)).collect() }
    }

    /// What goes wrong with a request: the first rule that strikes decides.
    pub(crate) fn decide(
        &mut self,
        asked: &Asked<'_>,
        now: Timestamp,
        random: &mut fastrand::Rng,
    ) -> Option<Fault> {
        for (rule, met) in &mut self.rules {
            if !rule.on.matches(asked) || !rule.fault.fits(asked) || !rule.when.holds(now) {
                continue;
            }
            *met += 1;
            let strikes = match rule.when.pick {
                Pick::Every => true,
                Pick::Nth(number) => *met == number,
                Pick::Chance(probability) => random.f64() < probability,
            };
            if strikes {
                return Some(rule.fault);
            }
        }
        None
    }

    /// When the next window opens of a rule that may end, silence or delay such a watch while it is open. Rules that count
    /// requests count only the opening of a watch.
    pub(crate) fn next_window(&self, asked: &Asked<'_>, now: Timestamp) -> Option<Timestamp> {
        let rules = self.rules.iter().map(|(rule, _)| rule);
        rules
            .filter(|rule| {
                rule.fault.is_of_watches()
                    && !matches!(rule.when.pick, Pick::Nth(_))
                    && rule.on.matches(asked)
            })
            .flat_map(|rule| rule.when.during.iter().map(|window| window.from))
            .filter(|from| *from > now)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn asked(verb: &'static str) -> Asked<'static> {
        Asked { client: "manager", verb, resource: "pods", namespace: "shop", ..Asked::default() }
    }

    fn rules(on: Matcher, when: When, fault: Fault) -> Rules {
        Rules::new(vec![Rule { on, when, fault }])
    }

    const BUSY: Fault = Fault::Refuse(Refusal::Unavailable);

    fn decide(rules: &mut Rules, asked: &Asked<'_>, now: i64) -> Option<Fault> {
        rules.decide(asked, at(now), &mut fastrand::Rng::with_seed(1))
    }

    #[test]
    fn a_matcher_asks_only_for_what_it_names() {
        let cases = [
            (Matcher::any(), true),
            (Matcher::any().client("manager"), true),
            (Matcher::any().client("other"), false),
            (Matcher::any().verb("patch").resource("pods").namespace("shop"), true),
            (Matcher::any().verb("update"), false),
            (Matcher::any().resource("nodes"), false),
            (Matcher::any().namespace("default"), false),
        ];
        for (matcher, strikes) in cases {
            let decided = decide(&mut rules(matcher.clone(), When::always(), BUSY), &asked("patch"), 0);
            assert_eq!(decided.is_some(), strikes, "{matcher:?}");
        }
    }

    #[test]
    fn faults_happen_only_where_they_can() {
        let silent = Fault::Webhook(Outage::Silent);
        let conflict = Fault::Refuse(Refusal::Conflict);
        let lost = Fault::Timeout { applied: true, answered: false, after: Duration::ZERO };
        let drop = Fault::DropWatch { after: Duration::ZERO };
        let stale = Fault::Stale { revisions: 1 };
        let verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "call"];
        let cases: [(Fault, &[&str]); 8] = [
            (BUSY, &["get", "list", "watch", "create", "update", "patch", "delete"]),
            (lost, &["get", "list", "watch", "create", "update", "patch", "delete"]),
            (conflict, &["update", "patch", "delete"]),
            (drop, &["watch"]),
            (Fault::StallWatch { time: None }, &["watch"]),
            (Fault::LateWatch { by: Duration::ZERO }, &["watch"]),
            (stale, &["get", "list"]),
            (silent, &["call"]),
        ];
        for (fault, fits) in cases {
            for verb in verbs {
                let decided = decide(&mut rules(Matcher::any(), When::always(), fault), &asked(verb), 0);
                assert_eq!(decided.is_some(), fits.contains(&verb), "{fault} on {verb}");
            }
        }
        let eviction = Asked { subresource: "eviction", ..asked("create") };
        let decided = decide(&mut rules(Matcher::any(), When::always(), conflict), &eviction, 0);
        assert_eq!(decided, Some(conflict), "writes through a subresource can conflict");
    }

    #[test]
    fn windows_begin_and_end() {
        let when = When::always().during(at(10), at(20)).during(at(30), at(31));
        let mut rules = rules(Matcher::any(), when, BUSY);
        let struck: Vec<i64> =
            (0..40).filter(|now| decide(&mut rules, &asked("get"), *now).is_some()).collect();
        assert_eq!(struck, (10..20).chain([30]).collect::<Vec<_>>());
    }

    #[test]
    fn the_nth_request_is_counted_among_those_that_match() {
        let mut rules = rules(Matcher::any().verb("patch"), When::nth(2), BUSY);
        let verbs = ["patch", "get", "get", "patch", "patch"];
        let struck: Vec<bool> =
            verbs.iter().map(|verb| decide(&mut rules, &asked(verb), 0).is_some()).collect();
        assert_eq!(struck, [false, false, false, true, false]);
    }

    #[test]
    fn chance_is_as_likely_as_said_and_the_same_for_the_same_seed() {
        let run = |seed: u64| -> Vec<bool> {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rules = rules(Matcher::any(), When::chance(0.1), BUSY);
            (0..10_000).map(|_| rules.decide(&asked("get"), at(0), &mut random).is_some()).collect()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let struck = run(1).into_iter().filter(|struck| *struck).count();
        assert!((900..1100).contains(&struck), "{struck} of 10,000");
    }

    #[test]
    fn the_first_rule_that_strikes_decides() {
        let rule = |when: When, fault: Fault| Rule { on: Matcher::any(), when, fault };
        let late = Fault::Latency(Duration::from_secs(1));
        let mut rules = Rules::new(vec![rule(When::nth(2), BUSY), rule(When::always(), late)]);
        let faults = [1, 2, 3].map(|_| decide(&mut rules, &asked("get"), 0));
        assert_eq!(faults, [Some(late), Some(BUSY), Some(late)]);
    }

    #[test]
    fn an_open_watch_knows_when_a_window_may_strike_it() {
        let drop = Fault::DropWatch { after: Duration::ZERO };
        let when = When::chance(0.5).during(at(10), at(20)).during(at(30), at(40));
        let rules = rules(Matcher::any(), when, drop);
        let next = |now: i64| rules.next_window(&asked("watch"), at(now)).map(Timestamp::as_second);
        assert_eq!([next(0), next(10), next(30)], [Some(10), Some(30), None]);
    }
}
