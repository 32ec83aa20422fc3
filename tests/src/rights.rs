//! The roles of `deploy/` with one right less: what fails then shows what the right is for.

use crate::living::Living;
use crate::manifests;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A verb on a resource.
pub type Right = (String, String);

/// Roles and their bindings.
pub struct Roles(Vec<Value>);

impl Roles {
    /// Those of files, whose paths are relative to `deploy/`.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn of(files: &[&str]) -> Result<Self> {
        let mut all = Vec::new();
        for file in files {
            all.extend(manifests::objects(file)?);
        }
        all.retain(|object| object["apiVersion"] == "rbac.authorization.k8s.io/v1");
        Ok(Self(all))
    }

    /// The role or binding of that kind and name.
    #[must_use]
    pub fn named(&self, kind: &str, name: &str) -> Option<&Value> {
        self.0.iter().find(|role| role["kind"] == kind && role["metadata"]["name"] == name)
    }

    /// All rights of the roles.
    #[must_use]
    pub fn rights(&self) -> Vec<Right> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut all = Vec::new();
        for rule in self.0.iter().flat_map(|role| items(&role["rules"])) {
            for resource in items(&rule["resources"]) {
                all.extend(items(&rule["verbs"]).iter().map(|verb| (text(&resource), text(verb))));
            }
        }
        all
    }

    /// Creates them, without that right.
    ///
    /// # Errors
    /// One of them is refused.
    pub async fn install(&self, living: &Living, missing: Option<&Right>) -> Result<()> {
        for role in &self.0 {
            let role = missing.map_or_else(|| role.clone(), |right| without(role, right));
            let plural = role["kind"].as_str().unwrap_or_default().to_lowercase() + "s";
            let namespace = role["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}"));
            let path =
                format!("/apis/rbac.authorization.k8s.io/v1{}/{plural}", namespace.unwrap_or_default());
            living.create(&path, &role).await?;
        }
        Ok(())
    }

    /// Takes away one right after the other, some at a time. `needed` has what is to fail first without each.
    ///
    /// # Errors
    /// Something fails with all rights, or something else, or nothing, fails without one.
    pub fn are_all_needed(
        &self,
        needed: &[(&str, &str)],
        first_failure: impl Fn(Option<Right>) -> Option<&'static str> + Sync,
    ) -> Result<()> {
        if let Some(failed) = first_failure(None) {
            anyhow::bail!("this fails with all rights: {failed}");
        }
        let left = parking_lot::Mutex::new(self.rights());
        let failures = parking_lot::Mutex::new(BTreeMap::new());
        let work = || loop {
            let Some(right) = left.lock().pop() else { return };
            let name = format!("{} {}", right.0, right.1);
            let failure = first_failure(Some(right));
            failures.lock().insert(name, failure.unwrap_or("nothing"));
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let failures = failures.into_inner();
        let expected: BTreeMap<String, &str> =
            needed.iter().map(|(right, what)| ((*right).to_owned(), *what)).collect();
        let unlike = |(right, what): &(&String, &&str)| expected.get(*right) != Some(*what);
        let surprises: Vec<_> = failures.iter().filter(unlike).collect();
        ensure!(surprises.is_empty(), "this is what fails without these rights: {surprises:#?}");
        ensure!(failures.len() == expected.len(), "these rights were tried, and no others: {failures:#?}");
        Ok(())
    }
}

fn items(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// The role without a right: a rule of several resources is taken apart.
fn without(role: &Value, (resource, verb): &Right) -> Value {
    let mut role = role.clone();
    if role["rules"].is_null() {
        return role;
    }
    let mut kept = Vec::new();
    for rule in items(&role["rules"]) {
        for one in items(&rule["resources"]) {
            let mut rule = rule.clone();
            let mut verbs = items(&rule["verbs"]);
            if one == resource.as_str() {
                verbs.retain(|known| known != verb.as_str());
            }
            if !verbs.is_empty() {
                (rule["resources"], rule["verbs"]) = (json!([one]), verbs.into());
                kept.push(rule);
            }
        }
    }
    role["rules"] = kept.into();
    role
}
