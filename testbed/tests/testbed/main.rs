//! The testbed as a library and as a program: what it builds, what it starts, and that nothing of it stays.

mod build_errors;
mod common;
mod owner_ends;
mod real_control_plane;
