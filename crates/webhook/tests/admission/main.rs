//! Admission over HTTPS: hostile objects, forged reviews, what is looked up, and how it is served.

mod common;
mod forged_reviews;
mod hostile_objects;
mod lookups;
mod plain_evictions;
mod serving;
