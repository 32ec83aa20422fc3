//! The rules of the API that need no cluster.

mod crd;
mod interceptor_properties;
mod pod_admission;
mod rule_cases;
mod spec_examples;
