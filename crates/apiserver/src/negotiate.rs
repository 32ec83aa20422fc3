//! Which form of an answer the client asked for.

use http::{HeaderMap, header};

use crate::error::{ApiError, ApiResult};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The object as it is.
    Object,
    /// Rows for people; `v1` or `v1beta1` of meta.k8s.io.
    Table(&'static str),
    /// Only metadata.
    Metadata(&'static str),
}

/// The first form of the Accept header that the server can give.
pub(crate) fn form(headers: &HeaderMap) -> ApiResult<Form> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()) else {
        return Ok(Form::Object);
    };
    accept.split(',').find_map(one).ok_or_else(|| {
        const GIVEN: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let refuse = |message: String| ApiError::new(406, "NotAcceptable", message);
        if accept.contains("as=") || accept.contains("protobuf") {
            return refuse(format!("only the following media types are accepted: {GIVEN}"));
        }
        // A type that nobody speaks is refused before the request is looked at.
        refuse(format!("406: Not Acceptable\n\nAvailable representations: {GIVEN}"))
            .with_details(serde_json::json!({}))
    })
}

fn one(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    if !matches!(parts.next()?, "" | "*/*" | "application/*" | "application/json") {
        return None;
    }
    let (mut form, mut version, mut group) = (None, "v1", "meta.k8s.io");
    for (key, value) in parts.filter_map(|p| p.split_once('=')) {
        match key.trim() {
            "as" => form = Some(value.trim()),
            "v" => version = value.trim(),
            "g" => group = value.trim(),
            _ => {}
        }
    }
    let version = match version {
        "v1" => "v1",
        "v1beta1" => "v1beta1",
        _ if form.is_some() => return None,
        _ => "v1",
    };
    match form {
        None => Some(Form::Object),
        Some("Table") if group == "meta.k8s.io" => Some(Form::Table(version)),
        Some("PartialObjectMetadata" | "PartialObjectMetadataList") if group == "meta.k8s.io" => {
            Some(Form::Metadata(version))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_given_wins() {
        let cases = [
            ("application/json", Some(Form::Object)),
            ("*/*", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Form::Object)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(Form::Table("v1")),
            ),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata("v1"))),
            ("application/json;as=Other;v=v1;g=meta.k8s.io,application/json", Some(Form::Object)),
            ("application/vnd.kubernetes.protobuf", None),
        ];
        for (accept, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(form(&headers).ok(), want, "{accept}");
        }
        assert_eq!(form(&HeaderMap::new()), Ok(Form::Object));
    }
}
