//! Bodies that kubectl v1.37 sent, bodies made by hand, and broken ones.

use serde_json::json;

use super::*;

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
    out.extend_from_slice(content);
    out
}

fn join(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

/// A body as clients send it.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = join(&[field(1, api_version.as_bytes()), field(2, kind.as_bytes())]);
    let mut out = join(&[MAGIC.to_vec(), field(1, &type_meta), vec![2 << 3 | 2]]);
    let length = u16::try_from(raw.len()).unwrap();
    out.extend([(length & 0x7f) as u8 | 0x80, (length >> 7) as u8]);
    out.extend_from_slice(raw);
    join(&[out, field(3, b""), field(4, b"")])
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn bodies_recorded_from_kubectl() {
    let cases = [
        (
            "auth can-i get /healthz",
            "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577122f0a100a0012001a0022002a003200380042001211120f0a082f6865616c74687a12036765741a08080012001a0020001a002200",
            json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                "spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}, "status": {"allowed": false}}),
        ),
        (
            "auth can-i --list",
            "6b3873000a310a17617574686f72697a6174696f6e2e6b38732e696f2f7631121653656c665375626a65637452756c657352657669657712230a100a0012001a0022002a0032003800420012090a0764656661756c741a04180022001a002200",
            json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
                "spec": {"namespace": "default"},
                "status": {"incomplete": false, "nonResourceRules": null, "resourceRules": null}}),
        ),
        (
            "create token",
            "6b3873000a280a1861757468656e7469636174696f6e2e6b38732e696f2f7631120c546f6b656e52657175657374121a0a100a0012001a0022002a0032003800420012001a040a0012001a002200",
            json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
                "spec": {"audiences": null, "boundObjectRef": null, "expirationSeconds": null},
                "status": {"expirationTimestamp": null, "token": ""}}),
        ),
        (
            "drain --disable-eviction --grace-period=0",
            "6b3873000a130a027631120d44656c6574654f7074696f6e73120208001a002200",
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}),
        ),
    ];
    for (command, hex, object) in cases {
        assert_eq!(decode(&unhex(hex)).unwrap().unwrap(), object, "{command}");
    }
}

#[test]
fn a_self_subject_access_review() {
    let attributes = join(&[
        field(1, b"default"),
        field(2, b"get"),
        field(3, b""),
        field(4, b"*"),
        field(5, b"pods"),
        field(6, b""),
        field(7, b""),
    ]);
    // The metadata that Go writes for an empty object: empty texts, generation 0, a creation time.
    let metadata = join(&[field(1, b""), field(5, b""), vec![7 << 3, 0], field(8, b"")]);
    let raw = join(&[field(1, &metadata), field(2, &field(1, &attributes)), field(3, &[8, 0])]);
    assert_eq!(
        decode(&envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &raw)).unwrap().unwrap(),
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
            "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "version": "*", "resource": "pods"}},
            "status": {"allowed": false}})
    );
}

#[test]
fn a_subject_access_review_with_groups_and_extra() {
    let values = join(&[field(1, b"x"), field(1, b"y")]);
    let extra = join(&[field(1, b"team"), field(2, &values)]);
    let spec = join(&[
        field(2, &join(&[field(1, b"/healthz"), field(2, b"get")])),
        field(3, b"alice"),
        field(4, b"dev"),
        field(4, b"ops"),
        field(5, &extra),
    ]);
    let object = decode(&envelope("authorization.k8s.io/v1", "SubjectAccessReview", &field(2, &spec)))
        .unwrap()
        .unwrap();
    assert_eq!(
        object["spec"],
        json!({"nonResourceAttributes": {"path": "/healthz", "verb": "get"}, "user": "alice",
            "groups": ["dev", "ops"], "extra": {"team": ["x", "y"]}})
    );
}

#[test]
fn delete_options_keep_a_grace_period_of_zero() {
    let raw =
        join(&[vec![1 << 3, 0], field(2, &field(1, b"uid-1")), field(4, b"Background"), field(5, b"All")]);
    let expected = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-1"}, "propagationPolicy": "Background", "dryRun": ["All"]});
    assert_eq!(decode(&envelope("v1", "DeleteOptions", &raw)).unwrap().unwrap(), expected);
}

#[test]
fn numbers_of_several_bytes_and_below_zero() {
    let grace = |bytes: &[u8]| {
        let raw = [&[1 << 3], bytes].concat();
        decode(&envelope("v1", "DeleteOptions", &raw)).unwrap().unwrap()["gracePeriodSeconds"].clone()
    };
    assert_eq!(grace(&[0xac, 0x02]), 300);
    assert_eq!(grace(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), -1);
}

#[test]
fn an_eviction() {
    let raw = join(&[
        field(
            1,
            &join(&[
                field(1, b"web-0"),
                field(3, b"shop"),
                field(11, &join(&[field(1, b"a"), field(2, b"b")])),
            ]),
        ),
        field(2, &[1 << 3, 30]),
    ]);
    assert_eq!(
        decode(&envelope("policy/v1", "Eviction", &raw)).unwrap().unwrap(),
        json!({"kind": "Eviction", "apiVersion": "policy/v1",
            "metadata": {"name": "web-0", "namespace": "shop", "labels": {"a": "b"}},
            "deleteOptions": {"gracePeriodSeconds": 30}})
    );
}

#[test]
fn other_kinds_are_left_to_json() {
    let definition = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &[]);
    assert_eq!(decode(&definition).unwrap(), None);
    assert_eq!(decode(&envelope("example.com/v1", "Widget", &[])).unwrap(), None);
    assert_eq!(decode(&envelope("authorization.k8s.io/v1beta1", "SubjectAccessReview", &[])).unwrap(), None);
}

#[test]
fn malformed_bodies_are_bad_requests() {
    let cases: [(&str, Vec<u8>); 6] = [
        ("no prefix", b"{}".to_vec()),
        ("ends within the envelope", join(&[MAGIC.to_vec(), vec![1 << 3 | 2, 200, 1]])),
        ("a length beyond the end", envelope("v1", "DeleteOptions", &[2 << 3 | 2, 50, 1])),
        (
            "a number too long",
            envelope("v1", "DeleteOptions", &[1 << 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ),
        ("text that is not UTF-8", envelope("v1", "DeleteOptions", &field(4, &[0xff]))),
        ("a number where text belongs", envelope("v1", "DeleteOptions", &[4 << 3, 1])),
    ];
    for (rule, bytes) in cases {
        assert_eq!(decode(&bytes).unwrap_err().code, 400, "{rule}");
    }
}

/// One field of each form: an inlined message, a time, numbers that may be texts, quantities, raw bytes, packed numbers.
#[test]
fn types_with_forms_of_their_own() {
    let quantity = |text: &[u8]| field(1, text);
    let limits = join(&[field(1, b"cpu"), field(2, &quantity(b"0.5"))]);
    let container = join(&[field(1, b"main"), field(8, &field(1, &limits))]);
    // A volume is a name and an inlined message that says of which kind it is.
    let volume = join(&[field(1, b"v"), field(2, &field(6, &field(1, b"settings")))]);
    let metadata = join(&[field(1, b"web"), field(8, &[8, 1]), field(9, &[8, 0xe7, 0x07, 16, 5])]);
    let pod = join(&[field(1, &metadata), field(2, &join(&[field(1, &volume), field(2, &container)]))]);
    let pod = decode(&envelope("v1", "Pod", &pod)).unwrap().unwrap();
    assert_eq!(
        pod["metadata"],
        json!({"name": "web", "creationTimestamp": "1970-01-01T00:00:01Z", "deletionTimestamp": "1970-01-01T00:16:39Z"})
    );
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "v", "secret": {"secretName": "settings"}}]));
    assert_eq!(
        pod["spec"]["containers"],
        json!([{"name": "main", "resources": {"limits": {"cpu": "500m"}}}])
    );

    let budget = |value: &[u8]| {
        let raw = field(2, &field(1, value));
        decode(&envelope("policy/v1", "PodDisruptionBudget", &raw)).unwrap().unwrap()["spec"]["minAvailable"]
            .clone()
    };
    assert_eq!(budget(&[8, 0, 16, 2, 26, 0]), 2);
    assert_eq!(budget(&[8, 1, 16, 0, 26, 3, b'5', b'0', b'%']), "50%");

    let secret = field(2, &join(&[field(1, b"key"), field(2, b"value")]));
    assert_eq!(
        decode(&envelope("v1", "Secret", &secret)).unwrap().unwrap()["data"],
        json!({"key": "dmFsdWU="})
    );

    let revision = join(&[field(2, &field(1, br#"{"a":null}"#)), vec![3 << 3, 7]]);
    let revision = decode(&envelope("apps/v1", "ControllerRevision", &revision)).unwrap().unwrap();
    assert_eq!((&revision["data"], &revision["revision"]), (&json!({"a": null}), &json!(7)));
}

mod any_bytes {
    use proptest::prelude::*;

    use super::*;

    const KINDS: [(&str, &str); 5] = [
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
        ("policy/v1", "PodDisruptionBudget"),
        ("authorization.k8s.io/v1", "SubjectAccessReview"),
        ("v1", "DeleteOptions"),
    ];

    fn of_kind(kind: usize, raw: &[u8]) -> Vec<u8> {
        let (api_version, kind) = KINDS[kind];
        envelope(api_version, kind, raw)
    }

    proptest! {
        /// Never a panic, and never another error than 400.
        #[test]
        fn are_an_object_or_a_bad_request(kind in 0..KINDS.len(), raw in prop::collection::vec(any::<u8>(), 0..200)) {
            for bytes in [of_kind(kind, &raw), [MAGIC, &raw].concat(), raw] {
                if let Err(error) = decode(&bytes) {
                    prop_assert_eq!(error.code, 400);
                }
            }
        }

        #[test]
        fn so_are_messages_cut_short_or_changed(at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
            let container = join(&[field(1, b"main"), field(2, b"nginx"), field(6, &[24, 80])]);
            let raw = join(&[field(1, &field(1, b"web")), field(2, &field(2, &container))]);
            let mut bytes = of_kind(0, &raw);
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            if let Err(error) = decode(&bytes) {
                prop_assert_eq!(error.code, 400);
            }
        }
    }
}
