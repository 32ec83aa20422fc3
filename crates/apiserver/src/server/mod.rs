//! The server: the store, the kinds, who may do what, and the way a request takes through them.

mod access;
mod admit;
pub(crate) mod custom_kinds;
mod dispatch;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::admission::Caller;
use crate::attributes::User;
use crate::auth::{Rbac, Users};
use crate::clock::{Clock, SystemClock, rfc3339};
use crate::faults::Faults;
use crate::housekeeping::{self, Happened};
use crate::kinds::{Kind, Registry};
use crate::managed_fields;
use crate::store::{Key, Object, Store};
use admit::Registrations;

/// How a cluster is made.
pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// Fixes uids and generated names; without it they are random.
    pub seed: Option<u64>,
    /// Bearer tokens and whom they stand for.
    pub tokens: HashMap<String, User>,
    /// Collects garbage and empties namespaces, as the controller manager does on a real cluster. Needs a runtime.
    pub housekeeping: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), seed: None, tokens: HashMap::new(), housekeeping: true }
    }
}

/// A value derived from stored objects, valid while their resources stay at the revisions it was made from.
struct Derived<T> {
    made_at: RwLock<Option<(Vec<u64>, Arc<T>)>>,
}

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self { made_at: RwLock::new(None) }
    }
}

impl<T> Derived<T> {
    fn get(&self, store: &Store, resources: &[&str], make: impl FnOnce() -> T) -> Arc<T> {
        let revisions: Vec<u64> = resources.iter().map(|resource| store.changed_at(resource)).collect();
        if let Some((at, made)) = &*self.made_at.read()
            && *at == revisions
        {
            return made.clone();
        }
        let made = Arc::new(make());
        *self.made_at.write() = Some((revisions, made.clone()));
        made
    }
}

pub(crate) struct Server {
    pub store: Store,
    registry: RwLock<Arc<Registry>>,
    clock: Arc<dyn Clock>,
    random: Mutex<fastrand::Rng>,
    pub users: Users,
    /// Webhook endpoints in this process.
    pub endpoints: Arc<Caller>,
    pub(crate) faults: Faults,
    rbac: Derived<Rbac>,
    registrations: Registrations,
    /// The priority class for pods that name none.
    default_class: Derived<Option<Value>>,
    happened: Option<mpsc::UnboundedSender<Happened>>,
}

impl Server {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        let registry = Registry::builtin();
        let store = Store::default();
        for kind in registry.iter() {
            store.register(
                &kind.storage,
                kind.selectable.iter().map(|(_, pointer)| pointer.clone()).collect(),
            );
        }
        let users = Users::new();
        for (token, user) in options.tokens {
            users.add(token, user);
        }
        let faults = Faults::new(options.clock.clone(), options.seed);
        let (happened, receiver) = mpsc::unbounded_channel();
        let server = Arc::new(Self {
            store,
            registry: RwLock::new(Arc::new(registry)),
            clock: options.clock,
            random: Mutex::new(options.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed)),
            users,
            endpoints: Arc::new(Caller::failing_by(faults.clone())),
            faults,
            rbac: Derived::default(),
            registrations: Registrations::default(),
            default_class: Derived::default(),
            happened: options.housekeeping.then_some(happened),
        });
        server.seed_objects();
        if options.housekeeping {
            tokio::spawn(housekeeping::run(Arc::downgrade(&server), receiver));
        }
        server
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// How long it really takes until it is `at` on the cluster's clock.
    pub(crate) fn time_until(&self, at: Timestamp) -> std::time::Duration {
        self.clock.time_until(at)
    }

    /// A random number below `bound`.
    pub(crate) fn random(&self, bound: u64) -> u64 {
        self.random.lock().u64(0..bound.max(1))
    }

    /// A random UUID, version 4.
    pub(crate) fn uid(&self) -> String {
        let bits = self.random.lock().u128(..);
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The namespaces, priority classes and roles that a fresh cluster has.
    fn seed_objects(&self) {
        let now = rfc3339(self.now());
        let registry = self.registry();
        let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"].map(|name| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        });
        let classes = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)].map(
            |(name, value)| {
                serde_json::json!({
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
                    "value": value, "preemptionPolicy": "PreemptLowerPriority",
                    "description": "Used for system critical pods.",
                })
            },
        );
        for mut object in namespaces.into_iter().chain(classes).chain(crate::auth::bootstrap_objects()) {
            object["metadata"]["uid"] = self.uid().into();
            object["metadata"]["creationTimestamp"] = now.clone().into();
            let api_version = object["apiVersion"].as_str().unwrap_or_default().to_string();
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let kind = object["kind"].as_str().unwrap_or_default();
            if let Some(row) = registry.by_kind(group, version, kind) {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                let key = Key::new(text("namespace"), text("name"));
                if self.store.create(&row.storage, key, &mut object).is_err() {
                    tracing::warn!(kind = row.kind, "an object of the fresh cluster exists twice");
                }
            }
        }
    }

    /// Keeps `managedFields` up for a write that is no server-side apply.
    pub(crate) fn own_fields(
        &self,
        kind: &Kind,
        before: Option<&Value>,
        after: &mut Value,
        manager: &str,
        subresource: &str,
    ) {
        if let Some(schema) = kind.schema_ref() {
            let writer = managed_fields::Writer {
                manager,
                subresource,
                api_version: &kind.api_version(),
                now: &rfc3339(self.now()),
                reset: reset_fields(kind, subresource),
            };
            managed_fields::update(before, after, schema, &writer);
            if subresource == "scale"
                && let Some(entries) = after["metadata"]["managedFields"].as_array_mut()
            {
                // The real server does not say when a scale was written.
                for entry in
                    entries.iter_mut().filter(|e| e["subresource"] == "scale" && e["manager"] == manager)
                {
                    entry.as_object_mut().map(|entry| entry.remove("time"));
                }
            }
        }
    }

    /// A priority class by name: its value and preemption policy; the empty name asks for the global default.
    pub(crate) fn priority_class(&self, name: &str) -> Option<Value> {
        let storage = "scheduling.k8s.io/priorityclasses";
        if name.is_empty() {
            let default = self.default_class.get(&self.store, &[storage], || {
                let all = self.store.list(storage, None);
                all.objects.iter().map(|object| object.value()).find(|class| class["globalDefault"] == true)
            });
            return Option::clone(&default);
        }
        self.store.get(storage, &Key::new("", name)).map(|object| object.value())
    }

    /// An address of the service range that no service has.
    pub(crate) fn free_cluster_ip(&self) -> String {
        let services = self.store.list("services", None);
        let taken: std::collections::HashSet<&str> = services
            .objects
            .iter()
            .filter_map(|service| service.meta.fields.first())
            .map(|ip| &**ip)
            .collect();
        loop {
            let [b, c, d] = [self.random(16) + 96, self.random(256), self.random(254) + 1];
            let address = format!("10.{b}.{c}.{d}");
            if !taken.contains(address.as_str()) {
                return address;
            }
        }
    }

    /// Called after each write of an object, with what was there before.
    pub(crate) fn after_write(&self, kind: &Arc<Kind>, before: Option<&Object>, object: &Arc<Object>) {
        self.registrations.written(kind);
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.definition_written(object);
        }
        let owners = &object.meta.owners;
        let owned_anew = !owners.is_empty() && before.is_none_or(|before| before.meta.owners != *owners);
        self.report(|| Happened::Written { kind: kind.clone(), object: object.clone(), owned_anew });
    }

    /// Called after each object that went.
    pub(crate) fn after_delete(&self, kind: &Arc<Kind>, object: &Arc<Object>) {
        self.registrations.written(kind);
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.definition_deleted(&object.value());
        } else if kind.is_custom() {
            self.instance_deleted(kind);
        } else if kind.is("", "serviceaccounts") {
            self.users.revoke_service_account(crate::rest::metadata::text(&object.value(), "uid"));
        }
        self.report(|| Happened::Deleted { kind: kind.clone(), object: object.clone() });
    }

    fn report(&self, what: impl FnOnce() -> Happened) {
        if let Some(channel) = &self.happened
            && channel.send(what()).is_err()
        {
            tracing::debug!("housekeeping has ended");
        }
    }
}

/// Fields that a write through this (sub)resource cannot own.
pub(crate) fn reset_fields(kind: &Kind, subresource: &str) -> &'static [&'static [&'static str]] {
    match (subresource, kind.has_status) {
        ("status", _) if kind.is_custom() => &[&["spec"], &["metadata"]],
        ("status", _) if kind.is("", "pods") => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        ("status", _) if kind.is("apps", "deployments") => &[&["spec"], &["metadata", "labels"]],
        ("status", _) => &[&["spec"]],
        (_, true) => &[&["status"]],
        _ => &[],
    }
}
