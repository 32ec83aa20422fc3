//! The cluster that the other tests stand on: the embedded API server, what lives beside it, and how both compare with the real
//! control plane.

mod conformance;
mod faults;
mod heartbeats;
mod hostile_input;
mod housekeeping;
mod kube_rs;
mod kubectl;
mod kubectl_create;
mod life;
mod list_watch;
mod too_large;
mod webhooks;
