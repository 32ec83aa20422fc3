//! Traces of the manager, in builds with the feature `traces`.

#[cfg(not(feature = "traces"))]
mod absent;
#[cfg(feature = "traces")]
mod export;

use http::Uri;

#[cfg(not(feature = "traces"))]
pub use absent::Traces;
#[cfg(feature = "traces")]
pub use export::Traces;

const PATH: &str = "/v1/traces";

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Send traces of what is done to this OpenTelemetry collector, by OTLP over HTTP, such as http://collector:4318.
    /// Without it there are none.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = endpoint)]
    otlp_endpoint: Option<Uri>,
}

impl Arguments {
    /// `None` without an endpoint.
    pub fn start(&self) -> anyhow::Result<Option<Traces>> {
        self.otlp_endpoint.as_ref().map(Traces::start).transpose()
    }
}

/// The address of the collector, with the path for traces.
fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || "not an address such as http://collector:4318".to_string();
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_web || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(wrong());
    }
    let base = text.trim_end_matches('/');
    let full = if base.ends_with(PATH) { base.to_string() } else { format!("{base}{PATH}") };
    full.parse().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_web_address_and_gets_the_path_for_traces() {
        let rows = [
            ("http://collector:4318", Some("http://collector:4318/v1/traces")),
            ("http://collector:4318/", Some("http://collector:4318/v1/traces")),
            ("https://otel.example.com/in/", Some("https://otel.example.com/in/v1/traces")),
            ("http://c/v1/traces", Some("http://c/v1/traces")),
            ("collector:4318", None),
            ("grpc://collector:4317", None),
            ("http://c/?x=1", None),
            ("", None),
        ];
        for (text, wanted) in rows {
            assert_eq!(endpoint(text).ok().map(|uri| uri.to_string()).as_deref(), wanted, "{text}");
        }
    }
}
