//! `usher descheduler`: the descheduler alone, with the flags that the Go one has.

mod rights;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::SignedDuration;
use kube::Resource as _;
use tokio::sync::watch;
use tower::limit::RateLimitLayer;
use usher_api::EvictionRequest;
use usher_api::names::DESCHEDULER_LEASE;
use usher_apply::{Clock, DeschedulerName};
use usher_controllers::Context;
use usher_controllers::descheduler::{CarriedOut, Hooks, policy_file, run_until};
use usher_controllers::feeds::Feeds;
use usher_controllers::leader::{Election, Times};
use usher_controllers::metrics::Metrics;

use crate::interruption::interruption;
use crate::manager::gates::{self, Gates};
use crate::manager::{END_WITHIN, access, descheduling, duration, http as pages, identity, listen, logs};

/// A descheduler that does one cycle gives up if it has not begun after this.
const BEGINS_WITHIN: Duration = Duration::from_secs(600);

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    access: access::Arguments,
    /// Ask the API server so often in a second, on average, at most. 0: as often as it answers, which limits callers by itself (API priority
    /// and fairness).
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0, value_parser = rate)]
    client_connection_qps: f32,
    /// So often at once. Without it, as often as in a second.
    #[arg(long, value_name = "NUMBER")]
    client_connection_burst: Option<u32>,
    /// The policy: a DeschedulerPolicy of descheduler/v1alpha2. It is read again when it changes; one that is wrong is refused, and the one
    /// before holds.
    #[arg(long, value_name = "FILE")]
    policy_config_file: PathBuf,
    #[command(flatten)]
    descheduling: descheduling::Arguments,
    /// Plan and log, and ask no pod to leave. See also: usher deschedule --dry-run.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    dry_run: bool,
    /// Switches, as NAME=true or NAME=false, separated by commas. EvictionsInBackground (true): pods with the annotation
    /// descheduler.alpha.kubernetes.io/request-evict-only are evicted, and a refusal may mean that they are moved in the background.
    /// DeschedulerEvictionRequests (true): all others are asked by eviction requests; without it they are evicted.
    #[arg(long, value_name = "GATES", default_value = "", value_parser = gates::parse)]
    feature_gates: Gates,
    /// Let only the replica act that holds the lease.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    leader_elect: bool,
    /// Others take the lease when it was not renewed for so long.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: SignedDuration,
    /// The leader stops acting when it could not renew for so long. Shorter than the lease.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: SignedDuration,
    /// Between two looks at the lease, or renewals.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: SignedDuration,
    /// What is held. There are leases only.
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"], hide = true)]
    leader_elect_resource_lock: String,
    /// The name of the lease, and of this descheduler: each that runs by a policy of its own needs a name of its own, and leaves the
    /// requests of others alone.
    #[arg(long, value_name = "NAME", default_value = DESCHEDULER_LEASE)]
    leader_elect_resource_name: String,
    /// The namespace of the lease, and where cool-downs are remembered.
    #[arg(long, value_name = "NAMESPACE", default_value = "usher-system", env = "POD_NAMESPACE")]
    leader_elect_resource_namespace: String,
    /// Where /metrics and /healthz are served, over plain HTTP.
    #[arg(long, default_value = "127.0.0.1:10258")]
    metrics_address: SocketAddr,
    /// Serve neither.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    disable_metrics: bool,
    #[command(flatten)]
    logs: logs::Arguments,
}

/// As the Go one reads it: what is not above 0 is no limit.
fn rate(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(rate) if rate > 0.0 && rate < 0.001 => Err("it is at least 0.001, or 0 for no limit".to_owned()),
        Ok(rate) if rate.is_finite() => Ok(rate.max(0.0)),
        _ => Err("it is a number such as 50 or 0.5".to_owned()),
    }
}

impl Arguments {
    /// So many calls in such a time.
    fn limit(&self) -> anyhow::Result<Option<(u64, Duration)>> {
        let rate = f64::from(self.client_connection_qps);
        if rate <= 0.0 {
            return Ok(None);
        }
        if self.client_connection_burst == Some(0) {
            bail!(
                "--client-connection-burst is 0, so that nothing could be asked: leave it out, or give it a number above 0"
            );
        }
        let burst = self.client_connection_burst.map_or(rate.max(1.0).ceil(), f64::from);
        let window = Duration::try_from_secs_f64(burst / rate).unwrap_or(Duration::MAX);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 1, and of u32 or a rate"
        )]
        Ok(Some((burst as u64, window)))
    }

    fn times(&self) -> anyhow::Result<Times> {
        let (lease, renew_within, retry) = (
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        );
        if retry.is_zero() || retry >= renew_within || renew_within >= lease {
            bail!(
                "--leader-elect-lease-duration is to be longer than --leader-elect-renew-deadline, and that longer than \
                 --leader-elect-retry-period, such as 15s, 10s and 2s"
            );
        }
        // The lease has it in seconds.
        if lease.subsec_nanos() != 0 {
            bail!("--leader-elect-lease-duration is to be in whole seconds");
        }
        Ok(Times {
            lease: lease.unsigned_abs(),
            renew_within: renew_within.unsigned_abs(),
            retry: retry.unsigned_abs(),
        })
    }
}

pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    logs::start(&arguments.logs, None)?;
    let (limit, times) = (arguments.limit()?, arguments.times()?);
    // A policy that is wrong at the start is told at once, and not after the watches have begun.
    policy_file::read(&arguments.policy_config_file).map_err(|why| anyhow::anyhow!(why))?;
    let limit = limit.map(|(calls, window)| RateLimitLayer::new(calls, window));
    let client = arguments.access.limited_client(limit).await?;
    let clock = Clock::system();
    let metrics = Metrics::new(clock.clone());
    let scrapes = scrapes(&arguments, &metrics).await?;
    let namespace = &arguments.leader_elect_resource_namespace;
    let name =
        DeschedulerName { namespace: namespace.clone(), name: arguments.leader_elect_resource_name.clone() };
    rights::may_remember(&client, &name, arguments.dry_run).await?;
    let mut options = arguments.descheduling.options(
        &arguments.feature_gates,
        name,
        descheduling::Run::Alone { dry_run: arguments.dry_run },
    );
    options.knows_requests = knows_requests(&client).await;
    if !options.knows_requests {
        if options.requester.requests && !options.dry_run {
            bail!(
                "the cluster does not know eviction requests: install the custom resource definitions of deploy/crds, or evict pods with \
                 --feature-gates=DeschedulerEvictionRequests=false"
            );
        }
        tracing::info!("the cluster does not know eviction requests: there are none to count");
    }
    rights::may_read(&client, options.knows_requests).await?;
    if arguments.leader_elect && options.interval.is_none() {
        bail!(
            "--leader-elect is for a descheduler that goes on: give --descheduling-interval, or leave it out"
        );
    }
    let (stop, stopping) = watch::channel(false);
    let (begin, begun) = watch::channel(false);
    let lease = &arguments.leader_elect_resource_name;
    let work = || {
        let (client, clock, options, metrics) =
            (client.clone(), clock.clone(), options.clone(), metrics.clone());
        let (stopping, policy) = (stopping.clone(), arguments.policy_config_file.clone());
        let begin = begin.clone();
        async move {
            metrics.leads(lease, true);
            let on_synced = Box::new(move || {
                begin.send_replace(true);
            });
            let hooks = Hooks { on_synced: Some(on_synced), ..Hooks::default() };
            let context = Context {
                metrics: metrics.clone(),
                stop: stopped(stopping).boxed().shared(),
                ..Context::new(client.clone(), clock)
            };
            let mut feeds = Feeds::default();
            let running = run_until(&mut feeds, context, options, policy_file::follow(policy), hooks);
            let _watches = feeds.start(&client);
            let carried_out = running.await;
            metrics.leads(lease, false);
            carried_out
        }
    };
    let working = async {
        // A dry run writes nothing, and must not keep the one that does from its work.
        if arguments.leader_elect && !arguments.dry_run {
            // With a client of its own: what waits for the limit must not cost the lease.
            let client = arguments.access.client().await?;
            let election = Election::new(client, namespace, lease, &identity(), clock.clone());
            election.with_times(times).run(stopping.clone(), || work().map(drop)).await;
            anyhow::Ok(CarriedOut::default())
        } else {
            Ok(work().await)
        }
    };
    let mut working = std::pin::pin!(working);
    tokio::select! {
        // It does not end by itself.
        () = scrapes => {}
        ended = &mut working => return worth_it(ended?),
        () = does_not_begin(begun), if options.interval.is_none() => {
            bail!("there was no cycle within {} minutes: see above what cannot be read", BEGINS_WITHIN.as_secs() / 60);
        }
        asked = interruption() => {
            asked.context("cannot wait for signals")?;
            tracing::info!("asked to end: nothing new is begun, calls under way finish");
            stop.send_replace(true);
            if tokio::time::timeout(END_WITHIN, working).await.is_err() {
                tracing::warn!("not everything came to its end in time");
            }
        }
    }
    Ok(())
}

/// Ends if nothing is known of the cluster for too long. A cycle that has begun takes as long as it takes.
async fn does_not_begin(mut begun: watch::Receiver<bool>) {
    if tokio::time::timeout(BEGINS_WITHIN, begun.wait_for(|begun| *begun)).await.is_ok() {
        std::future::pending::<()>().await;
    }
}

/// Whoever runs it once, such as a CronJob, hears if that was for nothing.
fn worth_it(carried_out: CarriedOut) -> anyhow::Result<()> {
    if carried_out.failed > 0 && carried_out.done == 0 {
        bail!("nothing of the cycle could be carried out: see above why");
    }
    Ok(())
}

/// Whether the API server has the kind. Where it does not answer, its watches will tell.
async fn knows_requests(client: &kube::Client) -> bool {
    match client.list_api_group_resources(&EvictionRequest::api_version(&())).await {
        Ok(known) => known.resources.iter().any(|it| it.name == EvictionRequest::plural(&())),
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(_) => true,
    }
}

/// Serves metrics and health, if that is wanted. It does not end.
async fn scrapes(arguments: &Arguments, metrics: &Metrics) -> anyhow::Result<BoxFuture<'static, ()>> {
    if arguments.disable_metrics {
        return Ok(std::future::pending().boxed());
    }
    if !arguments.metrics_address.ip().is_loopback() {
        tracing::warn!("metrics are served to everybody who reaches their port");
    }
    let listener = listen("--metrics-address", arguments.metrics_address).await?;
    let metrics = metrics.clone();
    let page = move |path: String, _| {
        let found = match path.as_str() {
            "/healthz" => Some(pages::Page::text(StatusCode::OK, "ok")),
            path => pages::metrics(&metrics, path),
        };
        std::future::ready(found)
    };
    Ok(pages::serve(listener, None, page).boxed())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn given(flags: &str) -> Arguments {
        let words = ["usher", "--policy-config-file=p.yaml"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(words).unwrap().arguments
    }

    #[test]
    fn the_flags_that_manifests_of_the_go_descheduler_have_are_taken() {
        let flags = "--v=3 --logging-format=json --descheduling-interval=5m --leader-elect=true --leader-elect-lease-duration=1m15s \
                     --leader-elect-renew-deadline=10s --leader-elect-retry-period=2s --leader-elect-resource-lock=leases \
                     --leader-elect-resource-name=descheduler --leader-elect-resource-namespace=kube-system --dry-run \
                     --client-connection-kubeconfig=k --client-connection-qps=50 --client-connection-burst=100 --disable-metrics";
        let given = given(flags);
        assert_eq!(given.limit().unwrap(), Some((100, Duration::from_secs(2))));
        assert_eq!(given.times().unwrap().lease, Duration::from_secs(75));
        assert!(given.leader_elect && given.dry_run && given.disable_metrics);
    }

    #[test]
    fn calls_are_limited_only_where_a_rate_is_given() {
        assert_eq!(given("").limit().unwrap(), None);
        assert_eq!(given("--client-connection-qps=0").limit().unwrap(), None);
        assert_eq!(given("--client-connection-qps=-1").limit().unwrap(), None);
        assert_eq!(given("--client-connection-qps=20").limit().unwrap(), Some((20, Duration::from_secs(1))));
        assert_eq!(given("--client-connection-qps=0.5").limit().unwrap(), Some((1, Duration::from_secs(2))));
        let none = given("--client-connection-qps=5 --client-connection-burst=0").limit();
        assert!(none.unwrap_err().to_string().contains("leave it out"));
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for (text, part) in [
            ("0.0001", "it is at least 0.001"),
            ("NaN", "it is a number"),
            ("inf", "it is a number"),
            ("-inf", "it is a number"),
            ("many", "it is a number"),
        ] {
            assert!(rate(text).unwrap_err().contains(part), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_cycle_that_does_not_begin_is_cut_off() {
        let within = |begun| tokio::time::timeout(BEGINS_WITHIN * 100, does_not_begin(begun));
        let (begin, begun) = watch::channel(false);
        assert!(within(begun.clone()).await.is_ok(), "nothing is known of the cluster");
        begin.send_replace(true);
        assert!(within(begun).await.is_err(), "it takes its time, as calls are limited");
    }

    #[test]
    fn a_run_that_could_do_nothing_of_what_it_wanted_has_failed() {
        let is_worth_it = |done, failed| worth_it(CarriedOut { done, failed }).is_ok();
        assert!(is_worth_it(0, 0) && is_worth_it(1, 0) && is_worth_it(1, 5));
        assert!(!is_worth_it(0, 1));
    }

    #[test]
    fn times_of_an_election_that_would_have_two_leaders_are_refused() {
        for flags in [
            "--leader-elect-renew-deadline=15s",
            "--leader-elect-retry-period=10s",
            "--leader-elect-retry-period=0",
            "--leader-elect-lease-duration=10500ms",
        ] {
            assert!(given(flags).times().is_err(), "{flags}");
        }
        assert_eq!(given("").times().unwrap(), Times::default());
    }
}
