//! Watches that end early or fall silent.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use jiff::{SignedDuration, Timestamp};

use super::rule::{Asked, Fault};
use crate::response::{ServerBody, ServerResponse};
use crate::server::Server;

/// A watch under the rules: what was decided when it was opened, and whatever strikes it later.
pub(super) fn following(
    response: ServerResponse,
    server: &Arc<Server>,
    asked: &Asked<'_>,
    fault: Option<Fault>,
) -> ServerResponse {
    if response.status() != 200 {
        return response;
    }
    let asked = Owned {
        client: asked.client.into(),
        resource: asked.resource.into(),
        namespace: asked.namespace.into(),
    };
    response.map(|body| {
        let mut watch = Watch { server: server.clone(), body, asked, ends: None, silent: Silence::Not };
        if let Some(fault) = fault {
            watch.suffer(fault);
        }
        StreamBody::new(frames(watch)).boxed_unsync()
    })
}

fn frames(watch: Watch) -> impl Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + Send {
    futures::stream::unfold(watch, |mut watch| async move {
        let frame = watch.next().await?;
        Some((Ok(frame), watch))
    })
}

struct Owned {
    client: Box<str>,
    resource: Box<str>,
    namespace: Box<str>,
}

impl Owned {
    fn asked(&self) -> Asked<'_> {
        Asked {
            client: &self.client,
            verb: "watch",
            resource: &self.resource,
            namespace: &self.namespace,
            ..Asked::default()
        }
    }
}

enum Silence {
    Not,
    Until(Timestamp),
    Forever,
}

struct Watch {
    server: Arc<Server>,
    body: ServerBody,
    asked: Owned,
    ends: Option<Timestamp>,
    silent: Silence,
}

impl Watch {
    fn suffer(&mut self, fault: Fault) {
        let after = |time| {
            let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
            self.server.now().checked_add(time).unwrap_or(Timestamp::MAX)
        };
        match fault {
            Fault::DropWatch { after: time } => self.ends = Some(after(time)),
            Fault::StallWatch { time: Some(time) } => self.silent = Silence::Until(after(time)),
            Fault::StallWatch { time: None } => self.silent = Silence::Forever,
            // No other fault fits a watch that is open.
            _ => {}
        }
    }

    /// The next frame, or `None` at the end.
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        loop {
            let now = self.server.now();
            if self.ends.is_some_and(|ends| ends <= now) {
                return None;
            }
            match self.silent {
                Silence::Until(until) if until > now => {
                    sleep_until(&self.server, until).await;
                    continue;
                }
                Silence::Until(_) => self.silent = Silence::Not,
                Silence::Forever => {
                    while self.body.frame().await.is_some() {}
                    return None;
                }
                Silence::Not => {}
            }
            let window = self.server.faults.next_window(&self.asked.asked());
            let wake = [self.ends, window].into_iter().flatten().min();
            let server = self.server.clone();
            let woken = async move {
                match wake {
                    Some(time) => sleep_until(&server, time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                frame = self.body.frame() => {
                    let Ok(frame) = frame?;
                    return Some(frame);
                }
                () = woken => {
                    if window == wake && let Some(fault) = self.server.faults.strike(&self.asked.asked()) {
                        self.suffer(fault);
                    }
                }
            }
        }
    }
}

async fn sleep_until(server: &Server, time: Timestamp) {
    tokio::time::sleep(server.time_until(time)).await;
}
