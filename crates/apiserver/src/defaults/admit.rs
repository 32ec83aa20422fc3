//! What the default admission plugins add to a new pod: priority, tolerations of an unready node.

use serde_json::{Value, json};

/// The priority that the pod's class stands for; the caller looks the class up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodPriority<'a> {
    /// The class to name in the pod; empty if there is no default class.
    pub class: &'a str,
    pub value: i32,
    pub preemption_policy: &'a str,
}

impl Default for PodPriority<'_> {
    /// Without any class.
    fn default() -> Self {
        Self { class: "", value: 0, preemption_policy: "PreemptLowerPriority" }
    }
}

/// How long a pod stays on a node that is not ready or cannot be reached.
const TOLERATION_SECONDS: i64 = 300;

/// Sets priority and preemption policy from the class, and tolerations for unready and unreachable nodes.
pub(crate) fn admit_pod(pod: &mut Value, priority: PodPriority<'_>) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !priority.class.is_empty() {
        spec.insert("priorityClassName".to_string(), priority.class.into());
    }
    spec.insert("priority".to_string(), priority.value.into());
    spec.entry("preemptionPolicy").or_insert_with(|| priority.preemption_policy.into());

    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|t| {
            let of = |name: &str| t[name].as_str().unwrap_or_default();
            (of("key") == key || of("key").is_empty())
                && (of("effect") == "NoExecute" || of("effect").is_empty())
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
}
