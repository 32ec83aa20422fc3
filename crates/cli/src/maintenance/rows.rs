//! The rows of the table of maintenances, from the objects and the time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt as _;
use usher_api::{DrainLimit, NodeMaintenance, NodeMaintenanceStatus};
use usher_decide::maintenance::plan::with_defaults;
use usher_decide::maintenance::status::is_drained;
use usher_decide::snapshot::Key;

use super::{eta, selection};
use crate::span;
use crate::table::Table;

const STAGE: usize = 1;

fn head(wide: bool) -> Table {
    let mut head = vec!["NAME", "STAGE", "NODES", "DRAINED", "PENDING", "EVICTING", "ETA", "AGE", "REASON"];
    if wide {
        head.extend(["SELECTOR", "LIMIT", "PLAN", "MESSAGE"]);
    }
    Table::new(&head)
}

/// What a narrow terminal can do without, in this order.
const SPARE: [&str; 2] = ["NODES", "AGE"];

/// By name. `width` is that of a terminal, into which the table is to fit.
pub fn table(
    maintenances: &BTreeMap<Key, NodeMaintenance>,
    wide: bool,
    width: Option<usize>,
    now: Timestamp,
) -> String {
    let mut table = head(wide);
    for maintenance in maintenances.values() {
        table.row(row(maintenance, wide, now));
    }
    if let Some(width) = width.filter(|_| !wide) {
        table.fit(width, &SPARE, "NAME");
    }
    table.render()
}

fn row(maintenance: &NodeMaintenance, wide: bool, now: Timestamp) -> Vec<String> {
    let nothing = NodeMaintenanceStatus::default();
    let status = maintenance.status.as_ref().unwrap_or(&nothing);
    let drain = status.drain_status.as_ref();
    let count = |count: Option<i32>| count.map(|count| count.to_string()).unwrap_or_default();
    let created = maintenance.creation_timestamp();
    let mut cells = vec![
        maintenance.name_any(),
        stage(maintenance),
        count(maintenance.status.as_ref().map(|status| status.nodes)),
        drain.map(|drain| format!("{}/{}", drain.nodes_drained, status.nodes)).unwrap_or_default(),
        count(drain.map(|drain| drain.pods_pending_eviction)),
        count(drain.map(|drain| drain.pods_evicting)),
        eta(maintenance).map(|at| span::eta(at, now)).unwrap_or_default(),
        created.map(|time| span::age(time.0, now)).unwrap_or_default(),
        one_line(&maintenance.spec.reason),
    ];
    if wide {
        let entries = with_defaults(&maintenance.spec.drain_plan).len();
        cells.extend([
            selection::describe(&maintenance.spec.node_selector),
            maintenance.spec.drain_limit.as_ref().map(limit).unwrap_or_default(),
            drain.map(|drain| format!("{}/{entries}", drain.plan_position + 1)).unwrap_or_default(),
            drain.map(|drain| one_line(&drain.drain_message)).unwrap_or_default(),
        ]);
    }
    cells
}

/// The stage that it is in, and whether that is over.
fn stage(maintenance: &NodeMaintenance) -> String {
    if maintenance.metadata.deletion_timestamp.is_some() {
        return "Deleting".to_string();
    }
    let stage = format!("{:?}", maintenance.spec.stage);
    match maintenance.status.as_ref().is_some_and(is_drained) {
        true if stage == "Drain" => "Drained".to_string(),
        _ => stage,
    }
}

/// `2 at a time`, `10% at a time per zone`.
pub fn limit(limit: &DrainLimit) -> String {
    let nodes = match &limit.max_nodes {
        IntOrString::Int(count) => count.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    match limit.topology_key.as_str() {
        "" => format!("{nodes} at a time"),
        key => format!("{nodes} at a time per {key}"),
    }
}

pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What was printed already, so that only what has changed is printed again.
#[derive(Debug, Default)]
pub struct Changes {
    printed: BTreeMap<Key, (String, Vec<String>)>,
    widths: Vec<usize>,
    has_begun: bool,
}

impl Changes {
    /// A line for each maintenance that is new, has changed in more than the passing of time, or is gone.
    pub fn lines(
        &mut self,
        maintenances: &BTreeMap<Key, NodeMaintenance>,
        wide: bool,
        now: Timestamp,
    ) -> String {
        let mut table = if self.has_begun { Table::default() } else { head(wide) };
        self.has_begun = true;
        let mut printed = std::mem::take(&mut self.printed);
        for (key, maintenance) in maintenances {
            let cells = row(maintenance, wide, now);
            // Ages and what is left change by the second.
            let essence = format!("{:?} {:?} {:?}", stage(maintenance), maintenance.spec, &cells[2..6]);
            if printed.remove(key).is_none_or(|(before, _)| before != essence) {
                table.row(cells.clone());
            }
            self.printed.insert(key.clone(), (essence, cells));
        }
        for (_, mut cells) in printed.into_values() {
            cells[STAGE] = "Deleted".to_string();
            table.row(cells);
        }
        table.render_at(&mut self.widths)
    }
}
