//! The schemas of the built-in kinds, unpacked once from the data that is compiled in.

use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{ListType, Node, NodeId, SchemaRef, SchemaSet, Type};

static DATA: &[u8] = include_bytes!("../../data/builtin-schemas.json.gz");

struct Builtin {
    set: SchemaSet,
    /// `group/version/kind` to its definition.
    kinds: HashMap<String, NodeId>,
}

// The data is part of the program and a test unpacks it, so a failure here is a broken build. Going on with
// no schemas would corrupt objects without a word.
#[expect(clippy::expect_used, reason = "compiled-in data, proven readable by a test")]
static BUILTIN: LazyLock<Builtin> =
    LazyLock::new(|| load(DATA).expect("the compiled-in schemas are readable"));

/// All definitions of the built-in kinds.
pub(crate) fn builtin() -> &'static SchemaSet {
    &BUILTIN.set
}

/// The schema of a built-in kind; `group` is empty for the core group.
pub(crate) fn builtin_kind(group: &str, version: &str, kind: &str) -> Option<SchemaRef<'static>> {
    let builtin: &'static Builtin = &BUILTIN;
    builtin.kinds.get(&format!("{group}/{version}/{kind}")).map(|id| builtin.set.at(*id))
}

/// Why the compiled-in data cannot be used.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("unpacking: {0}")]
    Gzip(#[from] std::io::Error),
    #[error("parsing: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} is missing or not an object")]
    Shape(&'static str),
    #[error("reference to the unknown definition {0}")]
    Dangling(String),
}

fn load(data: &[u8]) -> Result<Builtin, LoadError> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(data).read_to_end(&mut text)?;
    let document: Value = serde_json::from_slice(&text)?;
    let definitions = document["definitions"].as_object().ok_or(LoadError::Shape("definitions"))?;
    let kinds = document["kinds"].as_object().ok_or(LoadError::Shape("kinds"))?;

    let mut loader = Loader::default();
    for name in definitions.keys() {
        let id = loader.set.add(Node { definition: Some(name.clone()), ..Node::default() });
        loader.set.names.insert(name.clone(), id);
    }
    for (name, schema) in definitions {
        let schema = schema.as_object().ok_or(LoadError::Shape("a definition"))?;
        let id = loader.definition(name)?;
        let node = loader.node(schema)?;
        loader.set.nodes[id.0 as usize] = Node { definition: Some(name.clone()), ..node };
    }
    loader.overlay();

    let mut by_kind = HashMap::with_capacity(kinds.len());
    for (kind, name) in kinds {
        by_kind.insert(kind.clone(), loader.definition(name.as_str().unwrap_or_default())?);
    }
    Ok(Builtin { set: loader.set, kinds: by_kind })
}

#[derive(Default)]
struct Loader {
    set: SchemaSet,
    /// Fields that refer to a definition but merge in their own way.
    overlays: Vec<(NodeId, NodeId, Map<String, Value>)>,
}

impl Loader {
    fn definition(&self, name: &str) -> Result<NodeId, LoadError> {
        self.set.names.get(name).copied().ok_or_else(|| LoadError::Dangling(name.to_string()))
    }

    fn child(&mut self, schema: &Value) -> Result<NodeId, LoadError> {
        let schema = schema.as_object().ok_or(LoadError::Shape("a schema"))?;
        let Some(name) = schema.get("$ref").and_then(Value::as_str) else {
            let node = self.node(schema)?;
            return Ok(self.set.add(node));
        };
        let target = self.definition(name)?;
        if schema.keys().all(|k| k == "$ref" || k == "default") {
            return Ok(target);
        }
        let id = self.set.add(Node::default());
        self.overlays.push((id, target, schema.clone()));
        Ok(id)
    }

    fn node(&mut self, schema: &Map<String, Value>) -> Result<Node, LoadError> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let mut node = Node {
            ty: match text("type") {
                _ if flag("x-kubernetes-int-or-string") => Type::IntOrString,
                Some("object") => Type::Object,
                Some("array") => Type::Array,
                Some("string") => Type::String,
                Some("integer") => Type::Integer,
                Some("number") => Type::Number,
                Some("boolean") => Type::Boolean,
                _ => Type::Any,
            },
            format: text("format").map(str::to_string),
            default: schema.get("default").cloned(),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            required: strings(schema.get("required")),
            omit_zero: strings(schema.get("omit-zero")),
            write_zero: schema
                .get("write-zero")
                .and_then(Value::as_object)
                .map(|fields| fields.iter().map(|(name, zero)| (name.clone(), zero.clone())).collect())
                .unwrap_or_default(),
            ..Node::default()
        };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let id = self.child(property)?;
            node.properties.insert(name.clone(), id);
        }
        if let Some(items) = schema.get("items") {
            node.items = Some(self.child(items)?);
        }
        if let Some(additional) = schema.get("additionalProperties").filter(|a| a.is_object()) {
            node.additional = Some(self.child(additional)?);
        }
        merging(&mut node, schema);
        Ok(node)
    }

    /// Gives each overlaid reference its own copy of the definition. Definitions are complete by then.
    fn overlay(&mut self) {
        for (id, target, schema) in std::mem::take(&mut self.overlays) {
            let mut node = self.set.nodes[target.0 as usize].clone();
            merging(&mut node, &schema);
            self.set.nodes[id.0 as usize] = node;
        }
    }
}

/// Reads how a value merges. A list that only strategic merge calls a merging one is associative for apply too.
fn merging(node: &mut Node, schema: &Map<String, Value>) {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        node.patch_merge_key = Some(key.to_string());
    }
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        node.patch_merge = strategy.split(',').any(|s| s == "merge");
        node.patch_retain_keys = strategy.split(',').any(|s| s == "retainKeys");
        node.patch_replace = strategy.split(',').any(|s| s == "replace");
    }
    match text("x-kubernetes-map-type") {
        Some("atomic") => node.atomic_map = true,
        Some("granular") => node.atomic_map = false,
        _ => {}
    }
    if node.ty == Type::Array {
        node.list = match text("x-kubernetes-list-type") {
            Some("map") => ListType::Map(strings(schema.get("x-kubernetes-list-map-keys"))),
            Some("set") => ListType::Set,
            None if node.patch_merge => match &node.patch_merge_key {
                Some(key) => ListType::Map(vec![key.clone()]),
                None => ListType::Set,
            },
            _ => ListType::Atomic,
        };
    }
}

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(group: &str, version: &str, kind: &str, path: &[&str]) -> SchemaRef<'static> {
        let mut schema = builtin_kind(group, version, kind).expect("a served kind");
        for step in path {
            schema = if *step == "*" { schema.items() } else { schema.field(step) }.expect(step);
        }
        schema
    }

    #[test]
    fn the_compiled_in_data_loads() {
        let loaded = load(DATA).expect("readable");
        assert!(loaded.set.names.len() > 400, "{}", loaded.set.names.len());
        assert!(loaded.kinds.len() > 50);
    }

    #[test]
    fn damaged_data_is_an_error_not_an_empty_set() {
        assert!(load(b"not gzip").is_err());
    }

    #[test]
    fn kinds_are_found_by_group_version_and_kind() {
        for (group, version, kind) in [
            ("", "v1", "Pod"),
            ("", "v1", "Binding"),
            ("apps", "v1", "ControllerRevision"),
            ("autoscaling", "v1", "Scale"),
            ("autoscaling", "v2", "HorizontalPodAutoscaler"),
            ("policy", "v1", "Eviction"),
            ("policy", "v1", "PodDisruptionBudget"),
            ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
            ("authentication.k8s.io", "v1", "TokenRequest"),
            ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
            ("coordination.k8s.io", "v1", "Lease"),
            ("events.k8s.io", "v1", "Event"),
            ("storage.k8s.io", "v1", "StorageClass"),
        ] {
            assert!(builtin_kind(group, version, kind).is_some(), "{group}/{version}/{kind}");
        }
        assert!(builtin_kind("", "v2", "Pod").is_none());
    }

    #[test]
    fn a_reference_may_merge_in_its_own_way() {
        let strategy = at("apps", "v1", "Deployment", &["spec", "strategy"]);
        assert!(strategy.node().patch_retain_keys);
        let definition = builtin().named("io.k8s.api.apps.v1.DeploymentStrategy").expect("defined");
        assert!(!definition.node().patch_retain_keys);
        assert_eq!(strategy.node().properties.len(), definition.node().properties.len());
        assert!(!at("", "v1", "PersistentVolume", &["spec", "claimRef"]).node().atomic_map);
        assert!(at("", "v1", "Binding", &["target"]).node().atomic_map);
    }

    #[test]
    fn lists_are_maps_sets_or_atoms() {
        let list = |kind, path: &[&str]| at("", "v1", kind, path).node().list.clone();
        let map = |keys: &[&str]| ListType::Map(keys.iter().map(|k| k.to_string()).collect());
        assert_eq!(list("Pod", &["spec", "containers"]), map(&["name"]));
        assert_eq!(list("Pod", &["spec", "containers", "*", "ports"]), map(&["containerPort", "protocol"]));
        assert_eq!(list("Pod", &["metadata", "finalizers"]), ListType::Set);
        assert_eq!(list("Pod", &["metadata", "ownerReferences"]), map(&["uid"]));
        assert_eq!(list("Pod", &["spec", "tolerations"]), ListType::Atomic);
        assert_eq!(list("Node", &["status", "conditions"]), map(&["type"]));
        // Said only by the patch strategy.
        let conditions = at("apps", "v1", "Deployment", &["status", "conditions"]);
        assert_eq!(conditions.node().list, map(&["type"]));
    }

    #[test]
    fn what_go_writes_when_it_is_zero_is_known() {
        let spec = at("apps", "v1", "Deployment", &["spec"]).node();
        assert_eq!(spec.write_zero["strategy"], Value::Object(Map::new()));
        assert_eq!(spec.write_zero["selector"], Value::Null);
        assert!(spec.omit_zero.contains(&"paused".to_string()));
        let pointers = ["replicas", "progressDeadlineSeconds"];
        assert!(
            pointers
                .iter()
                .all(|p| !spec.omit_zero.iter().any(|f| f == p) && !spec.write_zero.contains_key(*p))
        );
        let event = at("", "v1", "Event", &[]).node();
        assert_eq!(
            (&event.write_zero["eventTime"], &event.write_zero["reportingComponent"]),
            (&Value::Null, &"".into())
        );
        // The fields of an embedded struct are the outer one's own.
        assert!(at("", "v1", "Pod", &["spec", "volumes", "*"]).node().write_zero.contains_key("name"));
    }

    #[test]
    fn list_keys_have_their_defaults() {
        let port = at("", "v1", "Pod", &["spec", "containers", "*", "ports", "*", "protocol"]);
        assert_eq!(port.node().default, Some("TCP".into()));
    }

    #[test]
    fn special_types_are_known() {
        let limits = at("", "v1", "Pod", &["spec", "containers", "*", "resources", "limits", "cpu"]);
        assert_eq!(limits.node().ty, Type::IntOrString);
        let fields = at("", "v1", "Pod", &["metadata", "managedFields", "*", "fieldsV1"]);
        assert!(fields.node().preserve_unknown);
        assert_eq!(at("apps", "v1", "ControllerRevision", &["data"]).node().ty, Type::Any);
        assert_eq!(at("", "v1", "Pod", &["metadata", "creationTimestamp"]).node().ty, Type::String);
    }
}
