//! Custom kinds follow their definitions: served once established, gone with them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use crate::clock::rfc3339;
use crate::crd::{self, CustomKind};
use crate::kinds::{CUSTOM_VERBS, Generation, Kind, KindSchema, Registry, Subresource};
use crate::rest::metadata;
use crate::store::{Key, Object};

const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";
/// Holds a definition that is being deleted until its instances are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

impl Server {
    /// Brings a definition's status and the served kinds in line with it.
    pub(super) fn definition_written(&self, written: &Arc<Object>) {
        let mut definition = written.value();
        if metadata::is_deleting(&definition) {
            return self.clean_up(written, definition);
        }
        let before = definition.clone();
        definition["status"] = crd::compute_status(&definition, &self.claimed_names(&definition), self.now());
        if crd::is_established(&definition) {
            self.serve(&definition);
        }
        if definition == before {
            return;
        }
        if let Some(kind) = self.registry().find("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
            self.own_fields(kind, Some(&before), &mut definition, "kube-apiserver", "status");
        }
        if self.store.update(DEFINITIONS, &written.key, written.revision, definition).is_err() {
            tracing::debug!(
                "a definition changed while it was established; that change comes through here too"
            );
        }
    }

    /// Names that other definitions of the same group hold.
    fn claimed_names(&self, definition: &Value) -> crd::ClaimedNames {
        let mut claimed = crd::ClaimedNames::default();
        for other in self.store.list(DEFINITIONS, None).objects.iter().map(|object| object.value()) {
            let same_group = other["spec"]["group"] == definition["spec"]["group"];
            if same_group && other["metadata"]["name"] != definition["metadata"]["name"] {
                claimed.add(&other);
            }
        }
        claimed
    }

    fn serve(&self, definition: &Value) {
        let versions = CustomKind::parse(definition);
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        // Held throughout: definitions come and go concurrently, and none may be lost.
        let mut served = self.registry.write();
        let mut registry = Registry::clone(&served);
        registry.remove(group, plural);
        let storage_version =
            versions.iter().find(|version| version.storage).map(CustomKind::api_version).unwrap_or_default();
        for version in versions.into_iter().filter(|version| version.served) {
            let kind = row(version, &storage_version);
            self.store.register(
                &kind.storage,
                kind.selectable.iter().map(|(_, pointer)| pointer.clone()).collect(),
            );
            registry.insert(kind);
        }
        *served = Arc::new(registry);
    }

    /// A definition goes after its last instance.
    fn clean_up(&self, written: &Arc<Object>, mut definition: Value) {
        let storage = storage_of(&definition);
        let now = rfc3339(self.now());
        for instance in self.store.list(&storage, None).objects.iter() {
            let mut value = instance.value();
            if metadata::is_deleting(&value) {
                continue;
            }
            let done = if metadata::finalizers(&value).is_empty() {
                self.store.delete(&storage, &instance.key, instance.revision)
            } else {
                value["metadata"]["deletionTimestamp"] = now.clone().into();
                value["metadata"]["deletionGracePeriodSeconds"] = 0.into();
                self.store.update(&storage, &instance.key, instance.revision, value)
            };
            if done.is_err() {
                tracing::debug!(storage, "an instance changed while its definition was being deleted");
            }
        }
        let done = self.store.count(&storage) == 0;
        let before = definition.clone();
        let left: Vec<&str> =
            metadata::finalizers(&before).into_iter().filter(|finalizer| *finalizer != CLEANUP).collect();
        let ends = done && left.is_empty();
        if done && !ends {
            definition["metadata"]["finalizers"] = json!(left);
            let message = "removed all instances";
            set_terminating(&mut definition, "False", "InstanceDeletionCompleted", message, &now);
        } else {
            let message = "CustomResource deletion is in progress";
            set_terminating(&mut definition, "True", "InstanceDeletionInProgress", message, &now);
        }
        let mut revision = written.revision;
        if definition != before {
            match self.store.update(DEFINITIONS, &written.key, revision, definition.clone()) {
                Ok(stored) => revision = stored.revision,
                Err(_) => return,
            }
        }
        if ends && self.store.delete(DEFINITIONS, &written.key, revision).is_ok() {
            self.definition_deleted(&definition);
        }
    }

    pub(super) fn definition_deleted(&self, definition: &Value) {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let mut served = self.registry.write();
        let mut registry = Registry::clone(&served);
        registry.remove(group, plural);
        *served = Arc::new(registry);
        drop(served);
        self.store.unregister(&storage_of(definition));
    }

    /// The last instance of a definition that is being deleted lets the definition go.
    pub(super) fn instance_deleted(&self, kind: &Kind) {
        let key = Key::new("", &format!("{}.{}", kind.plural, kind.group));
        if let Some(found) = self.store.get(DEFINITIONS, &key) {
            let definition = found.value();
            if metadata::is_deleting(&definition) {
                self.clean_up(&found, definition);
            }
        }
    }
}

fn storage_of(definition: &Value) -> String {
    format!(
        "{}/{}",
        definition["spec"]["group"].as_str().unwrap_or_default(),
        definition["spec"]["names"]["plural"].as_str().unwrap_or_default()
    )
}

/// What a delete does to a definition: it stays until its instances are gone.
pub(crate) fn mark_for_deletion(definition: &mut Value, now: &str) {
    definition["metadata"]["deletionTimestamp"] = now.into();
    let mut finalizers: Vec<String> =
        metadata::finalizers(definition).into_iter().map(String::from).collect();
    if !finalizers.iter().any(|f| f == CLEANUP) {
        finalizers.push(CLEANUP.to_string());
    }
    definition["metadata"]["finalizers"] = json!(finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_terminating(definition, "True", "InstanceDeletionPending", message, now);
}

/// Says in the status that instances are being deleted, or were.
fn set_terminating(definition: &mut Value, status: &str, reason: &str, message: &str, now: &str) {
    let condition = json!({
        "type": "Terminating", "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    if let Value::Array(list) = &mut definition["status"]["conditions"] {
        match list.iter_mut().find(|c| c["type"] == "Terminating") {
            Some(old) => *old = condition,
            None => list.push(condition),
        }
    }
}

/// A custom kind as a row of the table.
fn row(custom: CustomKind, storage_version: &str) -> Kind {
    let read_write = &["get", "patch", "update"];
    let mut subresources = Vec::new();
    if custom.has_status {
        let kind = custom.kind.clone();
        subresources.push(Subresource { name: "status", group: "", version: "", kind, verbs: read_write });
    }
    if custom.scale.is_some() {
        let kind = "Scale".to_string();
        subresources.push(Subresource {
            name: "scale",
            group: "autoscaling",
            version: "v1",
            kind,
            verbs: read_write,
        });
    }
    Kind {
        group: custom.group.clone(),
        version: custom.version.clone(),
        kind: custom.kind.clone(),
        list_kind: custom.list_kind.clone(),
        plural: custom.plural.clone(),
        singular: custom.singular.clone(),
        short_names: custom.short_names.clone(),
        categories: custom.categories.clone(),
        namespaced: custom.namespaced,
        verbs: CUSTOM_VERBS,
        subresources,
        storage: format!("{}/{}", custom.group, custom.plural).into(),
        storage_api_version: storage_version.to_string(),
        has_status: custom.has_status,
        initial_status: Value::Null,
        generation: Generation::Spec,
        unconditional_update: false,
        create_on_update: false,
        returns_deleted: false,
        orphans_by_default: false,
        warning: custom.deprecation_warning.clone().unwrap_or_default(),
        selectable: custom
            .selectable_fields
            .iter()
            .map(|path| {
                let dotted = path.trim_start_matches('.');
                (dotted.to_string(), format!("/{}", dotted.replace('.', "/")))
            })
            .collect(),
        schema: KindSchema::Custom(Arc::new(custom)),
    }
}
