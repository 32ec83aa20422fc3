//! Following a drain until it is over.

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client, ResourceExt as _};
use usher_api::NodeMaintenance;
use usher_decide::maintenance::status::is_drained;

use super::picture::{Said, drained, not_drained, picture};
use super::progress::{self, Progress};
use crate::live::{Live, OnNodes, Scope};
use crate::requests::say_if_hidden;
use crate::screen::Screen;
use crate::wait::out_of_time;
use crate::world::World;
use crate::{Ending, Error, Streams, Surroundings};

/// Things change by the passing of time, too; and what changes more often is told together.
const TICK: Duration = Duration::from_secs(1);

/// How long a drain is followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Until {
    /// `None`: to its end.
    pub timeout: Option<SignedDuration>,
    /// Pods of DaemonSets and static pods need not be gone.
    pub ignores_daemons: bool,
}

/// A maintenance and its pods, kept up to date.
pub struct Followed {
    pub maintenance: NodeMaintenance,
    /// It is not there any more.
    pub is_gone: bool,
    pub live: Live,
    ignores_daemons: bool,
    news: Pin<Box<dyn Stream<Item = watcher::Result<Option<NodeMaintenance>>> + Send>>,
}

impl Followed {
    /// Returns once everything that is there has been told.
    pub async fn start(client: &Client, maintenance: NodeMaintenance, until: Until) -> Result<Self, Error> {
        let scope = Scope { on_nodes: Some(OnNodes::of(&maintenance)), ..Scope::default() };
        let live = Live::start(client, &scope).await?;
        let news = watch_object(Api::all(client.clone()), &maintenance.name_any()).default_backoff();
        let ignores_daemons = until.ignores_daemons;
        Ok(Self { maintenance, is_gone: false, live, ignores_daemons, news: Box::pin(news) })
    }

    /// Waits until something has changed, and notes what.
    pub async fn changed(&mut self, progress: &mut Progress) -> Result<(), Error> {
        tokio::select! {
            changed = self.live.changed() => progress.note(changed?),
            news = self.news.next() => match news {
                // Another one of the same name is another one.
                Some(Ok(Some(now))) if now.metadata.uid == self.maintenance.metadata.uid => {
                    progress.observe(&now);
                    self.maintenance = now;
                }
                Some(Ok(_)) => self.is_gone = true,
                // The watch starts anew by itself.
                Some(Err(_)) | None => {}
            },
        }
        Ok(())
    }

    /// Its nodes as they are. Once it is drained no pod is left, although this one may not have been told of the last yet.
    fn look(&self, progress: &mut Progress, now: Timestamp) {
        match self.maintenance.status.as_ref().is_some_and(is_drained) {
            true => progress.look_at_all(&World::default(), now),
            false => progress.look(&self.live.world, now),
        }
    }

    fn ending(&self) -> Option<Ending> {
        progress::ending((!self.is_gone).then_some(&self.maintenance), self.ignores_daemons)
    }
}

/// Shows a drain until it is over, or the time is.
pub async fn until_drained(
    client: &Client,
    maintenance: NodeMaintenance,
    until: Until,
    surroundings: &Surroundings,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    let mut progress = Progress::new(surroundings.now());
    let mut said = Said::default();
    let name = maintenance.name_any();
    let mut followed = match Followed::start(client, maintenance, until).await {
        Ok(followed) => followed,
        Err(why) => {
            write!(streams.err, "{}", goes_on(&surroundings.program, &name))?;
            return Err(why);
        }
    };
    say_if_hidden(&followed.live.world, streams.err)?;
    progress.observe(&followed.maintenance);
    let screen = surroundings.is_terminal.then(Screen::new);
    let mut tick = tokio::time::interval(TICK);
    let mut out_of_time = std::pin::pin!(out_of_time(until.timeout));
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_time_to_tell = true;
    let ending = loop {
        let now = surroundings.now();
        let ending = followed.ending();
        if is_time_to_tell || ending.is_some() {
            let maintenance = &followed.maintenance;
            followed.look(&mut progress, now);
            match &screen {
                Some(screen) => {
                    let size = screen.size();
                    screen.draw(&picture(maintenance, &progress, surroundings, size, now));
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
    tell_end(ending, &mut progress, &followed, surroundings, surroundings.now(), streams)?;
    Ok(ending)
}

fn tell_end(
    ending: Ending,
    progress: &mut Progress,
    followed: &Followed,
    surroundings: &Surroundings,
    now: Timestamp,
    streams: Streams<'_>,
) -> Result<(), Error> {
    let maintenance = &followed.maintenance;
    followed.look(progress, now);
    let (program, name) = (&surroundings.program, maintenance.name_any());
    match ending {
        Ending::Done => {
            let told = drained(maintenance, progress, program, now);
            streams.out.write_all(told.as_bytes())?;
        }
        Ending::Withdrawn if followed.is_gone => {
            writeln!(streams.err, "not drained: maintenance {name} was deleted")?;
        }
        Ending::Withdrawn => {
            writeln!(streams.err, "not drained: maintenance {name} was completed or cancelled before")?;
        }
        Ending::NotGone => {
            let told = not_drained(maintenance, progress, now);
            write!(streams.err, "{told}{}", goes_on(program, &name))?;
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
