//! Whether the descheduler may do what it cannot begin without: who may not is told at once, and not by watches that never come to an end.

use anyhow::bail;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use usher_api::names::EVICTION_REQUEST_GROUP;
use usher_apply::DeschedulerName;

/// What cycles go by, as resource and group.
const READ: [(&str, &str); 6] = [
    ("nodes", ""),
    ("pods", ""),
    ("namespaces", ""),
    ("persistentvolumeclaims", ""),
    ("poddisruptionbudgets", "policy"),
    ("priorityclasses", "scheduling.k8s.io"),
];
const REQUESTS: (&str, &str) = ("evictionrequests", EVICTION_REQUEST_GROUP);

/// Without the right to read all of it no cycle would ever begin.
pub async fn may_read(client: &Client, knows_requests: bool) -> anyhow::Result<()> {
    let resources = READ.into_iter().chain(knows_requests.then_some(REQUESTS));
    let wanted = resources.flat_map(|of| [("list", of), ("watch", of)]);
    let asked =
        wanted.map(|(verb, of)| async move { is_denied(client, verb, of).await.then_some((verb, of)) });
    let denied: Vec<String> = futures::future::join_all(asked)
        .await
        .into_iter()
        .flatten()
        .map(|(verb, (resource, group))| match group {
            "" => format!("{verb} {resource}"),
            group => format!("{verb} {resource}.{group}"),
        })
        .collect();
    if !denied.is_empty() {
        bail!(
            "the descheduler may not read what it goes by, and would never begin: it lacks the rights to {}, in all namespaces. Give them \
             to its account, as deploy/base/cluster-role.yaml and deploy/descheduler/role.yaml do",
            denied.join(", ")
        );
    }
    Ok(())
}

/// Where the server does not say, the watches will tell.
async fn is_denied(client: &Client, verb: &str, (resource, group): (&str, &str)) -> bool {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        resource: Some(resource.to_owned()),
        group: Some(group.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    answer.is_ok_and(|answer| answer.status.is_some_and(|status| !status.allowed))
}

/// Without the right to remember nothing would ever begin. A dry run reads what others remember, and writes nothing.
pub async fn may_remember(client: &Client, name: &DeschedulerName, dry_run: bool) -> anyhow::Result<()> {
    let (namespace, map) = (&name.namespace, name.config_map());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let verbs = if dry_run { "get" } else { "get, create and update" };
    match maps.get_opt(&map).await {
        Err(kube::Error::Api(status)) if status.code == 403 => bail!(
            "cool-downs are remembered in ConfigMap {namespace}/{map}, which the descheduler may not read: let it {verbs} it, as the role in \
             deploy/descheduler/role.yaml does, or name another namespace with --leader-elect-resource-namespace"
        ),
        // Where the server does not answer, the watches will tell.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A server that gives this answer to everything.
    fn answering(code: u16) -> Client {
        let answer = move |_: Request<Body>| async move {
            let status =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": "", "message": ""});
            anyhow::Ok(Response::builder().status(code).body(Body::from(status.to_string().into_bytes()))?)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    /// A server that denies these rights, as verb and resource, and is asked for nothing else.
    fn denying(rights: &'static [&'static str]) -> Client {
        let answer = move |request: Request<Body>| async move {
            assert_eq!(request.method(), Method::POST);
            let body = request.into_body().collect_bytes().await?;
            let mut review: Value = serde_json::from_slice(&body)?;
            let asked = &review["spec"]["resourceAttributes"];
            let asked = [&asked["verb"], &asked["resource"]].map(|it| it.as_str().unwrap_or_default());
            let is_allowed = !rights.contains(&asked.join(" ").as_str());
            review["status"] = json!({"allowed": is_allowed});
            anyhow::Ok(Response::builder().status(201).body(Body::from(review.to_string().into_bytes()))?)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn who_may_not_read_the_cluster_is_told_which_rights_are_missing_and_what_to_do() {
        let cases: [(&'static [&'static str], bool, &str); 3] = [
            (&["list nodes"], true, "it lacks the rights to list nodes, in all namespaces"),
            (
                &["watch pods", "list poddisruptionbudgets"],
                true,
                "it lacks the rights to watch pods, list poddisruptionbudgets.policy, in all namespaces",
            ),
            (
                &["watch evictionrequests"],
                true,
                "it lacks the rights to watch evictionrequests.evictionrequest.coordination.k8s.io,",
            ),
        ];
        for (rights, knows_requests, part) in cases {
            let wrong = may_read(&denying(rights), knows_requests).await.unwrap_err().to_string();
            assert!(wrong.contains(part) && wrong.contains("deploy/descheduler/role.yaml"), "{wrong}");
        }
        may_read(&denying(&[]), true).await.unwrap();
        may_read(&denying(&["list evictionrequests"]), false).await.unwrap();
        for code in [403, 404, 500] {
            assert!(may_read(&answering(code), true).await.is_ok(), "{code}: the watches will tell");
        }
    }

    #[tokio::test]
    async fn who_may_not_remember_is_told_at_once_what_to_do() {
        let name = DeschedulerName { namespace: "usher-system".into(), name: "usher-descheduler".into() };
        for (dry_run, rights) in [(false, "let it get, create and update it,"), (true, "let it get it,")] {
            let wrong = may_remember(&answering(403), &name, dry_run).await.unwrap_err().to_string();
            assert!(wrong.contains("usher-system/usher-descheduler-cool-downs"), "{wrong}");
            assert!(wrong.contains("deploy/descheduler/role.yaml") && wrong.contains(rights), "{wrong}");
            for code in [404, 500] {
                let answer = may_remember(&answering(code), &name, dry_run).await;
                assert!(answer.is_ok(), "{code}: the watches will tell");
            }
        }
    }
}
