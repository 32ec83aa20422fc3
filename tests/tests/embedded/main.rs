//! The embedded cluster that the other tests run on: its API server, the simulator, and how both compare with the recordings of the
//! real control plane.

mod conformance;
mod faults;
mod heartbeats;
mod hostile_input;
mod housekeeping;
mod kube_rs;
mod life;
mod list_watch;
mod too_large;
mod webhooks;
