//! What a requester remembers across restarts, and how it is written.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use usher_api::names::{
    DESCHEDULER_ASKED_KEY, DESCHEDULER_COOL_DOWNS_KEY, DESCHEDULER_IN_BACKGROUND_KEY, DESCHEDULER_MOVED_KEY,
};

use crate::policy::PluginName;
use crate::requester::PodId;

/// So many bytes of each kind are written, the latest first: an object has at most 1 MiB, with four of them.
const LONGEST: usize = 240 * 1024;

/// How far a pod is that is moved in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moving {
    /// Somebody is about to be asked. Whether that came to it is not known after a crash.
    Asking,
    /// Somebody has said so.
    Promised,
    /// Somebody has marked it.
    Marked,
    /// It is marked, and took too long: it does not count, and may be asked again.
    GivenUp,
}

impl Moving {
    const ALL: [(Self, &str); 4] = [
        (Self::Asking, "asking"),
        (Self::Promised, "promised"),
        (Self::Marked, "marked"),
        (Self::GivenUp, "given-up"),
    ];

    /// Nobody has marked the pod yet.
    pub fn is_unmarked(self) -> bool {
        matches!(self, Self::Asking | Self::Promised)
    }

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, one)| *one == word).map(|(state, _)| *state)
    }
}

/// A pod that was asked to leave where the scheduler may put its replacement at once into the same situation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moved {
    /// Until when its replacement is left alone by the plugin.
    pub until: Timestamp,
    /// What its owner made later may be its replacement.
    pub asked: Timestamp,
    pub plugin: PluginName,
    /// By UID.
    pub owner: Arc<str>,
}

/// A pod that has a request of ours.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requested {
    pub since: Timestamp,
    /// The plugin that wanted it, and its profile, where that is known.
    pub by: Option<(PluginName, String)>,
}

/// What outlives the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// Until when pods are not asked.
    pub cooling: BTreeMap<PodId, Timestamp>,
    /// Until when pods that could not be asked are not tried, and how often that was so.
    pub failed: BTreeMap<PodId, (Timestamp, u32)>,
    /// Pods that have a request of ours: who finds one without it knows that somebody else has withdrawn it.
    pub asked: BTreeMap<PodId, Requested>,
    /// Since when pods are moved in the background, and how far they are.
    pub background: BTreeMap<PodId, (Timestamp, Moving)>,
    pub moved: BTreeMap<PodId, Moved>,
}

impl Memory {
    /// As data of a ConfigMap: a text for each kind, with a line for each pod. Its keys take no slashes, so pods are in the lines.
    pub fn to_data(&self) -> BTreeMap<String, String> {
        let cooling = self.cooling.iter().map(|(pod, until)| (*until, format!("{pod} {until}")));
        // Whoever does not know the third word leaves them alone for as long.
        let failed =
            self.failed.iter().map(|(pod, (until, times))| (*until, format!("{pod} {until} {times}")));
        let asked = self.asked.iter().map(|(pod, Requested { since, by })| match by {
            Some((plugin, profile)) => (*since, format!("{pod} {since} {plugin} {profile}")),
            None => (*since, format!("{pod} {since}")),
        });
        let background = self.background.iter().map(|(pod, (since, state))| {
            let word = state.word();
            (*since, format!("{pod} {since} {word}"))
        });
        let moved = self.moved.iter().map(|(pod, Moved { until, asked, plugin, owner })| {
            (*until, format!("{pod} {until} {asked} {plugin} {owner}"))
        });
        [
            (DESCHEDULER_COOL_DOWNS_KEY.to_owned(), latest(cooling.chain(failed))),
            (DESCHEDULER_ASKED_KEY.to_owned(), latest(asked)),
            (DESCHEDULER_IN_BACKGROUND_KEY.to_owned(), latest(background)),
            (DESCHEDULER_MOVED_KEY.to_owned(), latest(moved)),
        ]
        .into()
    }

    /// What cannot be understood is left out.
    pub fn of_data(data: &BTreeMap<String, String>) -> Self {
        let lines = |key: &str| data.get(key).map(String::as_str).unwrap_or_default().lines().map(Words::of);
        let (mut cooling, mut failed) = (BTreeMap::new(), BTreeMap::new());
        for mut line in lines(DESCHEDULER_COOL_DOWNS_KEY) {
            if let (Some(pod), Some(until)) = (line.next(), line.next()) {
                match line.next() {
                    Some(times) => drop(failed.insert(pod, (until, times))),
                    None => drop(cooling.insert(pod, until)),
                }
            }
        }
        let asked = lines(DESCHEDULER_ASKED_KEY).filter_map(|mut it| {
            let (pod, since) = (it.next()?, it.next()?);
            // The rest is the name of a profile, which may have any words.
            let by =
                it.0.next().and_then(plugin_of).map(|plugin| (plugin, it.0.collect::<Vec<_>>().join(" ")));
            Some((pod, Requested { since, by }))
        });
        let background = lines(DESCHEDULER_IN_BACKGROUND_KEY).filter_map(|mut it| {
            let (pod, since) = (it.next()?, it.next()?);
            Some((pod, (since, Moving::parse(it.0.next()?)?)))
        });
        let moved = lines(DESCHEDULER_MOVED_KEY).filter_map(|mut it| {
            let (pod, until, asked) = (it.next()?, it.next()?, it.next()?);
            let (plugin, owner) = (plugin_of(it.0.next()?)?, it.0.next()?.into());
            Some((pod, Moved { until, asked, plugin, owner }))
        });
        Self {
            cooling,
            failed,
            asked: asked.collect(),
            background: background.collect(),
            moved: moved.collect(),
        }
    }
}

fn plugin_of(name: &str) -> Option<PluginName> {
    PluginName::ALL.into_iter().find(|plugin| plugin.as_str() == name)
}

/// The words of a line.
struct Words<'a>(std::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        Self(line.split(' '))
    }

    fn next<T: FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }
}

/// As many of the lines as fit, the latest first.
fn latest(lines: impl Iterator<Item = (Timestamp, String)>) -> String {
    let mut lines: Vec<(Timestamp, String)> = lines.collect();
    lines.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
    let mut text = String::new();
    for (_, line) in lines {
        if text.len() + line.len() + 1 > LONGEST {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}
