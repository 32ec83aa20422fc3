//! Logs of the manager, for people or for machines, on stderr.

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::{Filter, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use super::traces::Traces;

#[derive(clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// How log lines are written.
    #[arg(long, alias = "logging-format", value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// What is logged: error, warn, info, debug or trace, or by module, such as warn,usher_controllers=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = level)]
    log_level: Targets,
    /// The same as a number, as programs of Kubernetes have it: from 4 on debug, from 6 on trace.
    #[arg(long, short = 'v', value_name = "NUMBER", conflicts_with = "log_level")]
    v: Option<u32>,
}

impl Arguments {
    fn levels(&self) -> Targets {
        match self.v {
            Some(0..=3) => Targets::new().with_default(LevelFilter::INFO),
            Some(4..=5) => Targets::new().with_default(LevelFilter::DEBUG),
            Some(6..) => Targets::new().with_default(LevelFilter::TRACE),
            None => self.log_level.clone(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A line of text.
    Text,
    /// An object of JSON per line.
    Json,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A word that is no level would be taken for a module, and everything else not be logged.
fn level(text: &str) -> Result<Targets, String> {
    let is_level = |level: &str| LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
    let is_known = |part: &str| match part.split_once('=') {
        Some((module, level)) => !module.is_empty() && is_level(level),
        None => is_level(part),
    };
    let parsed = text.split(',').all(is_known).then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| {
        format!("use one of {}, or a list such as warn,usher_controllers=debug", LEVELS.join(", "))
    })
}

/// What the client of the API server warns of has whole answers in it, also those with secrets. They are for who asks for details.
const QUOTES_ANSWERS: &str = "kube_client";

fn filter<S>(wanted: Targets) -> impl Filter<S> {
    let levels = wanted.iter().map(|(_, level)| level).chain(wanted.default_level());
    let most = levels.max().unwrap_or(LevelFilter::OFF);
    let is_wanted = move |about: &Metadata<'_>| {
        let is_quote = about.target().starts_with(QUOTES_ANSWERS);
        let level = if is_quote { (*about.level()).max(Level::DEBUG) } else { *about.level() };
        wanted.would_enable(about.target(), &level)
    };
    filter_fn(is_wanted).with_max_level_hint(most)
}

pub fn start(arguments: &Arguments, traces: Option<&Traces>) -> anyhow::Result<()> {
    let to_stderr = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match arguments.log_format {
        Format::Text => to_stderr.boxed(),
        Format::Json => to_stderr.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(arguments.levels())))
        .with(traces.map(Traces::layer))
        .try_init()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The client logs an answer that it cannot read, whole: the Secret of somebody.
    #[tokio::test]
    async fn an_answer_of_the_api_server_is_not_logged_above_debug() {
        for (given, is_logged) in
            [("info", false), ("warn,usher=debug", false), ("debug", true), ("info,kube_client=debug", true)]
        {
            let lines = Lines::default();
            let writer = lines.clone();
            let layer = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
            let subscriber =
                tracing_subscriber::registry().with(layer.with_filter(filter(level(given).unwrap())));
            let _here = tracing::subscriber::set_default(subscriber);
            let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                let answer = br#"{"data": {"tls.key": "PRIVATE"}, "metadata": 5}"#.to_vec();
                Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(answer)))
            });
            let client = kube::Client::new(service, "default");
            let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(client);
            assert!(pods.get("web").await.is_err());
            tracing::warn!("a line of ours");
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            assert_eq!(text.contains("PRIVATE"), is_logged, "{given}: {text}");
            assert!(text.contains("a line of ours"), "{given}: {text}");
        }
    }

    #[test]
    fn a_level_that_does_not_exist_is_refused_with_those_that_do() {
        for right in ["info", "WARN", "off", "warn,usher_controllers=debug"] {
            assert!(level(right).is_ok(), "{right}");
        }
        for wrong in
            ["nonsense", "infos", "", "info,", "usher_controllers=loud", "=debug", "warn,usher_controllers"]
        {
            let why = level(wrong).unwrap_err();
            assert!(
                why.starts_with("use one of off, error, warn, info, debug, trace, or a list"),
                "{wrong}: {why}"
            );
        }
    }
}
