//! Whole objects, as the descheduler's cluster takes them in: it keeps what decisions need, and they are gone again.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use usher_decide::snapshot::Key;

use crate::watch::{Keyed, PAGE, key_in_namespace, name_of};

/// An object as the server sent it.
pub struct Whole<K>(pub Box<K>);

impl<K> From<K> for Whole<K> {
    fn from(object: K) -> Self {
        Self(Box::new(object))
    }
}

macro_rules! keyed {
    ($($kind:ty),*: $key:ty, $key_of:expr) => {
        $(impl Keyed for Whole<$kind> {
            type Key = $key;
            const PAGE: u32 = PAGE;

            fn key(&self) -> $key {
                $key_of(self.0.meta())
            }

            fn key_of(metadata: &ObjectMeta) -> $key {
                $key_of(metadata)
            }
        })*
    };
}

keyed!(Pod, PodDisruptionBudget, PersistentVolumeClaim: Key, key_in_namespace);
keyed!(Node, Namespace, PriorityClass: Arc<str>, name_of);
