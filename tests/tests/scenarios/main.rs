//! The scenarios of `tests/scenarios*`, on both clusters. A binary of their own: on the real cluster they take real time, and pods
//! that are late because other tests keep the machine busy end otherwise than recorded.

mod cluster;
mod descheduler;
mod evict_policy;
mod gateway;
mod maintenances;
mod requests;
mod surges;
