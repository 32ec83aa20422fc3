//! What Usher promises: its definitions and policies, admission, the controllers, the SDK and the commands that people type.

mod admission;
mod cli;
mod cli_maintenance;
mod cli_outlook;
mod cli_terminal;
mod cli_unreadable;
mod crd_rules;
mod eviction_requests;
mod fuzz_corpus;
mod gateway_kubectl;
mod hand_over;
mod interceptor_sdk;
mod manager_rights;
mod node_maintenance;
mod policies;
mod unreadable;
