//! The binary, and what is shipped with it: `usher manager` on the real control plane, its traces, `deploy/` and the pages of `docs/`.

#[path = "../common/mod.rs"]
mod common;
mod deploy;
mod guide;
mod manager;
mod memory;
mod threats;
mod traces;
