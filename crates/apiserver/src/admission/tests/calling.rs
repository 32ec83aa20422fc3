//! Calling a webhook: what it answers, what goes wrong, and what the failure policy makes of it.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn an_allowing_webhook_may_warn() {
    let webhooks = one_validating(json!({}), answering(json!({"allowed": true, "warnings": ["w1", "w2"]})));
    assert_eq!(Case::create().validate(&webhooks).await.unwrap(), ["w1", "w2"]);
}

#[tokio::test]
async fn a_denial_ends_the_request_whatever_the_failure_policy() {
    let response = json!({"allowed": false, "status": {"message": "no", "code": 429}});
    for policy in ["Fail", "Ignore"] {
        let webhooks = one_validating(json!({"failurePolicy": policy}), answering(response.clone()));
        let error = Case::create().validate(&webhooks).await.unwrap_err();
        assert_eq!(error.message, r#"admission webhook "h.example.com" denied the request: no"#);
        assert_eq!(error.code, 429);
    }
}

/// Each of these fails the request under `Fail`, with these words, and is passed over under `Ignore`.
#[tokio::test]
async fn failures_to_call() {
    let answer = |answer: Value| in_process(move |_| std::future::ready(Ok(answer.clone())));
    let cases = [
        (
            "unreachable",
            in_process(|_| std::future::ready(Err("broken pipe".to_string()))),
            r#"failed to call webhook: Post "https://127.0.0.1:1/hook?timeout=10s": broken pipe"#,
        ),
        ("no response", answer(json!({})), "received invalid webhook response: webhook response was absent"),
        (
            "another version",
            in_process(|review: Value| {
                let mut answer = respond(&review, json!({"allowed": true}));
                answer["apiVersion"] = "admission.k8s.io/v1beta1".into();
                std::future::ready(Ok(answer))
            }),
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (
            "a patch where none may be",
            answering(patching(json!([]))),
            "received invalid webhook response: validating webhook may not return response.patch",
        ),
    ];
    for (rule, endpoint, words) in cases {
        let closed = one_validating(json!({}), endpoint.clone());
        let error = Case::create().validate(&closed).await.unwrap_err();
        let cause = format!("failed calling webhook \"h.example.com\": {words}");
        assert_eq!(error.message, format!("Internal error occurred: {cause}"), "{rule}");
        assert_eq!((error.code, error.reason), (500, "InternalError"), "{rule}");
        assert_eq!(error.details, json!({"causes": [{"message": cause}]}), "{rule}");

        let open = one_validating(json!({"failurePolicy": "Ignore"}), endpoint);
        assert!(Case::create().validate(&open).await.is_ok(), "{rule}");
    }
}

#[tokio::test]
async fn an_answer_to_another_question_does_not_count() {
    let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "zz", "allowed": true}});
    let webhooks = one_validating(json!({}), in_process(move |_| std::future::ready(Ok(answer.clone()))));
    let message = Case::create().validate(&webhooks).await.unwrap_err().message;
    assert!(message.contains("received invalid webhook response: expected response.uid=\""), "{message}");
    assert!(message.ends_with("\", got \"zz\""), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_does_not_answer_in_time() {
    let slow = || {
        in_process(|review| async move {
            tokio::time::sleep(Duration::from_secs(4)).await;
            Ok(respond(&review, json!({"allowed": true})))
        })
    };
    let start = tokio::time::Instant::now();
    let hurried = one_validating(json!({"timeoutSeconds": 3}), slow());
    assert_eq!(
        Case::create().validate(&hurried).await.unwrap_err().message,
        r#"Internal error occurred: failed calling webhook "h.example.com": failed to call webhook: Post "https://127.0.0.1:1/hook?timeout=3s": context deadline exceeded"#
    );
    assert_eq!(start.elapsed(), Duration::from_secs(3));
    let patient = one_validating(json!({}), slow());
    assert!(Case::create().validate(&patient).await.is_ok(), "the default is ten seconds");
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_are_called_at_once() {
    let caller = Caller::default();
    caller.register_url(
        URL,
        in_process(|review| async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(respond(&review, json!({"allowed": true, "warnings": ["slow"]})))
        }),
    );
    let config =
        configuration("c", &[webhook("a.example.com", json!({})), webhook("b.example.com", json!({}))]);
    let webhooks = Webhooks::compile([], [&config], Arc::new(caller));
    let start = tokio::time::Instant::now();
    assert_eq!(Case::create().validate(&webhooks).await.unwrap(), ["slow", "slow"]);
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test]
async fn a_service_is_found_by_namespace_and_name() {
    let changes = json!({"clientConfig": {"service": {"namespace": "n", "name": "s", "path": "/v"}}, "timeoutSeconds": 3});
    let caller = Arc::new(Caller::default());
    let config = configuration("c", &[webhook("h.example.com", changes)]);
    let webhooks = Webhooks::compile([], [&config], caller.clone());
    let missing = r#"Internal error occurred: failed calling webhook "h.example.com": failed to call webhook: Post "https://s.n.svc:443/v?timeout=3s": service "s" not found"#;
    assert_eq!(Case::create().validate(&webhooks).await.unwrap_err().message, missing);
    caller.register_service("n", "s", answering(json!({"allowed": true})));
    assert!(Case::create().validate(&webhooks).await.is_ok());
    caller.unregister_service("n", "s");
    assert_eq!(Case::create().validate(&webhooks).await.unwrap_err().message, missing);
}

#[tokio::test]
async fn a_dry_run_reaches_only_webhooks_without_side_effects() {
    let cases = [("None", true), ("NoneOnDryRun", true), ("Some", false), ("Unknown", false)];
    for (side_effects, allowed) in cases {
        let changes = json!({"sideEffects": side_effects, "failurePolicy": "Ignore"});
        let webhooks = one_validating(changes, answering(json!({"allowed": true})));
        let mut case = Case::create();
        case.dry_run = true;
        match case.validate(&webhooks).await {
            Ok(_) => assert!(allowed, "{side_effects}"),
            Err(error) => {
                assert!(!allowed, "{side_effects}");
                assert_eq!(error.message, r#"admission webhook "h.example.com" does not support dry run"#);
                assert_eq!((error.code, error.reason), (400, "BadRequest"));
            }
        }
    }
}

#[tokio::test]
async fn webhooks_that_know_no_common_version_cannot_be_asked() {
    let webhooks =
        one_validating(json!({"admissionReviewVersions": ["v9"]}), answering(json!({"allowed": true})));
    assert_eq!(
        Case::create().validate(&webhooks).await.unwrap_err().message,
        r#"Internal error occurred: failed calling webhook "h.example.com": could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)"#
    );
}
