//! systemd-logind, which announces a shutdown before it happens, and waits for programs that ask it to. Builds with the feature `logind` reach it over
//! D-Bus; others report that they cannot.

#[cfg(not(feature = "logind"))]
mod absent;
#[cfg(feature = "logind")]
mod dbus;

#[cfg(not(feature = "logind"))]
pub use absent::{Inhibitor, Logind, LogindError};
#[cfg(feature = "logind")]
pub use dbus::{Inhibitor, Logind, LogindError};
