//! "Who am I?", "whose token is this?" and "give me a token": SelfSubjectReview, TokenReview, TokenRequest.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::users::{API_AUDIENCE, Users};
use crate::attributes::User;
use crate::error::{ApiError, ApiResult, FieldError};

const API_VERSION: &str = "authentication.k8s.io/v1";
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// The caller, as the server sees it.
pub(crate) fn self_subject_review(caller: &User, now: Timestamp) -> Value {
    json!({"kind": "SelfSubjectReview", "apiVersion": API_VERSION,
        "metadata": {"creationTimestamp": seconds(now)}, "status": {"userInfo": user_info(caller)}})
}

/// Whom the token in the review stands for.
pub(crate) fn token_review(review: &Value, users: &Users, now: Timestamp) -> ApiResult<Value> {
    let spec = &review["spec"];
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let status = match users.identify(token, &strings(&spec["audiences"]), now) {
        Some(identity) => json!({"authenticated": true, "user": user_info(&identity.user),
            "audiences": identity.audiences}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    };
    let metadata = review.get("metadata").filter(|m| m.is_object()).cloned().unwrap_or_else(|| json!({}));
    Ok(
        json!({"kind": "TokenReview", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// A token for a service account, by its `token` subresource. The caller has looked up the service account and,
/// if the request names one, the object that the token is bound to.
pub(crate) fn token_request(
    request: &Value,
    service_account: &Value,
    users: &Users,
    now: Timestamp,
) -> ApiResult<Value> {
    let field = |object: &Value, name: &str| -> String {
        object
            .get("metadata")
            .and_then(|m| m.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_string()
    };
    let (name, namespace, uid) =
        (field(service_account, "name"), field(service_account, "namespace"), field(service_account, "uid"));
    for (key, own) in [("name", &name), ("namespace", &namespace)] {
        let given = field(request, key);
        if !given.is_empty() && given != *own {
            let detail = format!("must match the service account {key} if specified");
            return Err(invalid(&name, FieldError::invalid(format!("metadata.{key}"), given, detail)));
        }
    }
    let given_uid = field(request, "uid");
    if !given_uid.is_empty() && given_uid != uid {
        let message = format!(
            "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io {name:?}: the UID in the token \
             request ({given_uid}) does not match the UID of the service account ({uid})"
        );
        return Err(ApiError::new(409, "Conflict", message)
            .with_details(json!({"name": name, "group": "authentication.k8s.io", "kind": "TokenRequest"})));
    }
    let spec = &request["spec"];
    let lifetime = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    for (broken, detail) in [
        (lifetime < SHORTEST, "may not specify a duration less than 10 minutes"),
        (lifetime > LONGEST, "may not specify a duration larger than 2^32 seconds"),
    ] {
        if broken {
            return Err(invalid("", FieldError::invalid("spec.expirationSeconds", lifetime, detail)));
        }
    }
    let mut audiences = strings(&spec["audiences"]);
    if audiences.is_empty() {
        audiences.push(API_AUDIENCE.to_string());
    }
    let lifetime_span = SignedDuration::from_secs(lifetime);
    let token = users.issue(&namespace, &name, &uid, &audiences, now, lifetime_span);
    let expires = now.saturating_add(lifetime_span).unwrap_or(Timestamp::MAX);
    Ok(json!({"kind": "TokenRequest", "apiVersion": API_VERSION,
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(now)},
        "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": spec["boundObjectRef"]},
        "status": {"token": token, "expirationTimestamp": seconds(expires)}}))
}

/// `userInfo` of reviews and of admission requests; what is empty is left out.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = json!({});
    if !user.name.is_empty() {
        info["username"] = user.name.as_str().into();
    }
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    info
}

fn invalid(name: &str, error: FieldError) -> ApiError {
    ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[error])
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_string)).collect()
}

/// Times in objects have no fractions.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T02:26:49.5Z".parse().unwrap()
    }

    fn account() -> Value {
        json!({"metadata": {"name": "sa", "namespace": "default", "uid": "u7"}})
    }

    #[test]
    fn a_review_of_a_valid_token_names_its_user() {
        let users = Users::new();
        users.add("secret", User { name: "alice".into(), uid: "u1".into(), groups: vec![] });
        let answer = token_review(&json!({"spec": {"token": "secret"}}), &users, now()).unwrap();
        assert_eq!(
            answer["status"],
            json!({"authenticated": true, "audiences": ["https://kubernetes.default.svc"],
                "user": {"username": "alice", "uid": "u1", "groups": ["system:authenticated"]}})
        );
    }

    #[test]
    fn a_requested_token_works_until_the_time_it_names() {
        let users = Users::new();
        let answer = token_request(&json!({"spec": {}}), &account(), &users, now()).unwrap();
        assert_eq!(
            answer["spec"],
            json!({"audiences": ["https://kubernetes.default.svc"],
            "expirationSeconds": 3600, "boundObjectRef": null})
        );
        assert_eq!(answer["status"]["expirationTimestamp"], "2026-11-15T03:26:49Z");
        let user = users.authenticate(answer["status"]["token"].as_str().unwrap(), now()).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:default:sa", "u7"));
    }

    #[test]
    fn token_requests_that_are_refused() {
        let cases = [
            (
                "too short a life",
                json!({"spec": {"expirationSeconds": 60}}),
                422,
                "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
            ),
            (
                "the name of another account",
                json!({"metadata": {"name": "x"}, "spec": {}}),
                422,
                "TokenRequest.authentication.k8s.io \"sa\" is invalid: metadata.name: Invalid value: \"x\": must match the service account name if specified",
            ),
            (
                "another account of the same name",
                json!({"metadata": {"uid": "old"}, "spec": {}}),
                409,
                "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"sa\": the UID in the token request (old) does not match the UID of the service account (u7)",
            ),
        ];
        for (rule, request, code, message) in cases {
            let error = token_request(&request, &account(), &Users::new(), now()).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (code, message), "{rule}");
        }
    }
}
