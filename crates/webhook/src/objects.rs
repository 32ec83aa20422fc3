//! What admission reads of the objects in a review: only what verdicts look at, and each field by itself.
//!
//! An object is in the cluster already, or passed the server's own checks, when admission sees it. A value that the server takes
//! and our types do not, such as a time in the last days of the year 9999, must not keep anybody from changing or deleting it. So
//! a field that no verdict needs is never looked into, and of those that matter the ones that cannot be read count as missing.
//! Pieces are read in place, from the bytes of the review: no tree of the whole object is built.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;
use usher_api::names::EVICTING_INTERCEPTOR_ANNOTATION;
use usher_api::workloads::{BundledInterceptor, deployment_of};
use usher_api::{
    EvictionRequest, EvictionRequestSpec, EvictionRequestStatus, LocalPodReference, NodeMaintenance,
};
use usher_decide::admission::FoundPod;
use usher_decide::admission::gateway::PlainEviction;

type Piece<'a> = Option<&'a RawValue>;

/// The longest field that is read; the server lets annotations have 256 KiB.
const FIELD_MAX: usize = 512 << 10;
/// The longest spec that is read: a maintenance of 5,000 nodes by name has about 600 KiB.
const SPEC_MAX: usize = 1 << 20;

/// An object, taken apart at its first level.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Object<'a> {
    metadata: Piece<'a>,
    spec: Piece<'a>,
    status: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: Piece<'a>,
    #[serde(borrow)]
    spec: Piece<'a>,
    #[serde(borrow)]
    status: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Piece<'a>,
    #[serde(borrow)]
    generate_name: Piece<'a>,
    #[serde(borrow)]
    uid: Piece<'a>,
    #[serde(borrow)]
    resource_version: Piece<'a>,
    #[serde(borrow)]
    creation_timestamp: Piece<'a>,
    #[serde(borrow)]
    deletion_timestamp: Piece<'a>,
    #[serde(borrow)]
    labels: Piece<'a>,
    #[serde(borrow)]
    annotations: Piece<'a>,
    #[serde(borrow)]
    finalizers: Piece<'a>,
    #[serde(borrow)]
    owner_references: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    active_interceptor_class: Piece<'a>,
    #[serde(borrow)]
    active_interceptor_completed: Piece<'a>,
    #[serde(borrow)]
    expected_interceptor_finish_time: Piece<'a>,
    #[serde(borrow)]
    progress_timestamp: Piece<'a>,
    #[serde(borrow)]
    eviction_request_cancellation_policy: Piece<'a>,
    #[serde(borrow, rename = "failedAPIEvictionCounter")]
    failed_api_eviction_counter: Piece<'a>,
    #[serde(borrow)]
    phase: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow)]
    pod_ref: Piece<'a>,
    #[serde(borrow)]
    unschedulable: Piece<'a>,
}

/// Of an Eviction.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Eviction<'a> {
    #[serde(borrow)]
    delete_options: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct DeleteOptions<'a> {
    #[serde(borrow)]
    preconditions: Piece<'a>,
    #[serde(borrow)]
    grace_period_seconds: Piece<'a>,
    #[serde(borrow)]
    dry_run: Piece<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(borrow)]
    uid: Piece<'a>,
    #[serde(borrow)]
    resource_version: Piece<'a>,
}

/// What the caller of an eviction wants.
pub(crate) fn eviction(object: Piece<'_>) -> PlainEviction {
    let options: DeleteOptions<'_> = split(split::<Eviction<'_>>(object).delete_options);
    let conditions: Preconditions<'_> = split(options.preconditions);
    PlainEviction {
        uid: read(conditions.uid),
        resource_version: read(conditions.resource_version),
        grace_period_seconds: read(options.grace_period_seconds),
        is_dry_run: read::<Vec<String>>(options.dry_run).is_some_and(|all| !all.is_empty()),
        interceptor: Object::new(object).annotations().remove(EVICTING_INTERCEPTOR_ANNOTATION),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodRef<'a> {
    #[serde(borrow)]
    name: Piece<'a>,
    #[serde(borrow)]
    uid: Piece<'a>,
}

/// The piece as this type, if it is one.
fn read<T: DeserializeOwned>(piece: Piece<'_>) -> Option<T> {
    piece
        .filter(|piece| piece.get().len() <= FIELD_MAX)
        .and_then(|piece| serde_json::from_str(piece.get()).ok())
}

fn split<'a, T: Deserialize<'a> + Default>(piece: Piece<'a>) -> T {
    piece.and_then(|piece| serde_json::from_str(piece.get()).ok()).unwrap_or_default()
}

impl<'a> Object<'a> {
    /// What is no object has nothing in it.
    pub fn new(object: Piece<'a>) -> Self {
        let Parts { metadata, spec, status } = split(object);
        Self { metadata, spec, status }
    }

    fn meta(&self) -> ObjectMeta {
        let meta: Metadata<'_> = split(self.metadata);
        ObjectMeta {
            name: read(meta.name),
            generate_name: read(meta.generate_name),
            creation_timestamp: read(meta.creation_timestamp),
            labels: read(meta.labels),
            annotations: read(meta.annotations),
            finalizers: read(meta.finalizers),
            owner_references: read::<Vec<OwnerReference>>(meta.owner_references),
            ..ObjectMeta::default()
        }
    }

    pub fn annotations(&self) -> BTreeMap<String, String> {
        read(split::<Metadata<'_>>(self.metadata).annotations).unwrap_or_default()
    }

    pub fn name(&self) -> String {
        read(split::<Metadata<'_>>(self.metadata).name).unwrap_or_default()
    }

    /// Of a node.
    pub fn is_unschedulable(&self) -> bool {
        read(split::<Spec<'_>>(self.spec).unschedulable).unwrap_or_default()
    }

    /// Of a maintenance or request: whether the other one has the same spec, to the letter.
    pub fn has_spec_of(&self, other: &Self) -> bool {
        self.spec.map(RawValue::get) == other.spec.map(RawValue::get)
    }

    fn spec<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        let text = self.spec.map_or("null", RawValue::get);
        if text.len() > SPEC_MAX {
            return Err(serde_json::Error::custom("spec is too long"));
        }
        serde_json::from_str(text)
    }

    /// A field that is too long to be read would be lost if the object were changed.
    fn check_lengths(&self) -> Result<(), serde_json::Error> {
        let meta: Metadata<'_> = split(self.metadata);
        for (name, piece) in [
            ("labels", meta.labels),
            ("annotations", meta.annotations),
            ("finalizers", meta.finalizers),
            ("ownerReferences", meta.owner_references),
        ] {
            if piece.is_some_and(|piece| piece.get().len() > FIELD_MAX) {
                return Err(serde_json::Error::custom(format!("metadata.{name} is too long")));
            }
        }
        Ok(())
    }

    /// The status matters to no verdict.
    pub fn maintenance(&self) -> Result<NodeMaintenance, serde_json::Error> {
        self.check_lengths()?;
        Ok(NodeMaintenance { metadata: self.meta(), spec: self.spec()?, status: None })
    }

    /// `before` is the object that this one replaces, if it does.
    pub fn request(
        &self,
        namespace: &str,
        before: Option<&Self>,
    ) -> Result<EvictionRequest, serde_json::Error> {
        self.check_lengths()?;
        Ok(self.request_with(self.spec()?, namespace, before))
    }

    /// A request as far as it can be read, which is enough to judge its deletion.
    pub fn request_to_delete(&self, namespace: &str) -> EvictionRequest {
        let spec = self.spec().unwrap_or_else(|_| {
            let pod: PodRef<'_> = split(split::<Spec<'_>>(self.spec).pod_ref);
            let (name, uid): (Option<String>, Option<String>) = (read(pod.name), read(pod.uid));
            EvictionRequestSpec::for_pod(name.unwrap_or_default(), uid.unwrap_or_default())
        });
        self.request_with(spec, namespace, None)
    }

    fn request_with(
        &self,
        spec: EvictionRequestSpec,
        namespace: &str,
        before: Option<&Self>,
    ) -> EvictionRequest {
        let mut metadata = self.meta();
        metadata.namespace = Some(namespace.to_owned());
        EvictionRequest { metadata, spec, status: self.request_status(before) }
    }

    /// Messages and conditions matter to no verdict.
    fn request_status(&self, before: Option<&Self>) -> Option<EvictionRequestStatus> {
        self.status.filter(|status| status.get().starts_with('{'))?;
        let status: Status<'_> = split(self.status);
        let known = before.map(|before| split::<Status<'_>>(before.status).progress_timestamp);
        let is_new = known
            .is_some_and(|known| known.map(RawValue::get) != status.progress_timestamp.map(RawValue::get));
        // A time that is written now and cannot be read is later than any that can. One that was there before says nothing.
        let progress = if is_new { time(status.progress_timestamp) } else { read(status.progress_timestamp) };
        Some(EvictionRequestStatus {
            active_interceptor_class: read(status.active_interceptor_class),
            active_interceptor_completed: read(status.active_interceptor_completed).unwrap_or_default(),
            expected_interceptor_finish_time: time(status.expected_interceptor_finish_time),
            progress_timestamp: progress,
            eviction_request_cancellation_policy: read(status.eviction_request_cancellation_policy)
                .unwrap_or_default(),
            failed_api_eviction_counter: count(status.failed_api_eviction_counter),
            ..EvictionRequestStatus::default()
        })
    }

    /// A pod as found in the cluster.
    pub fn pod(&self) -> FoundPod {
        let (meta, status): (Metadata<'_>, Status<'_>) = (split(self.metadata), split(self.status));
        let owners: Vec<OwnerReference> = read(meta.owner_references).unwrap_or_default();
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        let labels = read(meta.labels).unwrap_or_default();
        FoundPod {
            deployment: controller.and_then(|it| deployment_of(&it.name, &labels)).map(str::to_owned),
            autoscaler: None,
            uid: read(meta.uid).unwrap_or_default(),
            resource_version: read(meta.resource_version).unwrap_or_default(),
            is_terminating: meta.deletion_timestamp.is_some(),
            phase: read(status.phase).unwrap_or_default(),
            labels,
            annotations: read(meta.annotations).unwrap_or_default(),
            bundled: controller.and_then(|it| BundledInterceptor::of_owner(&it.api_version, &it.kind)),
        }
    }

    pub fn labels(&self) -> BTreeMap<String, String> {
        read(split::<Metadata<'_>>(self.metadata).labels).unwrap_or_default()
    }
}

/// A time that is there and cannot be read is one beyond those that can.
fn time(piece: Piece<'_>) -> Option<Time> {
    piece.map(|_| read(piece).unwrap_or(Time(Timestamp::MAX)))
}

/// A number beyond its limits stays at them.
fn count(piece: Piece<'_>) -> i32 {
    let number: i64 = read(piece).unwrap_or_default();
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

/// The name of a pod as it may stand in a path: [`LocalPodReference`] says what it is.
pub(crate) fn is_pod_name(reference: &LocalPodReference) -> bool {
    usher_api::domain::is_subdomain(&reference.name)
}

/// A namespace as it may stand in a path.
pub(crate) fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && usher_api::domain::is_subdomain(name)
}
