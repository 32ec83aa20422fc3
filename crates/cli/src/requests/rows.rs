//! The rows of the table, from what is known and the time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use usher_decide::snapshot::{Key, Request};

use crate::request_text::{WaitText as _, state_in, turn_text};
use crate::span;
use crate::table::Table;
use crate::world::World;

const WAITING_ON: &str = "WAITING ON";
/// What a narrow terminal can do without, in this order.
const SPARE: [&str; 5] = ["REQUESTERS", "AGE", "NODE", "PROGRESS", "ETA"];

#[derive(Debug, Clone, Copy, Default)]
pub struct Columns {
    pub namespace: bool,
    pub wide: bool,
}

impl Columns {
    fn table(self) -> Table {
        let mut head = Vec::new();
        if self.namespace {
            head.push("NAMESPACE");
        }
        head.extend(["POD", "NODE", "REQUESTERS", "TURN", "PROGRESS", "ETA", WAITING_ON, "AGE"]);
        if self.wide {
            head.extend(["DEADLINE", "CANCELLATION", "REFUSED", "REQUEST", "MESSAGE"]);
        }
        Table::new(&head)
    }
}

/// By namespace and pod.
///
/// `width` is that of a terminal: all of what is waited for is to be seen there, if need be instead of other columns.
pub fn table(world: &World, columns: Columns, width: Option<usize>, now: Timestamp) -> String {
    let mut table = columns.table();
    let mut requests: Vec<&Request> = world.requests.values().collect();
    requests.sort_by_key(|request| (request.pod_key(), request.key.clone()));
    for request in requests {
        table.row(row(world, request, columns, now));
    }
    if let Some(width) = width.filter(|_| !columns.wide) {
        table.fit(width, &SPARE, WAITING_ON);
    }
    table.render()
}

fn row(world: &World, request: &Request, columns: Columns, now: Timestamp) -> Vec<String> {
    let status = &request.status;
    // A pod of the same name and another UID is another pod.
    let pod = world.pod_of(request).filter(|pod| pod.uid == request.pod_uid);
    let requesters: Vec<&str> = request.requesters().collect();
    let mut cells = Vec::new();
    if columns.namespace {
        cells.push(request.key.namespace.to_string());
    }
    cells.extend([
        request.pod_name.to_string(),
        pod.map(|pod| pod.node.to_string()).unwrap_or_default(),
        requesters.join(","),
        turn_text(request, now),
        progress(request, now),
        status
            .expected_interceptor_finish_time
            .as_ref()
            .map(|time| span::eta(time.0, now))
            .unwrap_or_default(),
        state_in(world, request, now).wait.phrase(now),
        span::age(request.created, now),
    ]);
    if columns.wide {
        cells.extend([
            span::human(request.deadline),
            format!("{:?}", status.eviction_request_cancellation_policy),
            status.failed_api_eviction_counter.to_string(),
            request.key.name.to_string(),
            status.message.split_whitespace().collect::<Vec<_>>().join(" "),
        ]);
    }
    cells
}

/// How long ago progress was reported. The time in the status is that of the turn, until somebody reports.
fn progress(request: &Request, now: Timestamp) -> String {
    match &request.status.progress_timestamp {
        Some(time) if request.is_progress_reported => span::age(time.0, now),
        Some(_) => "never".to_string(),
        None => String::new(),
    }
}

/// What was printed already, so that only what has changed is printed again.
#[derive(Debug, Default)]
pub struct Changes {
    printed: BTreeMap<Key, (String, Vec<String>)>,
    widths: Vec<usize>,
    has_begun: bool,
}

impl Changes {
    /// A line for each request that is new, has changed in more than the passing of time, or has ended.
    pub fn lines(&mut self, world: &World, columns: Columns, now: Timestamp) -> String {
        let mut table = if self.has_begun { Table::default() } else { columns.table() };
        self.has_begun = true;
        let mut printed = std::mem::take(&mut self.printed);
        for (key, request) in &world.requests {
            let state = state_in(world, request, now);
            let node = world.pod_of(request).map(|pod| pod.node.to_string());
            // What the request says of itself, without figures that change by the second.
            let essence = format!(
                "{:?} {node:?} {} {:?} {}",
                request.finalizers,
                turn_text(request, now),
                request.status,
                state.wait.sentence()
            );
            let cells = row(world, request, columns, now);
            if printed.remove(key).is_none_or(|(before, _)| before != essence) {
                table.row(cells.clone());
            }
            self.printed.insert(key.clone(), (essence, cells));
        }
        for (_, mut cells) in printed.into_values() {
            let waiting_on = usize::from(columns.namespace) + 6;
            if let Some(cell) = cells.get_mut(waiting_on) {
                *cell = "request ended".to_string();
            }
            table.row(cells);
        }
        table.render_at(&mut self.widths)
    }
}
