//! The name of an interceptor, and how it is put onto the pods that it answers for.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use usher_api::{AnnotationError, Interceptor, annotation_of, interceptors_of};
use usher_client::retry::{Attempts, this_process};

/// An interceptor class that can be used: a DNS subdomain of 54 characters at most, in a domain of your own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterceptorClass(String);

/// Why a pod cannot be given to an interceptor.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The annotations together would break the rules for interceptors.
    #[error("the pod cannot have this interceptor: {}", listed(.0))]
    Rules(Vec<AnnotationError>),
    /// The pod has no name, UID or namespace yet: it was not read from a cluster.
    #[error(
        "the pod has no {0}: give a pod that was read from the cluster, or annotate the object before it is created"
    )]
    NotFromCluster(&'static str),
    /// Another pod has the name by now, or the pod is gone.
    #[error("pod {0} is gone: there is nothing to register on")]
    PodGone(String),
    /// The pod was changed by others on every attempt.
    #[error("pod {0} keeps being changed by others: try again")]
    Contended(String),
    /// The API server refused or did not answer.
    #[error("the pod could not be annotated: {0}")]
    Api(#[from] kube::Error),
}

impl InterceptorClass {
    /// # Errors
    /// The name cannot be an interceptor class.
    pub fn new(name: impl Into<String>) -> Result<Self, RegistrationError> {
        let class = Self(name.into());
        // Any priority that is nobody's shows what is wrong with the class itself.
        class.on(&BTreeMap::new(), 0, None)?;
        Ok(class)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The annotation, key and value, that registers this interceptor, as far as it can be right by itself. A pod's other
    /// annotations matter too: [`Self::annotate`] looks at them.
    #[must_use]
    pub fn annotation(&self, priority: i32, role: Option<&str>) -> (String, String) {
        annotation_of(&self.interceptor(priority, role))
    }

    /// Adds the annotation to those of a pod or a pod template that is yet to be written.
    ///
    /// # Errors
    /// The annotations together break a rule; they are left as they were.
    pub fn annotate(
        &self,
        annotations: &mut BTreeMap<String, String>,
        priority: i32,
        role: Option<&str>,
    ) -> Result<(), RegistrationError> {
        *annotations = self.on(annotations, priority, role)?;
        Ok(())
    }

    /// Adds the annotation to the pods that are made from a template (of a Deployment, StatefulSet, Job ...).
    ///
    /// # Errors
    /// As for [`Self::annotate`].
    pub fn annotate_template(
        &self,
        template: &mut PodTemplateSpec,
        priority: i32,
        role: Option<&str>,
    ) -> Result<(), RegistrationError> {
        let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
        self.annotate(annotations, priority, role)
    }

    /// Adds the annotation to a pod that runs. Requests that exist already do not change: a request takes the interceptors that
    /// the pod had when it was made. Nothing is written if the pod has the annotation.
    ///
    /// # Errors
    /// The pod's annotations together break a rule, the pod is gone, or the API server says no.
    pub async fn register(
        &self,
        client: &Client,
        pod: &Pod,
        priority: i32,
        role: Option<&str>,
    ) -> Result<Pod, RegistrationError> {
        let name = pod.name_any();
        let namespace = pod.namespace().ok_or(RegistrationError::NotFromCluster("namespace"))?;
        let uid = pod.uid().ok_or(RegistrationError::NotFromCluster("UID"))?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let (key, value) = self.annotation(priority, role);
        let mut current = pod.clone();
        let mut attempts = Attempts::of((this_process(), self.as_str(), &uid));
        loop {
            self.on(current.annotations(), priority, role)?;
            if current.annotations().get(&key) == Some(&value) {
                return Ok(current);
            }
            // With the version pinned the annotations that were checked are those that are changed.
            let patch = json!({
                "metadata": {"resourceVersion": current.resource_version(), "annotations": {&key: &value}},
            });
            match pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(patched) => return Ok(patched),
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    return Err(RegistrationError::PodGone(name));
                }
                Err(other) => return Err(other.into()),
            }
            let is_another = attempts.again().await;
            match pods.get_opt(&name).await? {
                Some(found) if found.uid().as_ref() == Some(&uid) => current = found,
                _ => return Err(RegistrationError::PodGone(name)),
            }
            if !is_another {
                return Err(RegistrationError::Contended(name));
            }
        }
    }

    fn interceptor(&self, priority: i32, role: Option<&str>) -> Interceptor {
        Interceptor { interceptor_class: self.0.clone(), priority, role: role.map(str::to_owned) }
    }

    /// The annotations with ours, checked together.
    fn on(
        &self,
        annotations: &BTreeMap<String, String>,
        priority: i32,
        role: Option<&str>,
    ) -> Result<BTreeMap<String, String>, RegistrationError> {
        let mut with_ours = annotations.clone();
        let (key, value) = self.annotation(priority, role);
        with_ours.insert(key, value);
        interceptors_of(&with_ours).map_err(RegistrationError::Rules)?;
        Ok(with_ours)
    }
}

impl fmt::Display for InterceptorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn listed(errors: &[AnnotationError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_checked_when_it_is_named() {
        assert_eq!(InterceptorClass::new("db.example.com").unwrap().as_str(), "db.example.com");
        for (name, says) in [
            ("DB.example.com", "not a DNS subdomain"),
            (&"a".repeat(55), "longer than 54"),
            ("mine.k8s.io", "use a class in a domain of your own"),
        ] {
            let refused = InterceptorClass::new(name).unwrap_err().to_string();
            assert!(refused.contains(says), "{name}: {refused}");
        }
    }

    #[test]
    fn annotations_are_added_where_the_rules_allow_it() {
        let class = InterceptorClass::new("db.example.com").unwrap();
        let key = "interceptor.evictionrequest.coordination.k8s.io/priority_db.example.com";
        for (priority, role, expected) in [
            (12_000, Some("handover"), Ok("12000/handover")),
            (500, None, Ok("500")),
            (10_000, Some("controller"), Ok("10000/controller")),
            (10_000, None, Err("belongs to the role controller")),
            (9_950, None, Err("choose a priority above 10100 or below 9900")),
            (100_001, None, Err("out of range")),
        ] {
            let mut annotations = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
            match (class.annotate(&mut annotations, priority, role), expected) {
                (Ok(()), Ok(value)) => assert_eq!(annotations[key], value),
                (Err(refused), Err(says)) => {
                    assert!(refused.to_string().contains(says), "{priority}: {refused}");
                    assert_eq!(annotations.len(), 1, "left as they were");
                }
                (found, _) => panic!("{priority}/{role:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_second_controller_is_refused_on_a_template() {
        let first = InterceptorClass::new("one.example.com").unwrap();
        let second = InterceptorClass::new("two.example.com").unwrap();
        let mut template = PodTemplateSpec::default();
        first.annotate_template(&mut template, 10_000, Some("controller")).unwrap();
        let refused = second.annotate_template(&mut template, 10_000, Some("controller")).unwrap_err();
        assert!(
            refused.to_string().contains("only one interceptor can have the role controller"),
            "{refused}"
        );
        second.annotate_template(&mut template, 10_001, None).unwrap();
    }
}
