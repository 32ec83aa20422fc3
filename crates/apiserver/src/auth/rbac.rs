//! RBAC: roles and bindings, indexed so that a check looks only at the bindings of the caller and its groups.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::rule::PolicyRule;
use super::{MASTERS, service_account};
use crate::attributes::{Attributes, User};
use crate::selectors::LabelSelector;

/// The answer to one authorization question.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Decision {
    pub allowed: bool,
    /// Which binding allows, or which broken references stood in the way. Often empty for a refusal.
    pub reason: String,
}

/// All RBAC objects of the cluster, ready to be asked. Immutable: rebuilt when one of the objects changes.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    cluster_roles: HashMap<String, Arc<[PolicyRule]>>,
    roles: HashMap<(String, String), Arc<[PolicyRule]>>,
    cluster_bindings: Bindings,
    /// Role bindings by namespace.
    bindings: HashMap<String, Bindings>,
}

/// Bindings by the user or group they name. Service accounts are users with a long name.
#[derive(Debug, Default)]
struct Bindings {
    by_user: HashMap<String, Vec<Grant>>,
    by_group: HashMap<String, Vec<Grant>>,
}

/// One subject of one binding.
#[derive(Debug, Clone)]
struct Grant {
    binding: Arc<Binding>,
    /// The subject as the reason names it: `User "alice"`.
    subject: String,
}

#[derive(Debug)]
struct Binding {
    /// The binding as the reason names it: `ClusterRoleBinding "x" of ClusterRole "y"`.
    description: String,
    /// The rules it grants, or why they could not be found.
    rules: Result<Arc<[PolicyRule]>, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Rbac {
    /// Reads the objects. What cannot be read as a rule or subject grants nothing.
    pub(crate) fn build<'a>(
        roles: impl IntoIterator<Item = &'a Value>,
        role_bindings: impl IntoIterator<Item = &'a Value>,
        cluster_roles: impl IntoIterator<Item = &'a Value>,
        cluster_role_bindings: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let mut rbac = Self {
            cluster_roles: resolve_cluster_roles(cluster_roles),
            roles: roles
                .into_iter()
                .map(|role| {
                    ((text(role, "/metadata/namespace"), text(role, "/metadata/name")), rules_of(role).into())
                })
                .collect(),
            ..Self::default()
        };
        let mut cluster_bindings = Bindings::default();
        for object in cluster_role_bindings {
            rbac.add_binding(&mut cluster_bindings, object, "");
        }
        let mut bindings: HashMap<String, Bindings> = HashMap::new();
        for object in role_bindings {
            let namespace = text(object, "/metadata/namespace");
            rbac.add_binding(bindings.entry(namespace.clone()).or_default(), object, &namespace);
        }
        rbac.cluster_bindings = cluster_bindings;
        rbac.bindings = bindings;
        rbac
    }

    fn add_binding(&self, into: &mut Bindings, object: &Value, namespace: &str) {
        let name = text(object, "/metadata/name");
        let (role_kind, role) = (text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
        let (kind, shown) = if namespace.is_empty() {
            ("ClusterRoleBinding", name)
        } else {
            ("RoleBinding", format!("{name}/{namespace}"))
        };
        let binding = Arc::new(Binding {
            description: format!("{kind} {shown:?} of {role_kind} {role:?}"),
            rules: self.referenced_rules(&role_kind, &role, namespace),
        });
        let subjects =
            object.get("subjects").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for subject in subjects {
            let Ok(subject) = Subject::deserialize(subject) else { continue };
            let grant = |shown: &str| Grant {
                binding: binding.clone(),
                subject: format!("{} {shown:?}", subject.kind),
            };
            match subject.kind.as_str() {
                "User" => {
                    let grant = grant(&subject.name);
                    into.by_user.entry(subject.name).or_default().push(grant);
                }
                "Group" => {
                    let grant = grant(&subject.name);
                    into.by_group.entry(subject.name).or_default().push(grant);
                }
                "ServiceAccount" => {
                    let home = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                    if !home.is_empty() {
                        let grant = grant(&format!("{}/{home}", subject.name));
                        let user = service_account::username(home, &subject.name);
                        into.by_user.entry(user).or_default().push(grant);
                    }
                }
                _ => {}
            }
        }
    }

    /// The rules behind a role reference, or the words for a reference that leads nowhere.
    pub(super) fn referenced_rules(
        &self,
        kind: &str,
        name: &str,
        namespace: &str,
    ) -> Result<Arc<[PolicyRule]>, String> {
        match kind {
            "Role" => self
                .roles
                .get(&(namespace.to_string(), name.to_string()))
                .cloned()
                .ok_or_else(|| format!("role.rbac.authorization.k8s.io {name:?} not found")),
            "ClusterRole" => self
                .cluster_roles
                .get(name)
                .cloned()
                .ok_or_else(|| format!("clusterrole.rbac.authorization.k8s.io {name:?} not found")),
            other => Err(format!("unsupported role reference kind: {other:?}")),
        }
    }

    /// Whether the user may do this. Rules only ever add rights, so the first that allows decides.
    pub(crate) fn authorize(&self, user: &User, attributes: &Attributes) -> Decision {
        if is_superuser(user) {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut broken: Vec<&str> = Vec::new();
        for grant in self.grants(user, &attributes.namespace) {
            match &grant.binding.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    let reason =
                        format!("RBAC: allowed by {} to {}", grant.binding.description, grant.subject);
                    return Decision { allowed: true, reason };
                }
                Ok(_) => {}
                Err(problem) if broken.contains(&problem.as_str()) => {}
                Err(problem) => broken.push(problem),
            }
        }
        let reason = aggregate(&broken).map(|all| format!("RBAC: {all}")).unwrap_or_default();
        Decision { allowed: false, reason }
    }

    /// Every rule that holds for the user in the namespace, and what could not be looked up.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<PolicyRule>, Option<String>) {
        let mut seen = HashSet::new();
        let mut rules = Vec::new();
        let mut broken: Vec<&str> = Vec::new();
        for grant in self.grants(user, namespace) {
            if !seen.insert(Arc::as_ptr(&grant.binding)) {
                continue;
            }
            match &grant.binding.rules {
                Ok(more) => rules.extend(more.iter().cloned()),
                Err(problem) => broken.push(problem),
            }
        }
        (rules, aggregate(&broken))
    }

    fn grants<'a>(&'a self, user: &'a User, namespace: &str) -> impl Iterator<Item = &'a Grant> {
        let local = if namespace.is_empty() { None } else { self.bindings.get(namespace) };
        std::iter::once(&self.cluster_bindings).chain(local).flat_map(|bindings| {
            let own = bindings.by_user.get(&user.name).into_iter();
            own.chain(user.groups.iter().filter_map(|g| bindings.by_group.get(g))).flatten()
        })
    }
}

/// Members of `system:masters` are never asked.
pub(crate) fn is_superuser(user: &User) -> bool {
    user.groups.iter().any(|group| group == MASTERS)
}

/// Several problems read as a list, one as itself, none as nothing.
fn aggregate(problems: &[&str]) -> Option<String> {
    match problems {
        [] => None,
        [one] => Some(one.to_string()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

fn rules_of(role: &Value) -> Vec<PolicyRule> {
    let rules = role.get("rules").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    rules.iter().filter_map(|rule| PolicyRule::deserialize(rule).ok()).collect()
}

/// Cluster roles with an aggregation rule hold the rules of all the cluster roles it selects, and of those which
/// these in turn aggregate (`admin` selects `edit`, `edit` selects `view`).
pub(super) fn resolve_cluster_roles<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
) -> HashMap<String, Arc<[PolicyRule]>> {
    let by_name: BTreeMap<&str, &Value> = objects
        .into_iter()
        .filter_map(|role| Some((role.pointer("/metadata/name")?.as_str()?, role)))
        .collect();
    by_name
        .keys()
        .map(|&name| {
            let mut rules = Vec::new();
            gather(name, &by_name, &mut BTreeSet::new(), &mut rules);
            (name.to_string(), rules.into())
        })
        .collect()
}

fn gather<'a>(
    name: &'a str,
    all: &BTreeMap<&'a str, &'a Value>,
    visited: &mut BTreeSet<&'a str>,
    rules: &mut Vec<PolicyRule>,
) {
    let Some(role) = all.get(name) else { return };
    if !visited.insert(name) {
        return;
    }
    let selectors = role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    let Some(selectors) = selectors.filter(|list| !list.is_empty()) else {
        for rule in rules_of(role) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        return;
    };
    for (&other, candidate) in all {
        let labels = &candidate["metadata"]["labels"];
        let selected =
            |s: &Value| LabelSelector::from_object(Some(s)).is_ok_and(|s| s.matches_labels(labels));
        if selectors.iter().any(selected) {
            gather(other, all, visited, rules);
        }
    }
}

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_string()
}

#[cfg(test)]
#[path = "rbac_tests.rs"]
mod tests;
