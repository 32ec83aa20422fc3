//! The commands of the sandbox in a binary that was built without it: they say so.

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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[tokio::test]
    async fn whatever_is_asked_for_is_answered_by_how_to_get_it() {
        let asked = Command::try_parse_from(["sandbox", "--nodes", "3", "-f", "x.yaml"]).unwrap();
        let refused = run(asked.arguments).await.unwrap_err().to_string();
        assert!(refused.contains("built without the sandbox"), "{refused}");
    }
}
