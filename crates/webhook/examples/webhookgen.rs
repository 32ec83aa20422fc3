//! Prints the webhook configurations, or writes them into the file given: `webhookgen deploy/webhooks.yaml`.

use std::error::Error;

use usher_api::gateway::GatewayMode;
use usher_webhook::configurations::{NAMESPACE, Target, mutating, validating};

fn main() -> Result<(), Box<dyn Error>> {
    let target = Target::Service { namespace: NAMESPACE.to_owned() };
    let mut text = String::from(
        "# Generated from crates/webhook by `cargo run -p usher-webhook --example webhookgen deploy/webhooks.yaml`.\n\
         # The manager fills in caBundle, and the path of the gateway. While it is stopped and these are there, eviction requests and node maintenances cannot be\n\
         # changed or deleted. Stop it before you remove them, as deploy/uninstall does.\n",
    );
    for configuration in [mutating(&target), validating(&target, NAMESPACE, GatewayMode::Off)] {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&configuration)?);
    }
    match std::env::args_os().nth(1) {
        Some(file) => std::fs::write(file, text)?,
        None => print!("{text}"),
    }
    Ok(())
}
