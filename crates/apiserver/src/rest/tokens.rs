//! serviceaccounts/token: tokens for service accounts.

use super::{Call, decode, errors};
use crate::auth::identity_reviews::token_request;
use crate::error::ApiResult;
use crate::response::{self, ServerResponse};

pub(crate) fn create(call: &Call<'_>) -> ApiResult<ServerResponse> {
    let mut request = decode::body_of(call, "TokenRequest")?;
    decode::expect_gvk(&mut request, "authentication.k8s.io/v1", "TokenRequest")?;
    let Some(account) = call.server.store.get(&call.kind.storage, &call.key()) else {
        return Err(errors::not_found(&call.kind, call.name()));
    };
    let answer = token_request(&request, &account.value(), &call.server.users, call.server.now())?;
    Ok(response::json(201, &answer))
}
