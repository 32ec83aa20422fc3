//! What can go wrong, each told in one line with what to do.

use kube::core::Status;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("Usher is not installed in this cluster: kubectl apply -f deploy/crds")]
    NotInstalled,
    #[error("{0}")]
    Kubeconfig(String),
    #[error(
        "pod {name:?} is not in namespace {namespace:?}: name another with -n, or see kubectl get pods -A"
    )]
    NoSuchPod { namespace: String, name: String },
    #[error(
        "no pod in namespace {namespace:?} has the labels {selector:?}: see kubectl get pods --show-labels"
    )]
    NoPodSelected { namespace: String, selector: String },
    #[error("{0}; ask your cluster's administrator for that right")]
    Forbidden(String),
    #[error("the server does not accept your credentials: log in again, or choose another --context")]
    Unauthorized,
    #[error("the server cannot be reached: {0}; see whether the cluster runs and --context is the right one")]
    Unreachable(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Server(String),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Nobody reads the output any more, as after `| head`; that is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(why) if why.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from(*status),
            kube::Error::HyperError(_) | kube::Error::Service(_) => Self::Unreachable(innermost(&error)),
            kube::Error::Auth(why) => Self::Kubeconfig(format!(
                "the credentials of the kubeconfig cannot be used: {}",
                innermost(&why)
            )),
            other => Self::Server(innermost(&other)),
        }
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let message = one_line(&status.message);
        match status.code {
            // An object that is missing has a name; a whole kind that is missing has none.
            404 if !names_object(&status) => Self::NotInstalled,
            401 => Self::Unauthorized,
            403 => Self::Forbidden(message),
            500.. => Self::Server(format!("the server failed with {}: {message}", status.code)),
            _ => Self::Refused(message),
        }
    }
}

/// Whether one object is meant, and not its kind.
pub fn names_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// Whether the server says that this one object does not exist.
pub fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && names_object(status))
}

pub fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// The cause behind all others is the one that tells something.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    one_line(&cause.to_string())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(status: serde_json::Value) -> String {
        Error::from(serde_json::from_value::<Status>(status).unwrap()).to_string()
    }

    #[test]
    fn a_missing_kind_is_told_from_a_missing_object() {
        assert_eq!(
            told(json!({"code": 404, "message": "404 page not found\n"})),
            "Usher is not installed in this cluster: kubectl apply -f deploy/crds"
        );
        assert_eq!(
            told(json!({"code": 404, "message": "pods \"p\" not found", "details": {"name": "p"}})),
            "pods \"p\" not found"
        );
    }

    #[test]
    fn every_error_is_one_line() {
        let text = told(json!({"code": 403, "message": "pods is forbidden:\n  no"}));
        assert_eq!(text, "pods is forbidden: no; ask your cluster's administrator for that right");
        assert_eq!(told(json!({"code": 500, "message": "boom"})), "the server failed with 500: boom");
    }
}
