//! May the caller delete the pod? The API server's authorizers are asked by a SubjectAccessReview.
//!
//! First for all pods of the namespace, which is what an empty name means there, and only if that is denied for the one pod: a
//! controller that works on a namespace is asked for once in a few seconds and not for each pod. Only consent is remembered, so
//! that a role bound just now counts at once; one taken away counts after [`REMEMBERED`].

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;
use usher_decide::admission::Access;

/// How long consent is remembered.
pub const REMEMBERED: Duration = Duration::from_secs(5);
/// How many consents are remembered.
const ROOM: usize = 4096;

/// Who sends a request, as the AdmissionReview says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Caller {
    pub username: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Whom, where, and which pod; no pod means all of the namespace.
type Question = (Caller, String, Option<String>);

pub(crate) struct Rights {
    client: Client,
    consents: Mutex<Consents>,
}

#[derive(Default)]
struct Consents {
    until: HashMap<Question, Instant>,
}

impl Consents {
    fn holds(&self, question: &Question, now: Instant) -> bool {
        self.until.get(question).is_some_and(|until| now < *until)
    }

    fn remember(&mut self, question: Question, now: Instant) {
        if self.until.len() >= ROOM {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() >= ROOM {
            // So many callers in so short a time: asking again is cheaper than keeping them in order.
            self.until.clear();
        }
        self.until.insert(question, now + REMEMBERED);
    }
}

impl Rights {
    pub fn new(client: Client) -> Self {
        Self { client, consents: Mutex::default() }
    }

    pub async fn may_delete_pod(&self, caller: &Caller, namespace: &str, pod: &str) -> kube::Result<Access> {
        let mut reason = String::new();
        for name in [None, Some(pod.to_owned())] {
            let question = (caller.clone(), namespace.to_owned(), name);
            if self.consents.lock().holds(&question, Instant::now()) {
                return Ok(Access::Allowed);
            }
            let status = self.ask(&question).await?;
            if status.allowed {
                self.consents.lock().remember(question, Instant::now());
                return Ok(Access::Allowed);
            }
            reason = status.reason.unwrap_or_default();
        }
        Ok(Access::Denied { user: caller.username.clone(), reason })
    }

    async fn ask(
        &self,
        (caller, namespace, pod): &Question,
    ) -> kube::Result<k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.username.clone()),
                uid: Some(caller.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.clone()),
                    verb: Some("delete".to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("pods".to_owned()),
                    name: pod.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Question {
        (Caller { username: number.to_string(), ..Caller::default() }, "shop".to_owned(), None)
    }

    #[test]
    fn consent_is_remembered_for_a_while_and_for_the_same_caller_only() {
        let start = Instant::now();
        let mut consents = Consents::default();
        consents.remember(question(1), start);
        assert!(consents.holds(&question(1), start + REMEMBERED - Duration::from_millis(1)));
        assert!(!consents.holds(&question(1), start + REMEMBERED));
        assert!(!consents.holds(&question(2), start));
        let mut other_groups = question(1);
        other_groups.0.groups.push("testers".to_owned());
        assert!(!consents.holds(&other_groups, start));
    }

    #[test]
    fn however_many_callers_there_are_the_room_is_limited() {
        let start = Instant::now();
        let mut consents = Consents::default();
        for number in 0..3 * ROOM {
            consents.remember(question(number), start);
            assert!(consents.until.len() <= ROOM);
        }
        assert!(consents.holds(&question(3 * ROOM - 1), start));
    }
}
