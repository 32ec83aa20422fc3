//! The forms of names that Kubernetes knows, with its explanations of what is wrong. An empty list means valid.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

pub(crate) fn max_length(length: usize) -> String {
    format!("must be no more than {length} characters")
}

pub(crate) fn in_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn regex_text(explanation: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{explanation} (regex used for validation is '{regex}')");
    }
    let listed: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{explanation} (e.g. {}regex used for validation is '{regex}')", listed.join(" or "))
}

/// Lower-case letters, digits and inner dashes.
fn is_label(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let bytes = text.as_bytes();
    !bytes.is_empty() && bytes.iter().all(inner) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_label_key_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() && bytes.iter().all(inner)
        }
        _ => false,
    }
}

pub(crate) fn dns_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            "must not contain dots".to_string()
        } else {
            let explanation = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
                               '-', and must start and end with an alphanumeric character";
            regex_text(explanation, LABEL, &["my-name", "123-abc"])
        });
    }
    errors
}

pub(crate) fn dns_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if !is_subdomain(text) {
        let explanation = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                           '-' or '.', and must start and end with an alphanumeric character";
        errors.push(regex_text(explanation, SUBDOMAIN, &["example.com"]));
    }
    errors
}

pub(crate) fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !is_label(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        let explanation = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
                           an alphabetic character, and end with an alphanumeric character";
        errors.push(regex_text(explanation, LABEL_1035, &["my-name", "abc-123"]));
    }
    errors
}

/// Names of RBAC objects and the like: anything that fits between two slashes.
pub(crate) fn path_segment(text: &str, is_prefix: bool) -> Vec<String> {
    let mut errors = Vec::new();
    if !is_prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    for forbidden in ["/", "%"] {
        if text.contains(forbidden) {
            errors.push(format!("may not contain '{forbidden}'"));
        }
    }
    errors
}

/// Label keys, annotation keys, finalizers: an optional DNS prefix, a slash, a name.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let explanation = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                       alphanumeric character";
    let regex = |lead: &str| {
        format!("{lead}{}", regex_text(explanation, LABEL_KEY, &["MyName", "my.name", "123-abc"]))
    };
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_string());
            } else {
                errors.extend(dns_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            *name
        }
        _ => {
            let suffix = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![regex("a valid label key ") + suffix];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_string());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", max_length(63)));
    }
    if !is_label_key_name(name) {
        errors.push(regex("name part "));
    }
    errors
}

pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !text.is_empty() && !is_label_key_name(text) {
        let explanation = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
                           or '.', and must start and end with an alphanumeric character";
        errors.push(regex_text(explanation, &format!("({LABEL_KEY})?"), &["MyValue", "my_value", "12345"]));
    }
    errors
}

pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(inner) {
        let explanation = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        errors.push(regex_text(explanation, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    } else if text == "." || text == ".." {
        errors.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        errors.push("must not start with '..'".to_string());
    }
    errors
}

pub(crate) fn port_number(port: i64) -> Vec<String> {
    if (1..=65535).contains(&port) { Vec::new() } else { vec![in_range(1, 65535)] }
}

pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(max_length(15));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_string());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_string());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_string());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_string());
    }
    errors
}

pub(crate) fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    let explanation = "a valid percent string must be a numeric string followed by an ending '%'";
    vec![regex_text(explanation, "[0-9]+%", &["1%", "93%"])]
}

pub(crate) fn env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_string()];
    }
    if text.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_string(),
    ]
}
