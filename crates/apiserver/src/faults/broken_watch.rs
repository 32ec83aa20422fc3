//! Watches that end early, fall silent or are late.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

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
        let mut watch = Watch {
            server: server.clone(),
            body,
            asked,
            ends: None,
            silent: Silence::Not,
            late: Duration::ZERO,
            untold: VecDeque::new(),
            is_over: false,
        };
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
    /// Everything is told so much later.
    late: Duration,
    /// What has come, and when it is told.
    untold: VecDeque<(Timestamp, Frame<Bytes>)>,
    /// Nothing more comes.
    is_over: bool,
}

impl Watch {
    fn after(&self, time: Duration) -> Timestamp {
        let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
        self.server.now().checked_add(time).unwrap_or(Timestamp::MAX)
    }

    fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::DropWatch { after } => self.ends = Some(self.after(after)),
            Fault::StallWatch { time: Some(time) } => self.silent = Silence::Until(self.after(time)),
            Fault::StallWatch { time: None } => self.silent = Silence::Forever,
            Fault::LateWatch { by } => self.late = by,
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
            let next = self.untold.front().map(|(at, _)| *at);
            if next.is_some_and(|at| at <= now) {
                return self.untold.pop_front().map(|(_, frame)| frame);
            }
            if self.is_over && next.is_none() {
                return None;
            }
            let window = self.server.faults.next_window(&self.asked.asked());
            let wake = [self.ends, window, next].into_iter().flatten().min();
            let server = self.server.clone();
            let woken = async move {
                match wake {
                    Some(time) => sleep_until(&server, time).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                frame = self.body.frame(), if !self.is_over => match frame {
                    Some(Ok(frame)) if self.late.is_zero() && self.untold.is_empty() => return Some(frame),
                    // One that comes later is not told before those that came before it.
                    Some(Ok(frame)) => self.untold.push_back((self.after(self.late), frame)),
                    None => self.is_over = true,
                },
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
