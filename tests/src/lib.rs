//! Scenarios on both clusters.
