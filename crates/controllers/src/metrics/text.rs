//! Metrics in the text format that every Prometheus reads, with names as people query them.
//!
//! The registry writes OpenMetrics, which puts `_total` behind every counter. The specification gives its own names to
//! some; in the older text format they can be written as they are.

use std::borrow::Cow;

/// The type of what [`classic`] makes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters whose specified name has no `_total`.
const WITHOUT_SUFFIX: [&str; 1] = ["evictionrequest_controller_evictions"];

/// From OpenMetrics to the older text format.
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 256);
    let mut counter: Option<&str> = None;
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if line == "# EOF" {
            break;
        }
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // The name that belongs there is known with the type, on the next line.
            (Some("#"), Some("HELP"), Some(name), Some(rest)) => help = Some((name, rest)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                counter = (kind == "counter").then_some(name);
                let shown = if counter.is_some() { sample_name(name) } else { Cow::Borrowed(name) };
                if let Some((_, rest)) = help.take().filter(|(of, _)| *of == name) {
                    text.push_str(&format!("# HELP {shown} {rest}\n"));
                }
                let kind = if kind == "unknown" { "untyped" } else { kind };
                text.push_str(&format!("# TYPE {shown} {kind}\n"));
            }
            // Units are in the names.
            (Some("#"), ..) => {}
            _ => {
                let bare = counter.filter(|name| WITHOUT_SUFFIX.contains(name));
                let rest = bare.and_then(|name| line.strip_prefix(name)?.strip_prefix("_total"));
                match (bare, rest) {
                    (Some(name), Some(rest)) => text.extend([name, rest]),
                    _ => text.push_str(line),
                }
                text.push('\n');
            }
        }
    }
    text
}

fn sample_name(counter: &str) -> Cow<'_, str> {
    if WITHOUT_SUFFIX.contains(&counter) {
        Cow::Borrowed(counter)
    } else {
        Cow::Owned(format!("{counter}_total"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_names_that_people_query() {
        let open = "# HELP evictionrequest_controller_evictions Tries.\n\
            # TYPE evictionrequest_controller_evictions counter\n\
            evictionrequest_controller_evictions_total{result=\"accepted\"} 3\n\
            # HELP workqueue_adds Added.\n\
            # TYPE workqueue_adds counter\n\
            workqueue_adds_total{name=\"evictionrequests\"} 5\n\
            # HELP depth Now.\n\
            # TYPE depth gauge\n\
            # UNIT depth seconds\n\
            depth 1\n\
            # EOF\n";
        assert_eq!(
            classic(open),
            "# HELP evictionrequest_controller_evictions Tries.\n\
             # TYPE evictionrequest_controller_evictions counter\n\
             evictionrequest_controller_evictions{result=\"accepted\"} 3\n\
             # HELP workqueue_adds_total Added.\n\
             # TYPE workqueue_adds_total counter\n\
             workqueue_adds_total{name=\"evictionrequests\"} 5\n\
             # HELP depth Now.\n\
             # TYPE depth gauge\n\
             depth 1\n"
        );
    }

    #[test]
    fn a_label_that_looks_like_something_else_stays_as_it_is() {
        let line = "x{name=\"# TYPE evictionrequest_controller_evictions_total\"} 1\n";
        assert_eq!(classic(line), line);
    }
}
