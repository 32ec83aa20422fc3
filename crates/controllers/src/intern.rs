//! Texts that thousands of objects share are kept once.

use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use usher_api::Interceptor;
use usher_decide::snapshot::{Key, Owner, Pod, Request};

#[derive(Debug, Default)]
pub struct Interner {
    texts: Pool<str>,
    labels: Pool<BTreeMap<String, String>>,
    owners: Pool<Owner>,
    finalizers: Pool<[String]>,
    interceptors: Vec<Arc<[Interceptor]>>,
}

#[derive(Debug)]
struct Pool<T: ?Sized> {
    kept: HashSet<Arc<T>>,
    tidy_at: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { kept: HashSet::new(), tidy_at: 1024 }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        if let Some(kept) = self.kept.get(value) {
            value.clone_from(kept);
            return;
        }
        if self.kept.len() >= self.tidy_at {
            self.kept.retain(|kept| Arc::strong_count(kept) > 1);
            self.tidy_at = self.kept.len().max(512) * 2;
        }
        self.kept.insert(value.clone());
    }
}

/// Sets of interceptors differ between applications, not between pods: few are looked through.
const INTERCEPTOR_SETS: usize = 64;

impl Interner {
    pub fn pod(&mut self, pod: &mut Pod) {
        self.namespace_of(&mut pod.key);
        self.texts.share(&mut pod.node);
        self.labels.share(&mut pod.labels);
        if let Some(owner) = &mut pod.owner {
            self.owners.share(owner);
        }
    }

    fn namespace_of(&mut self, key: &mut Key) {
        let mut namespace = key.namespace.clone();
        self.texts.share(&mut namespace);
        *key = Key::new(namespace, key.name.clone());
    }

    pub fn request(&mut self, request: &mut Request) {
        self.namespace_of(&mut request.key);
        self.finalizers.share(&mut request.finalizers);
        // The name of a request is the UID of its pod.
        if request.key.name == request.pod_uid {
            request.pod_uid = request.key.name.clone();
        }
        if let Some(kept) = self.interceptors.iter().find(|kept| **kept == request.interceptors) {
            request.interceptors.clone_from(kept);
        } else {
            if self.interceptors.len() >= INTERCEPTOR_SETS {
                self.interceptors.remove(0);
            }
            self.interceptors.push(request.interceptors.clone());
        }
    }
}
