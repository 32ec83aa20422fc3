//! `usher manager` with hundreds of pods on the real control plane. A binary of its own, whose tests run one at a time: each needs the
//! whole machine.

#[path = "../common/mod.rs"]
mod common;
mod kills;
mod many_nodes;
