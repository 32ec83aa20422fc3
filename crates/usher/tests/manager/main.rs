//! The binary and what is shipped with it: `usher manager` on an embedded cluster, `deploy/` and the pages of `docs/`.

mod deploy;
mod memory;
mod threats;
