//! May the caller delete the pod, or the nodes? The API server's authorizers are asked by SubjectAccessReviews.
//!
//! First for all pods of the namespace, or all nodes, which is what an empty name means there, and only if that is denied for each one: a
//! controller that works on a namespace is asked for once in a few seconds and not for each pod. Only consent is remembered, so
//! that a role bound just now counts at once; one taken away counts after [`REMEMBERED`]. Nodes are asked for some at a time,
//! and no more once enough are denied to say so: many names in one write cost the API server little.
//!
//! The manager itself is not asked about. It writes requests and maintenances for others, who were asked, and needs no right to delete
//! pods or nodes for it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use usher_api::names::EVICTION_REQUEST_GROUP;
use usher_decide::admission::Access;
use usher_decide::admission::node_rights::{NAMED, Needed, NodeAccess};

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

/// So many nodes are asked for at a time.
const AT_A_TIME: usize = 32;

/// Whom, what, where, and which one; no name means all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    caller: Caller,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: Option<String>,
    name: Option<String>,
}

pub(crate) struct Rights {
    client: Client,
    consents: Mutex<Consents>,
    /// As whom the manager writes, once the API server has told.
    manager: OnceCell<String>,
}

/// By a hash of the question that strangers cannot foresee: what they send is not kept.
#[derive(Default)]
struct Consents {
    hashers: [RandomState; 2],
    until: HashMap<[u64; 2], Instant>,
}

impl Consents {
    fn key(&self, question: &Question) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(question))
    }

    fn holds(&self, question: &Question, now: Instant) -> bool {
        self.until.get(&self.key(question)).is_some_and(|until| now < *until)
    }

    fn remember(&mut self, question: &Question, now: Instant) {
        if self.until.len() >= ROOM {
            self.until.retain(|_, until| now < *until);
        }
        if self.until.len() >= ROOM {
            // So many callers in so short a time: asking again is cheaper than keeping them in order.
            self.until.clear();
        }
        self.until.insert(self.key(question), now + REMEMBERED);
    }
}

/// No interceptor has this name.
const NO_CLASS: &str = "no-interceptor.invalid";

impl Rights {
    pub fn new(client: Client) -> Self {
        Self { client, consents: Mutex::default(), manager: OnceCell::new() }
    }

    /// Whether the caller is the account that this client uses itself.
    pub async fn is_manager(&self, caller: &Caller) -> bool {
        let manager = self.manager.get_or_try_init(|| user_of(&self.client)).await;
        manager.is_ok_and(|manager| !manager.is_empty() && *manager == caller.username)
    }

    pub async fn may_delete_pod(&self, caller: &Caller, namespace: &str, pod: &str) -> kube::Result<Access> {
        if self.is_manager(caller).await {
            return Ok(Access::Allowed);
        }
        for name in [None, Some(pod.to_owned())] {
            let namespace = Some(namespace.to_owned());
            let (verb, group, resource) = ("delete", "", "pods");
            let question = Question { caller: caller.clone(), verb, group, resource, namespace, name };
            if self.may(question).await? {
                return Ok(Access::Allowed);
            }
        }
        Ok(Access::Denied { user: caller.username.clone() })
    }

    /// Whether the caller may answer eviction requests for the pod, as every interceptor does: that takes the right to delete the pod too.
    pub async fn answers(&self, caller: &Caller, namespace: &str, pod: &str) -> kube::Result<bool> {
        let reports = self.may(Question {
            caller: caller.clone(),
            verb: "patch",
            group: EVICTION_REQUEST_GROUP,
            resource: "evictionrequests/status",
            namespace: Some(namespace.to_owned()),
            name: None,
        });
        Ok(reports.await? && matches!(self.may_delete_pod(caller, namespace, pod).await?, Access::Allowed))
    }

    /// Whether the caller answers for this interceptor: the right of the strict choice (`deploy/strict`). Who has it for each and every
    /// one, as administrators have, is not meant by that.
    pub async fn intercepts(&self, caller: &Caller, namespace: &str, class: &str) -> kube::Result<bool> {
        let question = |class: &str| Question {
            caller: caller.clone(),
            verb: "intercept",
            group: EVICTION_REQUEST_GROUP,
            resource: "interceptorclasses",
            namespace: Some(namespace.to_owned()),
            name: Some(class.to_owned()),
        };
        Ok(self.may(question(class)).await? && !self.may(question(NO_CLASS)).await?)
    }

    pub async fn may_delete_nodes(&self, caller: &Caller, needed: &Needed) -> kube::Result<NodeAccess> {
        let question = |name: Option<String>| Question {
            caller: caller.clone(),
            verb: "delete",
            group: "",
            resource: "nodes",
            namespace: None,
            name,
        };
        let is_nothing = matches!(needed, Needed::Named(names) if names.is_empty());
        if is_nothing || self.is_manager(caller).await || self.may(question(None)).await? {
            return Ok(NodeAccess::Allowed);
        }
        let user = if caller.username.is_empty() { "nobody" } else { &caller.username }.to_owned();
        let Needed::Named(names) = needed else {
            return Ok(NodeAccess::Denied { user, nodes: Vec::new(), are_more: false });
        };
        let mut denied = Vec::new();
        let questions: Vec<Question> = names.iter().cloned().map(|name| question(Some(name))).collect();
        let answers = stream::iter(questions).map(|question| self.may(question)).buffered(AT_A_TIME);
        let mut answers = std::pin::pin!(stream::iter(names).zip(answers));
        while let Some((name, answer)) = answers.next().await {
            if answer? {
                continue;
            }
            if denied.len() == NAMED {
                return Ok(NodeAccess::Denied { user, nodes: denied, are_more: true });
            }
            denied.push(name.clone());
        }
        if denied.is_empty() {
            return Ok(NodeAccess::Allowed);
        }
        Ok(NodeAccess::Denied { user, nodes: denied, are_more: false })
    }

    /// Yes or no. Why, which names roles and bindings, is not for everybody who can ask.
    async fn may(&self, question: Question) -> kube::Result<bool> {
        if self.consents.lock().holds(&question, Instant::now()) {
            return Ok(true);
        }
        let is_allowed = self.ask(&question).await?.allowed;
        if is_allowed {
            self.consents.lock().remember(&question, Instant::now());
        }
        Ok(is_allowed)
    }

    async fn ask(
        &self,
        question: &Question,
    ) -> kube::Result<k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus> {
        let caller = &question.caller;
        let (resource, subresource) = question.resource.split_once('/').unwrap_or((question.resource, ""));
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(caller.username.clone()),
                uid: Some(caller.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(caller.groups.clone()),
                extra: Some(caller.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    namespace: question.namespace.clone(),
                    verb: Some(question.verb.to_owned()),
                    group: Some(question.group.to_owned()).filter(|group| !group.is_empty()),
                    version: question.group.is_empty().then(|| "v1".to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: Some(subresource.to_owned()).filter(|it| !it.is_empty()),
                    name: question.name.clone(),
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

/// The name that the API server knows the client by.
async fn user_of(client: &Client) -> kube::Result<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let user = review.status.and_then(|status| status.user_info);
    Ok(user.and_then(|user| user.username).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: usize) -> Question {
        let caller = Caller { username: number.to_string(), ..Caller::default() };
        let (verb, group, resource) = ("delete", "", "pods");
        Question { caller, verb, group, resource, namespace: Some("shop".to_owned()), name: None }
    }

    #[test]
    fn consent_is_remembered_for_a_while_and_for_the_same_caller_only() {
        let start = Instant::now();
        let mut consents = Consents::default();
        consents.remember(&question(1), start);
        assert!(consents.holds(&question(1), start + REMEMBERED - Duration::from_millis(1)));
        assert!(!consents.holds(&question(1), start + REMEMBERED));
        assert!(!consents.holds(&question(2), start));
        let mut other_groups = question(1);
        other_groups.caller.groups.push("testers".to_owned());
        assert!(!consents.holds(&other_groups, start));
    }

    #[test]
    fn however_many_callers_there_are_the_room_is_limited() {
        let start = Instant::now();
        let mut consents = Consents::default();
        for number in 0..3 * ROOM {
            consents.remember(&question(number), start);
            assert!(consents.until.len() <= ROOM);
        }
        assert!(consents.holds(&question(3 * ROOM - 1), start));
    }
}
