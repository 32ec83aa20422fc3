//! The commands of the sandbox in a binary that was built without it: they say so.

pub mod demo {
    pub use super::{Arguments, run};
}

pub mod sandbox {
    pub use super::{Arguments, run};
}

/// Whatever is asked for.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _any: Vec<String>,
}

pub async fn run(_: Arguments) -> anyhow::Result<()> {
    anyhow::bail!(
        "this usher was built without the sandbox, as those are that run in clusters: build one from the sources, with \
         cargo install --path crates/usher"
    )
}
