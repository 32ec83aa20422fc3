//! What can go wrong, each told in one line with what to do.

use kube::core::Status;

use crate::terminal::escaped;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "Usher is not installed in this cluster, which knows no eviction requests or node maintenances: install it as \
         its README says, or choose another cluster with --context"
    )]
    NotInstalled,
    /// What was typed cannot be meant.
    #[error("{0}")]
    Usage(String),
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
    #[error("{0}; ask your cluster's administrator for this permission")]
    Forbidden(String),
    #[error("the server rejects your credentials: log in again, or choose another --context")]
    Unauthorized,
    #[error(
        "the server cannot be reached: {0}; check that the cluster runs and that --context is the right one"
    )]
    Unreachable(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Server(String),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Nobody reads the output any more, as after `| head`.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(why) if why.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// With which code the process ends.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            // As a shell tells of a program that SIGPIPE has ended, which is how kubectl ends then.
            _ if self.is_broken_pipe() => 141,
            _ => 1,
        }
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
            500.. => match WebhookFailure::read(&message) {
                Some(failure) => Self::Server(failure.to_string()),
                None => Self::Server(format!("the server failed with {}: {message}", status.code)),
            },
            _ => Self::Refused(message),
        }
    }
}

/// An admission webhook that the server could not ask.
struct WebhookFailure<'a> {
    webhook: &'a str,
    why: &'a str,
}

/// All webhooks of Usher are named after its API groups.
const OUR_WEBHOOKS: [&str; 2] = ["evictionrequest.coordination.k8s.io", "nodemaintenance.k8s.io"];

impl<'a> WebhookFailure<'a> {
    /// The server says this in its message only.
    fn read(message: &'a str) -> Option<Self> {
        let (_, rest) = message.split_once("failed calling webhook \"")?;
        let (webhook, why) = rest.split_once('"')?;
        let why = why.trim_start_matches(':').trim();
        Some(Self { webhook, why: why.strip_prefix("failed to call webhook: ").unwrap_or(why) })
    }
}

impl std::fmt::Display for WebhookFailure<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { webhook, why } = self;
        write!(
            f,
            "the server could not call admission webhook {webhook} ({why}) and changes nothing without it: "
        )?;
        if OUR_WEBHOOKS.iter().any(|group| webhook.ends_with(group)) {
            write!(f, "it is Usher's own, so check that the manager runs, with {MANAGER_PODS}")
        } else {
            write!(f, "ask whoever runs this webhook")
        }
    }
}

/// Shows the manager wherever it is installed.
pub const MANAGER_PODS: &str = "kubectl get pods -A -l app.kubernetes.io/name=usher";

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
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(status: serde_json::Value) -> String {
        Error::from(serde_json::from_value::<Status>(status).unwrap()).to_string()
    }

    #[test]
    fn a_missing_kind_is_told_from_a_missing_object() {
        assert_eq!(
            described(json!({"code": 404, "message": "404 page not found\n"})),
            "Usher is not installed in this cluster, which knows no eviction requests or node maintenances: install it as \
             its README says, or choose another cluster with --context"
        );
        assert_eq!(
            described(json!({"code": 404, "message": "pods \"p\" not found", "details": {"name": "p"}})),
            "pods \"p\" not found"
        );
    }

    #[test]
    fn every_error_is_one_line() {
        let text = described(json!({"code": 403, "message": "pods is forbidden:\n  no"}));
        assert_eq!(text, "pods is forbidden: no; ask your cluster's administrator for this permission");
        assert_eq!(described(json!({"code": 500, "message": "boom"})), "the server failed with 500: boom");
    }

    #[test]
    fn a_webhook_that_does_not_answer_is_told_with_what_to_do() {
        let message = |webhook: &str| {
            json!({"code": 500, "message": format!(
                "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
                 \"https://usher-webhook.usher-system.svc:443/admit\": dial tcp 10.0.0.1:443: connect: connection refused"
            )})
        };
        assert_eq!(
            described(message("fill.nodemaintenance.k8s.io")),
            "the server could not call admission webhook fill.nodemaintenance.k8s.io (Post \
             \"https://usher-webhook.usher-system.svc:443/admit\": dial tcp 10.0.0.1:443: connect: connection refused) and \
             changes nothing without it: it is Usher's own, so check that the manager runs, with kubectl get pods -A -l \
             app.kubernetes.io/name=usher"
        );
        assert!(described(message("policy.example.com")).ends_with(": ask whoever runs this webhook"));
    }

    #[test]
    fn wrong_arguments_and_a_closed_pipe_have_exit_codes_of_their_own() {
        let closed = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(Error::Output(closed).code(), 141);
        assert_eq!(Error::Usage("no".into()).code(), 2);
        assert_eq!((Error::Refused("no".into()).code(), Error::NotInstalled.code()), (1, 1));
    }
}
