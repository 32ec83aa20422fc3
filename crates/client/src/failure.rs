//! A call of the API server that failed: what is to be done about it, and what may be told of it, which is the kind of failure and the code.
//!
//! What the server sent is never told. Its answer, or a parser's complaint about it, may quote an object that the reader of a log or of an
//! admission answer must not see. Whoever looks for the cause has it at the level debug.

use usher_api::names::{EVICTION_REQUEST_GROUP, NODE_MAINTENANCE_GROUP};

/// A call that failed, told apart by what one can do about it. What an eviction met is told apart further: see [`crate::refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The server does not know who calls.
    NotAuthenticated,
    /// Whoever calls may not, or a policy or a quota denies it.
    Forbidden,
    /// It breaks a rule of the API.
    Invalid,
    TooLarge,
    NotFound,
    /// It is not what was read any more, or there is one already.
    Conflict,
    /// The server has too much to do.
    Busy,
    /// Something failed within the server: it may have been done all the same.
    Server,
    /// A code that nobody expects.
    Unexpected,
    /// There was no answer, or none that can be read: it may have been done all the same.
    NoAnswer,
}

impl FailureClass {
    pub fn of(why: &kube::Error) -> Self {
        match why {
            // Whatever code somebody's webhook denies it with: the object is there, and as it was.
            kube::Error::Api(status) if is_denied_by_others(&status.message) => {
                match Self::of_code(status.code) {
                    class if class.is_outdated() => Self::Forbidden,
                    class => class,
                }
            }
            kube::Error::Api(status) => Self::of_code(status.code),
            _ => Self::NoAnswer,
        }
    }

    pub fn of_code(code: u16) -> Self {
        match code {
            401 => Self::NotAuthenticated,
            403 => Self::Forbidden,
            400 | 422 => Self::Invalid,
            413 => Self::TooLarge,
            404 => Self::NotFound,
            409 => Self::Conflict,
            429 => Self::Busy,
            500.. => Self::Server,
            _ => Self::Unexpected,
        }
    }

    /// The server will not take it before somebody changes something: rights, a policy, or what is sent.
    pub fn is_refused(self) -> bool {
        matches!(self, Self::NotAuthenticated | Self::Forbidden | Self::Invalid | Self::TooLarge)
    }

    /// What was decided does not hold any more: somebody else was faster.
    pub fn is_outdated(self) -> bool {
        matches!(self, Self::NotFound | Self::Conflict)
    }

    /// It may have been done, although nobody said so.
    pub fn may_be_done(self) -> bool {
        matches!(self, Self::Server | Self::NoAnswer)
    }
}

/// By an admission webhook that is none of Usher's: those say by the code that a pod has gone, or that another one has its name.
fn is_denied_by_others(message: &str) -> bool {
    let webhook = message.strip_prefix("admission webhook \"").and_then(|rest| rest.split('"').next());
    webhook.is_some_and(|name| {
        ![EVICTION_REQUEST_GROUP, NODE_MAINTENANCE_GROUP].iter().any(|group| name.ends_with(group))
    })
}

/// The kind of failure in a few words.
pub fn kind_of(why: &kube::Error) -> String {
    kind_of_answer(why, "the API server")
}

/// The same of another server, which these words name.
pub fn kind_of_answer(why: &kube::Error, who: &str) -> String {
    use kube::Error;
    match why {
        Error::Api(status) => match reason(&status.reason) {
            "" => format!("{who} answered {}", status.code),
            reason => format!("{who} answered {} {reason}", status.code),
        },
        Error::SerdeError(_) | Error::FromUtf8(_) => format!("the answer of {who} cannot be read"),
        Error::HyperError(_)
        | Error::Service(_)
        | Error::ReadEvents(_)
        | Error::LinesCodecMaxLineLengthExceeded => {
            format!("{who} cannot be reached, or the connection broke")
        }
        Error::Auth(_) => format!("there are no credentials for {who}"),
        Error::RustlsTls(_) => format!("there is no TLS session with {who}"),
        _ => format!("{who} could not be asked"),
    }
}

/// Reasons are words such as `NotFound`; whatever is none comes from somebody else.
fn reason(text: &str) -> &str {
    if text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) { text } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn what_the_webhook_of_others_denies_is_neither_gone_nor_outdated() {
        let answer = |code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            FailureClass::of(&kube::Error::Api(Box::new(status)))
        };
        for code in [403, 404, 409] {
            let denied = r#"admission webhook "w.example.com" denied the request: no"#;
            assert_eq!(answer(code, denied), FailureClass::Forbidden, "{code}");
        }
        let ours =
            r#"admission webhook "fill.evictionrequest.coordination.k8s.io" denied the request: another pod"#;
        assert_eq!(
            [404, 409].map(|code| answer(code, ours)),
            [FailureClass::NotFound, FailureClass::Conflict]
        );
        assert_eq!(answer(404, "deployments.apps \"web\" not found"), FailureClass::NotFound);
        assert_eq!(answer(500, "failed calling webhook \"w\""), FailureClass::Server);
    }

    #[test]
    fn a_failure_is_told_apart_by_what_one_can_do_about_it() {
        use FailureClass as Class;
        for (code, class, is_refused, is_outdated, may_be_done) in [
            (400, Class::Invalid, true, false, false),
            (401, Class::NotAuthenticated, true, false, false),
            (403, Class::Forbidden, true, false, false),
            (404, Class::NotFound, false, true, false),
            (405, Class::Unexpected, false, false, false),
            (409, Class::Conflict, false, true, false),
            (410, Class::Unexpected, false, false, false),
            (413, Class::TooLarge, true, false, false),
            (422, Class::Invalid, true, false, false),
            (429, Class::Busy, false, false, false),
            (500, Class::Server, false, false, true),
            (503, Class::Server, false, false, true),
            (504, Class::Server, false, false, true),
        ] {
            let status = Status { code, ..Status::failure("no", "") };
            let found = Class::of(&kube::Error::Api(Box::new(status)));
            assert_eq!(found, class, "{code}");
            let found = (found.is_refused(), found.is_outdated(), found.may_be_done());
            assert_eq!(found, (is_refused, is_outdated, may_be_done), "{code}");
        }
        let unanswered = Class::of(&kube::Error::Service("no".into()));
        assert!(unanswered == Class::NoAnswer && unanswered.may_be_done() && !unanswered.is_refused());
    }

    #[test]
    fn nothing_of_an_answer_is_told() {
        let secret = "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0t/=";
        let status = |code: u16, reason: &str| {
            let mut status = Status::failure(secret, reason);
            status.code = code;
            kind_of(&kube::Error::Api(Box::new(status)))
        };
        assert_eq!(status(403, "Forbidden"), "the API server answered 403 Forbidden");
        assert_eq!(status(500, secret), "the API server answered 500");
        let unreadable = serde_json::from_str::<u8>(&format!("{secret:?}")).unwrap_err();
        assert!(unreadable.to_string().contains(secret), "a parser quotes what it read");
        let said = kind_of(&kube::Error::SerdeError(unreadable));
        assert_eq!(said, "the answer of the API server cannot be read");
        let service = kube::Error::Service(secret.into());
        assert!(!kind_of(&service).contains(secret));
    }
}
