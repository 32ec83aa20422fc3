//! The real control plane as a test judge.
