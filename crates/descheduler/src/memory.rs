//! What a requester remembers across restarts, and how it is written.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::requester::PodId;

/// How far a pod is that is moved in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moving {
    /// Somebody has said so, or was about to be asked.
    Promised,
    /// Somebody has marked it.
    Marked,
    /// It is marked, and took too long: it does not count, and may be asked again.
    GivenUp,
}

impl Moving {
    const ALL: [(Self, &str); 3] =
        [(Self::Promised, "promised"), (Self::Marked, "marked"), (Self::GivenUp, "given-up")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, one)| *one == word).map(|(state, _)| *state)
    }
}

/// What outlives the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Until when pods are not asked.
    pub cooling: BTreeMap<PodId, Timestamp>,
    /// Since when pods are moved in the background, and how far they are.
    pub background: BTreeMap<PodId, (Timestamp, Moving)>,
}

impl Memory {
    /// A line for each pod that is not asked, and for each that is moved in the background.
    pub fn to_texts(&self) -> (String, String) {
        let cooling = self.cooling.iter().map(|(pod, until)| format!("{pod} {until}"));
        let background = self.background.iter().map(|(pod, (since, state))| {
            let word = state.word();
            format!("{pod} {since} {word}")
        });
        (cooling.collect::<Vec<_>>().join("\n"), background.collect::<Vec<_>>().join("\n"))
    }

    /// What cannot be understood is left out.
    pub fn of_texts(cooling: &str, background: &str) -> Self {
        let of_line = |line: &str| {
            let mut words = line.split(' ');
            let (pod, time) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((pod, time, words.next().map(str::to_owned)))
        };
        let cooling = cooling.lines().filter_map(of_line).map(|(pod, until, _)| (pod, until));
        let background = background.lines().filter_map(of_line);
        let background =
            background.filter_map(|(pod, since, word)| Some((pod, (since, Moving::parse(&word?)?))));
        Self { cooling: cooling.collect(), background: background.collect() }
    }
}
