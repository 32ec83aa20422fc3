//! Access and identity reviews: questions that are answered and not stored.

use super::{Call, decode, errors};
use crate::auth::access_reviews::{
    local_subject_access_review, self_subject_access_review, self_subject_rules_review, subject_access_review,
};
use crate::auth::identity_reviews::{self_subject_review, token_review};
use crate::error::ApiResult;
use crate::response::{self, ServerResponse};

pub(crate) fn create(call: &Call<'_>) -> ApiResult<ServerResponse> {
    let mut review = decode::body(call)?;
    decode::expect_kind(&mut review, &call.kind)?;
    let rbac = call.server.rbac();
    let now = call.server.now();
    let mut answer = match call.kind.kind.as_str() {
        "SubjectAccessReview" => subject_access_review(&review, &rbac)?,
        "SelfSubjectAccessReview" => self_subject_access_review(&review, &call.user, &rbac)?,
        "LocalSubjectAccessReview" => local_subject_access_review(&review, call.namespace(), &rbac)?,
        "SelfSubjectRulesReview" => self_subject_rules_review(&review, &call.user, &rbac)?,
        "SelfSubjectReview" => self_subject_review(&call.user, now),
        "TokenReview" => token_review(&review, &call.server.users, now)?,
        _ => return Err(errors::no_such_path()),
    };
    if call.kind.kind != "SelfSubjectReview" && call.kind.kind != "SelfSubjectRulesReview" {
        // Although it is not stored, the question is tracked like any object that is created.
        call.server.own_fields(&call.kind, None, &mut review, &call.field_manager()?, "");
        answer["metadata"]["managedFields"] = review["metadata"]["managedFields"].take();
    }
    Ok(response::json(201, &answer))
}
