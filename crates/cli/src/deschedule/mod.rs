//! `usher deschedule`: what a descheduler's policy would do, and why a pod is meant or kept. Nothing is changed.

mod read;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use usher_api::names::{
    DESCHEDULER_LEASE, DESCHEDULER_POLICY_CONFIG_MAP, DESCHEDULER_POLICY_KEY, MANAGER_NAMESPACE,
};
use usher_descheduler::usage::UsageSources;
use usher_descheduler::{Explanation, Policy, explain, plan};

use crate::arguments::{Connection, pod_name};
use crate::output::Structured;
use crate::{Ending, Environment, Error, Streams};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Show the plan: who would be asked to leave, by which plugin and why, where they would fit, and what they would meet.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    source: Source,
    /// Print the plan in this format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structured>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Explain for a pod which plugin wants it to leave, or which filter keeps it, and why.
    Explain {
        /// The pod, as NAME or pod/NAME.
        #[arg(value_name = "POD", value_parser = pod_name)]
        pod: String,
        #[command(flatten)]
        source: Source,
    },
}

/// By which policy, and over what.
#[derive(Debug, clap::Args)]
struct Source {
    /// The policy: a DeschedulerPolicy of descheduler/v1alpha2. By default that of the descheduler in the cluster.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Look at a dump of a cluster instead: a list as kubectl get nodes,pods,... -A -o json prints it.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    /// The namespace of the descheduler in the cluster, where its policy and its cool-downs are.
    #[arg(long, value_name = "NAMESPACE", default_value = MANAGER_NAMESPACE)]
    descheduler_namespace: String,
    /// The name of the descheduler in the cluster: that of its lease, by which it remembers its cool-downs.
    #[arg(long, value_name = "NAME", default_value = DESCHEDULER_LEASE)]
    descheduler_name: String,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(
    arguments: Arguments,
    environment: &Environment,
    streams: Streams<'_>,
) -> Result<Ending, Error> {
    match arguments.command {
        Some(Command::Explain { pod, source }) => {
            let (policy, read, namespace) = source.read(environment).await?;
            let (in_progress, now) = (read.in_progress(environment.now()), environment.now());
            let found = explain(&read.cluster, &policy, &in_progress, now, &namespace, &pod);
            if found == Explanation::NoSuchPod {
                return Err(Error::NoSuchPod { namespace, name: pod });
            }
            streams.out.write_all(text::explanation(&namespace, &pod, &found, &read).as_bytes())?;
            Ok(Ending::Done)
        }
        None if !arguments.dry_run => Err(Error::Usage(
            "say --dry-run to see the plan: pods are asked by a descheduler that runs, see usher descheduler --help \
             and the manager's flag --policy-config-file"
                .to_owned(),
        )),
        None => {
            let (policy, read, _) = arguments.source.read(environment).await?;
            let now = environment.now();
            let plan = plan(&read.cluster, &policy, &read.in_progress(now), now);
            let findings = read.findings(&plan, now);
            let text = match arguments.output {
                Some(format) => format.render(&text::structured(&plan, &findings, &read))?,
                None => text::plan(&plan, &findings, &read, environment),
            };
            streams.out.write_all(text.as_bytes())?;
            Ok(Ending::Done)
        }
    }
}

impl Source {
    /// The policy, what there is, and the namespace that is meant.
    async fn read(&self, environment: &Environment) -> Result<(Policy, read::ClusterRead, String), Error> {
        let connected = match &self.dump {
            Some(_) if self.policy.is_some() => None,
            _ => Some(self.connection.open(environment).await?),
        };
        let policy = match (&self.policy, &connected) {
            (Some(path), _) => understood(&text_of(path, "policy")?, &path.display().to_string())?,
            (None, Some(connected)) => policy_in(&connected.client, &self.descheduler_namespace).await?,
            (None, None) => return Err(Error::Usage("name a policy with -f".to_owned())),
        };
        let namespace = match (&self.connection.namespace, &connected) {
            (Some(namespace), _) => namespace.clone(),
            (None, Some(connected)) => connected.namespace.clone(),
            (None, None) => "default".to_owned(),
        };
        let sources = UsageSources::of(&policy);
        let mut read = match (&self.dump, &connected) {
            (Some(path), _) => {
                let mut read = read::dump(&text_of(path, "dump")?, &path.display().to_string())?;
                if !sources.is_empty() {
                    read.unknown_usage
                        .push("a dump has no real usage: look at the cluster itself".to_owned());
                }
                read
            }
            (None, Some(connected)) => {
                let name = (self.descheduler_namespace.as_str(), self.descheduler_name.as_str());
                let mut read = read::cluster(&connected.client, name).await?;
                if !sources.is_empty() {
                    let usage = usher_apply::usage::read(sources, connected.client.clone()).await;
                    read.unknown_usage = usage.set_in(&mut read.cluster);
                }
                read
            }
            (None, None) => return Err(Error::Usage("name a dump with --dump".to_owned())),
        };
        read.descheduler = format!("{}/{}", self.descheduler_namespace, self.descheduler_name);
        Ok((policy, read, namespace))
    }
}

fn text_of(path: &Path, what: &str) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|why| Error::Usage(format!("the {what} {} cannot be read: {why}", path.display())))
}

fn understood(text: &str, place: &str) -> Result<Policy, Error> {
    Policy::read(text).map_err(|errors| Error::Usage(format!("the policy {place} is refused: {errors}")))
}

/// The policy that the descheduler in the cluster goes by.
async fn policy_in(client: &Client, namespace: &str) -> Result<Policy, Error> {
    let name = DESCHEDULER_POLICY_CONFIG_MAP;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let text = maps.get_opt(name).await?.and_then(|map| map.data?.remove(DESCHEDULER_POLICY_KEY));
    let Some(text) = text else {
        return Err(Error::Usage(format!(
            "the cluster has no policy (ConfigMap {name} in namespace {namespace}): name one with -f, or the namespace of the \
             descheduler with --descheduler-namespace"
        )));
    };
    understood(&text, &format!("in ConfigMap {namespace}/{name}"))
}
