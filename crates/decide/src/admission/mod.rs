//! Verdicts on what people and components write: eviction requests, and pods that name interceptors.
