//! A database that hands its data over before it goes.
//!
//! The "data" of pod P is the ConfigMap `P-data`. On its turn the interceptor copies it, key by key, into `P-data-copy`, then lets
//! the copy take over and the original go, and only then has the pod evicted. Until the take-over a cancellation is welcome: the
//! copy is thrown away. From the take-over on it is forbidden.
//!
//! Kill it at any point and start it again: what is done is in the ConfigMaps, and every step can be done twice.
//!
//! docs/interceptors.md says how to try it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use usher_interceptors::{
    ConditionStatus, InterceptorClass, InterceptorRunner, Lost, Removal, Turn, TurnError,
};

/// Marks the copy that has taken over.
const TAKEN_OVER: &str = "database.example.com/taken-over";

/// An example interceptor: copies the data of a pod before the pod is evicted.
#[derive(Parser)]
struct Arguments {
    /// The kubeconfig to use; otherwise KUBECONFIG, ~/.kube/config or the pod's own account
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the databases
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The interceptor class, as in the pods' annotation
    #[arg(long, default_value = "db.example.com")]
    class: String,
    /// How long it takes to copy one key, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_parser = duration)]
    step_time: Duration,
}

fn duration(text: &str) -> Result<Duration> {
    let signed: SignedDuration = text.parse().context("write a duration such as 500ms or 2s")?;
    Duration::try_from(signed).context("a step cannot take less than no time")
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let class = InterceptorClass::new(arguments.class)?;
    let client = client(arguments.kubeconfig).await?;
    let step_time = arguments.step_time;
    println!("answering as {class} in namespace {}", arguments.namespace);
    let runner = InterceptorRunner::new(client.clone(), class).in_namespace(arguments.namespace);
    let interceptor = runner.run(move |turn| hand_over(client.clone(), turn, step_time));
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        never = interceptor => match never {},
        _ = terminate.recv() => {}
        pressed = tokio::signal::ctrl_c() => pressed?,
    }
    // Nothing to put away: whoever starts next goes on from what is in the cluster.
    println!("stopped");
    Ok(())
}

async fn client(kubeconfig: Option<PathBuf>) -> Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let read =
                Kubeconfig::read_from(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    // The client would try an eviction that a budget refuses again and again, and hide the refusal for minutes.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// One turn.
async fn hand_over(client: Client, turn: Turn, step_time: Duration) -> Result<()> {
    let pod = &turn.pod_ref().name;
    let data = Data {
        maps: Api::namespaced(client, turn.namespace()),
        original: format!("{pod}-data"),
        copy: format!("{pod}-data-copy"),
    };
    println!("{pod}: our turn, so far: {:?}", turn.status().message);
    let original = data.original().await?.unwrap_or_default();
    if original.is_empty() && data.copy().await?.is_none() {
        turn.decline("this pod has no data to hand over").await?;
        println!("{pod}: declined");
        return Ok(());
    }
    if !data.has_taken_over().await? {
        // The interceptor before us may have forbidden it.
        turn.allow_cancellation().await?;
        match turn.keep_alive_while(copy(&turn, &data, step_time)).await {
            Ok(copied) => copied?,
            Err(Lost::Cancelled) => {
                data.throw_copy_away().await?;
                println!("{pod}: cancelled, the copy is thrown away");
                return Ok(());
            }
            Err(lost) => return Err(lost.into()),
        }
    }
    turn.forbid_cancellation().await?;
    // Half a take-over would be worse than a late one.
    turn.keep_alive_through(data.take_over()).await?;
    turn.set_condition("HandedOver", ConditionStatus::True, "CopyTookOver", "the copy serves the data")
        .await?;
    turn.progress("the copy has taken over").await?;
    println!("{pod}: the copy has taken over");
    match turn.evict_pod().await? {
        // The end of the pod is the end of the request.
        Removal::Accepted | Removal::AlreadyGone => println!("{pod}: evicted"),
        Removal::Refused(refusal) => {
            turn.complete(format!("the data is handed over; the pod could not be evicted: {refusal}"))
                .await?;
            println!("{pod}: completed, {refusal}");
        }
    }
    Ok(())
}

/// Copies what is missing, and says so step by step.
async fn copy(turn: &Turn, data: &Data, step_time: Duration) -> Result<()> {
    loop {
        let original = data.original().await?.context("the original has gone before it was copied")?;
        let copied = data.copy().await?.unwrap_or_default();
        let missing: BTreeMap<_, _> =
            original.iter().filter(|(key, value)| copied.get(*key) != Some(*value)).collect();
        let all = original.len();
        let Some((key, value)) = missing.first_key_value() else { return Ok(()) };
        sleep(step_time).await;
        data.put(key, value).await?;
        let left = u32::try_from(missing.len() - 1)?;
        let finish = Timestamp::now().checked_add(SignedDuration::try_from(step_time * left)?)?;
        let message = format!("{} of {all} keys copied", all - missing.len() + 1);
        println!("{}: {message}", turn.pod_ref().name);
        match turn.progress_with_eta(message, finish).await {
            // Whoever drops this work says why.
            Ok(()) | Err(TurnError::Lost(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
}

/// The data of one pod and its copy.
struct Data {
    maps: Api<ConfigMap>,
    original: String,
    copy: String,
}

impl Data {
    async fn original(&self) -> Result<Option<BTreeMap<String, String>>> {
        Ok(self.maps.get_opt(&self.original).await?.map(|map| map.data.unwrap_or_default()))
    }

    async fn copy(&self) -> Result<Option<BTreeMap<String, String>>> {
        Ok(self.maps.get_opt(&self.copy).await?.map(|map| map.data.unwrap_or_default()))
    }

    async fn has_taken_over(&self) -> Result<bool> {
        let copy = self.maps.get_opt(&self.copy).await?;
        Ok(copy.is_some_and(|map| map.annotations().contains_key(TAKEN_OVER)))
    }

    async fn put(&self, key: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"data": {key: value}}));
        match self.maps.patch(&self.copy, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let metadata = ObjectMeta { name: Some(self.copy.clone()), ..ObjectMeta::default() };
                let data = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
                let map = ConfigMap { metadata, data, ..ConfigMap::default() };
                self.maps.create(&PostParams::default(), &map).await?;
            }
            other => drop(other?),
        }
        Ok(())
    }

    /// The mark comes first: with it the copy counts, and the original can go, now or after a restart.
    async fn take_over(&self) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {TAKEN_OVER: "true"}}}));
        self.maps.patch(&self.copy, &PatchParams::default(), &patch).await?;
        self.remove(&self.original).await
    }

    async fn throw_copy_away(&self) -> Result<()> {
        self.remove(&self.copy).await
    }

    async fn remove(&self, name: &str) -> Result<()> {
        match self.maps.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Ok(_) => Ok(()),
            Err(other) => Err(other.into()),
        }
    }
}
