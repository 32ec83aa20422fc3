//! The newest version of a request that is known, from the watch or from our own writes.

use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::RwLock;
use usher_api::EvictionRequest;

pub(crate) struct Latest(RwLock<Arc<EvictionRequest>>);

impl Latest {
    pub fn new(request: Arc<EvictionRequest>) -> Self {
        Self(RwLock::new(request))
    }

    pub fn get(&self) -> Arc<EvictionRequest> {
        self.0.read().clone()
    }

    /// An older version does not replace a newer one, nor does another request of the same name: the watch may be behind
    /// our writes, and to write onto what it says then would only be a conflict.
    pub fn set(&self, request: Arc<EvictionRequest>) {
        let version = |of: &EvictionRequest| of.resource_version().and_then(|text| text.parse::<u64>().ok());
        let mut latest = self.0.write();
        if latest.uid() == request.uid() && version(&request) >= version(&latest) {
            *latest = request;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_api::EvictionRequestSpec;

    fn request(uid: &str, version: &str) -> Arc<EvictionRequest> {
        let mut request = EvictionRequest::new("p", EvictionRequestSpec::for_pod("p-1", "p"));
        request.metadata.uid = Some(uid.to_owned());
        request.metadata.resource_version = Some(version.to_owned());
        Arc::new(request)
    }

    #[test]
    fn only_newer_versions_of_the_same_request_replace_it() {
        let latest = Latest::new(request("r", "9"));
        for (uid, version, expected) in
            [("r", "8", "9"), ("s", "30", "9"), ("r", "10", "10"), ("r", "9", "10")]
        {
            latest.set(request(uid, version));
            assert_eq!(latest.get().resource_version().unwrap(), expected, "{uid} {version}");
        }
    }
}
