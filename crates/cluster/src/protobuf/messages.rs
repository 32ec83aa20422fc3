//! The messages known here: field numbers and JSON names, from the published `generated.proto` files of
//! k8s.io/api and k8s.io/apimachinery. Status fields are left out, as servers ignore them in requests.

/// Field number, JSON name, and what the field holds.
pub(super) type Message = &'static [(u64, &'static str, Field)];

#[derive(Clone, Copy)]
pub(super) enum Field {
    Text,
    Texts,
    Bool,
    Int,
    Message(Message),
    Messages(Message),
    TextMap,
    /// A map to lists of text, as `extra` of users.
    TextsMap,
}

use Field::{Bool, Int, Message as One, Messages as Many, Text, TextMap, Texts, TextsMap};

/// The message of a kind, if it is one that kubectl sends as protobuf and that is read here.
pub(super) fn for_kind(api_version: &str, kind: &str) -> Option<Message> {
    match (api_version, kind) {
        // The version is that of the group of the resource to delete, or a generic one.
        (_, "DeleteOptions") => Some(DELETE_OPTIONS),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview") => Some(SELF_SUBJECT_ACCESS_REVIEW),
        ("authorization.k8s.io/v1", "SubjectAccessReview" | "LocalSubjectAccessReview") => {
            Some(SUBJECT_ACCESS_REVIEW)
        }
        ("authorization.k8s.io/v1", "SelfSubjectRulesReview") => Some(SELF_SUBJECT_RULES_REVIEW),
        ("authentication.k8s.io/v1", "SelfSubjectReview") => Some(SELF_SUBJECT_REVIEW),
        ("authentication.k8s.io/v1", "TokenReview") => Some(TOKEN_REVIEW),
        ("authentication.k8s.io/v1", "TokenRequest") => Some(TOKEN_REQUEST),
        ("policy/v1", "Eviction") => Some(EVICTION),
        _ => None,
    }
}

const OBJECT_META: Message = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (11, "labels", TextMap),
    (12, "annotations", TextMap),
];

const PRECONDITIONS: Message = &[(1, "uid", Text), (2, "resourceVersion", Text)];

const DELETE_OPTIONS: Message = &[
    (1, "gracePeriodSeconds", Int),
    (2, "preconditions", One(PRECONDITIONS)),
    (3, "orphanDependents", Bool),
    (4, "propagationPolicy", Text),
    (5, "dryRun", Texts),
    (6, "ignoreStoreReadErrorWithClusterBreakingPotential", Bool),
];

const EVICTION: Message = &[(1, "metadata", One(OBJECT_META)), (2, "deleteOptions", One(DELETE_OPTIONS))];

const REQUIREMENT: Message = &[(1, "key", Text), (2, "operator", Text), (3, "values", Texts)];

const SELECTOR: Message = &[(1, "rawSelector", Text), (2, "requirements", Many(REQUIREMENT))];

const RESOURCE_ATTRIBUTES: Message = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
    (8, "fieldSelector", One(SELECTOR)),
    (9, "labelSelector", One(SELECTOR)),
];

const NON_RESOURCE_ATTRIBUTES: Message = &[(1, "path", Text), (2, "verb", Text)];

const SELF_SUBJECT_ACCESS_REVIEW: Message = &[
    (1, "metadata", One(OBJECT_META)),
    (
        2,
        "spec",
        One(&[
            (1, "resourceAttributes", One(RESOURCE_ATTRIBUTES)),
            (2, "nonResourceAttributes", One(NON_RESOURCE_ATTRIBUTES)),
        ]),
    ),
];

const SUBJECT_ACCESS_REVIEW: Message = &[
    (1, "metadata", One(OBJECT_META)),
    (
        2,
        "spec",
        One(&[
            (1, "resourceAttributes", One(RESOURCE_ATTRIBUTES)),
            (2, "nonResourceAttributes", One(NON_RESOURCE_ATTRIBUTES)),
            (3, "user", Text),
            (4, "groups", Texts),
            (5, "extra", TextsMap),
            (6, "uid", Text),
        ]),
    ),
];

const SELF_SUBJECT_RULES_REVIEW: Message =
    &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(&[(1, "namespace", Text)]))];

const SELF_SUBJECT_REVIEW: Message = &[(1, "metadata", One(OBJECT_META))];

const TOKEN_REVIEW: Message =
    &[(1, "metadata", One(OBJECT_META)), (2, "spec", One(&[(1, "token", Text), (2, "audiences", Texts)]))];

const BOUND_OBJECT: Message =
    &[(1, "kind", Text), (2, "apiVersion", Text), (3, "name", Text), (4, "uid", Text)];

const TOKEN_REQUEST: Message = &[
    (1, "metadata", One(OBJECT_META)),
    (
        2,
        "spec",
        One(&[
            (1, "audiences", Texts),
            (3, "boundObjectRef", One(BOUND_OBJECT)),
            (4, "expirationSeconds", Int),
        ]),
    ),
];
