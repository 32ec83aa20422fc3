//! Following a drain until it is over.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, ResourceExt as _};
use usher_api::NodeMaintenance;
use usher_api::names::KEEP_NODES_ANNOTATION;
use usher_forecast::followed_drain::{
    has_reached_daemons, is_active, is_drained_by_now, is_without_nodes, lost_nodes, speaks_of,
};

use super::create::names_of;
use super::lookups::Lookups;
use super::picture::{Said, drained, not_drained, picture, room, shown};
use super::progress::{self, Progress, Source};
use super::selection::{count_of_names, read_nodes};
use crate::live::{Changed, Live, OnNodes, Scope};
use crate::reading::Read;
use crate::requests::say_if_hidden;
use crate::screen::Screen;
use crate::sketch::MaintenanceSketch;
use crate::wait::out_of_time;
use crate::{Ending, Environment, Error, Streams};

/// Things change by the passing of time, too; and what changes more often is told together.
const TICK: Duration = Duration::from_secs(1);
/// The pods of more nodes are not watched: how many are left is what the status says.
const WATCHED_NODES: usize = 100;
/// What is left in the end is looked at for so long.
const LAST_LOOK: Duration = Duration::from_secs(10);

/// How long a drain is followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Until {
    /// `None`: to its end.
    pub timeout: Option<SignedDuration>,
    /// Pods of DaemonSets and static pods need not be gone.
    pub ignores_daemons: bool,
}

/// A look at the maintenance: how it is, or that it is gone.
type Seen = watcher::Result<Option<Read<MaintenanceSketch>>>;

/// A maintenance and its pods, kept up to date.
pub struct Followed {
    pub maintenance: NodeMaintenance,
    /// It is not there any more.
    pub is_gone: bool,
    pub live: Live,
    /// Nothing has happened since the nodes were read and were others than its status speaks of.
    is_of_other_nodes: bool,
    lookups: Lookups,
    events: Pin<Box<dyn Stream<Item = Seen> + Send>>,
}

impl Followed {
    /// Returns once everything that is there has been told.
    pub async fn start(client: &Client, maintenance: NodeMaintenance) -> Result<Self, Error> {
        let on_nodes = Some(OnNodes::of(&maintenance));
        let pods_later = count_nodes(client, &maintenance).await > WATCHED_NODES;
        let scope = Scope { on_nodes, may_hide_requests: true, pods_later, ..Scope::default() };
        let live = Live::start(client, &scope).await?;
        let events =
            watch_object::<Read<MaintenanceSketch>>(Api::all(client.clone()), &maintenance.name_any())
                .default_backoff();
        let (lookups, events) = (Lookups::default(), Box::pin(events));
        Ok(Self { maintenance, is_gone: false, live, is_of_other_nodes: false, lookups, events })
    }

    /// Where it is known from how many pods are left.
    pub fn source(&self) -> Source {
        if self.live.has_pods() { Source::Pods } else { Source::Status }
    }

    /// Asks for pods that are not watched and that something is to be said of: `shown` are nodes of which each pod is told. The last
    /// pods are watched, if they are of DaemonSets or static: the status does not tell these apart.
    fn look_up(&mut self, client: &Client, progress: &mut Progress, shown: Vec<String>) {
        if progress.source == Source::Pods {
            return;
        }
        if self.live.has_pods() {
            return progress.count_pods();
        }
        if has_reached_daemons(&self.maintenance) && progress.all().left() > 0 {
            return self.live.watch_pods();
        }
        let mut changed = Changed::default();
        self.lookups.forget(&mut self.live.world, &mut changed);
        progress.note(changed);
        self.lookups.start(client, &self.live.world, shown);
    }

    /// Looks at all pods, to tell which are left.
    async fn observe_last(&mut self, progress: &mut Progress) {
        self.live.watch_pods();
        let all = async {
            while !self.live.has_pods()
                && let Ok(changed) = self.live.changed().await
            {
                progress.note(changed);
            }
        };
        // Otherwise it is told what is known.
        if tokio::time::timeout(LAST_LOOK, all).await.is_ok() && self.live.has_pods() {
            progress.count_pods();
        }
    }

    /// Waits until something has changed, and notes what.
    pub async fn changed(&mut self, progress: &mut Progress) -> Result<(), Error> {
        tokio::select! {
            changed = self.live.changed() => progress.note(changed?),
            found = self.lookups.finished() => {
                self.live.read_requests_of(found.1.as_deref().unwrap_or_default());
                progress.note(self.lookups.take_in(&mut self.live.world, found));
            }
            event = self.events.next() => match event {
                // Another one of the same name is another one.
                Some(Ok(Some(now))) if now.uid() == self.maintenance.metadata.uid => {
                    // While it cannot be read, what was known of it is what is known.
                    if self.take_over(now) {
                        progress.observe(&self.maintenance);
                        self.is_of_other_nodes = false;
                    }
                }
                Some(Ok(_)) => self.is_gone = true,
                // The watch starts anew by itself.
                Some(Err(_)) | None => {}
            },
        }
        Ok(())
    }

    /// Returns whether it could be read. What is wanted is read again only when it has changed: it names each node.
    fn take_over(&mut self, now: Read<MaintenanceSketch>) -> bool {
        if now.as_object().is_some_and(|now| now.is_of_generation(&self.maintenance)) {
            let Some(now) = now.object() else { return false };
            self.maintenance.metadata = now.metadata;
            self.maintenance.status = now.status;
            return true;
        }
        let now = now.again::<NodeMaintenance>().object();
        now.map(|now| self.maintenance = now).is_some()
    }

    /// Its nodes as they are. Once it is drained no pod is left but those that stay by choice, although this one may not have been told
    /// of the last yet.
    fn recount(&self, progress: &mut Progress, now: Timestamp) {
        match is_drained_by_now(&self.maintenance) {
            true => progress.recount_all(&self.live.world.staying(), now),
            false => progress.recount_changed(&self.live.world, now),
        }
    }

    async fn ending(&mut self, client: &Client, progress: &Progress) -> Option<Ending> {
        let maintenance = (!self.is_gone).then_some(&self.maintenance);
        let ending = progress::ending(maintenance, progress)?;
        match maintenance.filter(|maintenance| is_active(maintenance)) {
            Some(_) if self.is_of_other_nodes => None,
            Some(maintenance) if !is_of_its_nodes(client, maintenance).await => {
                self.is_of_other_nodes = true;
                None
            }
            _ => Some(ending),
        }
    }
}

/// How many nodes are selected. Who may not see nodes does not know, and may have few.
async fn count_nodes(client: &Client, maintenance: &NodeMaintenance) -> usize {
    if let Some(count) = count_of_names(&maintenance.spec.node_selector) {
        return count;
    }
    read_nodes(client).await.map_or(0, |nodes| names_of(maintenance, &nodes).len())
}

/// Whether the status speaks of the nodes that are selected now. The manager is told of nodes that come, go or are labelled otherwise
/// as this one is, but maybe not yet.
async fn is_of_its_nodes(client: &Client, maintenance: &NodeMaintenance) -> bool {
    let Some(status) = &maintenance.status else { return false };
    match read_nodes(client).await {
        // Which nodes it keeps although their labels say otherwise, only the manager knows.
        Ok(_) if maintenance.annotations().get(KEEP_NODES_ANNOTATION).is_some_and(|it| it == "true") => true,
        Ok(nodes) => speaks_of(status, &names_of(maintenance, &nodes)),
        // Who may not see nodes has to believe what is said of them.
        Err(Error::Forbidden(_)) => true,
        Err(_) => false,
    }
}

/// Shows a drain until it is over, or the time is.
pub async fn until_drained(
    client: &Client,
    maintenance: NodeMaintenance,
    until: Until,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let mut progress = Progress::new(environment.now());
    progress.ignores_daemons = until.ignores_daemons;
    let mut said = Said::default();
    let name = maintenance.name_any();
    let mut followed = match Followed::start(client, maintenance).await {
        Ok(followed) => followed,
        Err(why) => {
            write!(streams.err, "{}", goes_on(&environment.program, &name))?;
            return Err(why);
        }
    };
    say_if_hidden(&followed.live.world, streams.err)?;
    progress.source = followed.source();
    progress.observe(&followed.maintenance);
    let screen = environment.is_terminal.then(Screen::new);
    let mut tick = tokio::time::interval(TICK);
    let mut out_of_time = std::pin::pin!(out_of_time(until.timeout));
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_time_to_tell = true;
    let ending = loop {
        let now = environment.now();
        if is_time_to_tell {
            followed.is_of_other_nodes = false;
            let shown = screen.iter().flat_map(|screen| shown(progress.nodes(), room(screen.size())));
            let shown = shown.map(|node| node.name.clone()).collect();
            followed.look_up(client, &mut progress, shown);
            followed.recount(&mut progress, now);
        }
        let ending = followed.ending(client, &progress).await;
        if is_time_to_tell || ending.is_some() {
            let maintenance = &followed.maintenance;
            followed.recount(&mut progress, now);
            match &screen {
                Some(screen) => {
                    let size = screen.size();
                    screen.draw(&picture(maintenance, &progress, environment, size, now));
                }
                None => {
                    let lines = said.lines(maintenance, &progress, now);
                    streams.out.write_all(lines.as_bytes())?;
                    streams.out.flush()?;
                }
            }
        }
        if let Some(ending) = ending {
            break ending;
        }
        is_time_to_tell = tokio::select! {
            changed = followed.changed(&mut progress) => {
                changed?;
                false
            }
            _ = tick.tick() => true,
            () = &mut out_of_time => break Ending::NotGone,
            stopped = &mut interrupted => {
                stopped?;
                break Ending::Interrupted;
            }
        };
    };
    if let Some(screen) = &screen {
        screen.clear();
    }
    if ending == Ending::NotGone {
        followed.observe_last(&mut progress).await;
    }
    print_end(ending, &mut progress, &followed, environment, environment.now(), streams)?;
    Ok(ending)
}

fn print_end(
    ending: Ending,
    progress: &mut Progress,
    followed: &Followed,
    environment: &Environment,
    now: Timestamp,
    streams: Streams<'_>,
) -> Result<(), Error> {
    let maintenance = &followed.maintenance;
    followed.recount(progress, now);
    let (program, name) = (&environment.program, maintenance.name_any());
    match ending {
        Ending::Done => {
            let text = drained(maintenance, progress, program, now);
            streams.out.write_all(text.as_bytes())?;
        }
        Ending::Withdrawn if followed.is_gone => {
            writeln!(streams.err, "not drained: maintenance {name} was deleted")?;
        }
        Ending::Withdrawn if is_without_nodes(maintenance) => {
            let message = "not drained: no node is selected any more; those that were have been let go";
            write!(streams.err, "{message}\n{}", goes_on(program, &name))?;
        }
        Ending::Withdrawn if lost_nodes(maintenance).is_some() => {
            let message = lost_nodes(maintenance).unwrap_or_default();
            write!(streams.err, "not drained: {message}\n{}", goes_on(program, &name))?;
        }
        Ending::Withdrawn => {
            writeln!(streams.err, "not drained: maintenance {name} was completed or cancelled before")?;
        }
        Ending::NotGone => {
            let text = not_drained(maintenance, progress, now);
            write!(streams.err, "{text}{}", goes_on(program, &name))?;
        }
        Ending::Interrupted => write!(streams.err, "interrupted; {}", goes_on(program, &name))?,
        Ending::Incomplete => {}
    }
    Ok(())
}

/// How to see and stop what was started.
pub fn goes_on(program: &str, name: &str) -> String {
    format!(
        "maintenance {name} continues\nwatch: {program} maintenance describe {name} --watch\ncancel: {program} maintenance \
         cancel {name}\n"
    )
}
