//! What Usher promises: its definitions and policies, admission, the controllers, the SDK and the commands that people type.

mod admission;
mod cli;
mod cli_maintenance;
mod cli_outlook;
mod cli_terminal;
mod crd_rules;
mod descheduler;
mod descheduler_cycles;
mod descheduler_increments;
mod descheduler_judge;
mod descheduler_policies;
mod eviction_requests;
mod hand_over;
mod interceptor_sdk;
mod leader_election;
mod manager_rights;
mod node_agent;
mod node_agent_rights;
mod node_maintenance;
mod policies;
mod unreadable;
