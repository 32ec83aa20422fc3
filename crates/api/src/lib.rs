//! API types of Usher.
