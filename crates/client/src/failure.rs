//! What may be told of a call of the API server that failed: the kind of failure, and the code.
//!
//! Never what the server sent. Its answer, or a parser's complaint about it, may quote an object that the reader of a log or of an
//! admission answer must not see. Whoever looks for the cause has it at the level debug.

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
