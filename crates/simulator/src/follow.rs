//! Follows a resource as informers do, and takes what they tell into the view.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::api;
use super::view::{Change, Resource, Source, View};
use embedded_apiserver::Cluster;
use embedded_apiserver::ServerBody;
use embedded_apiserver::toolkit::metadata_of;

/// After a list or watch that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Something about one resource that the view has not taken in yet.
pub(crate) enum PendingEvent {
    Listed(Bytes),
    /// Whole lines of a watch.
    Changed(Bytes),
}

impl PendingEvent {
    pub(crate) fn take_in(
        &self,
        view: &mut View,
        resource: Resource,
    ) -> Result<Vec<Change>, serde_json::Error> {
        match self {
            Self::Listed(list) => listed(view, resource, list),
            Self::Changed(lines) => changed(view, resource, lines),
        }
    }
}

pub(crate) type Follower = Pin<Box<dyn Stream<Item = PendingEvent> + Send>>;

enum Following {
    /// A list of this revision or later.
    Listing {
        at_least: u64,
    },
    Watching {
        from: u64,
    },
    Reading {
        body: ServerBody,
        from: u64,
        last: Option<Bytes>,
    },
}

/// A list, then all changes; a watch that ends goes on where it was, one that has missed something starts again.
pub(crate) fn follow(cluster: Cluster, resource: Resource) -> Follower {
    let start = (cluster, Following::Listing { at_least: 0 });
    Box::pin(futures::stream::unfold(start, move |(cluster, mut state)| async move {
        loop {
            match state {
                Following::Listing { at_least } => {
                    let (code, list) = api::list(&cluster, resource, at_least).await;
                    if code == 200
                        && let Ok(revision) = revision_of(&list)
                    {
                        return Some((
                            PendingEvent::Listed(list),
                            (cluster, Following::Watching { from: revision }),
                        ));
                    }
                    tracing::warn!(?resource, code, "cannot be listed");
                    cluster.pass(PAUSE).await;
                    state = Following::Listing { at_least };
                }
                Following::Watching { from } => {
                    let (code, body) = api::watch(&cluster, resource, from).await;
                    if code == 200 {
                        state = Following::Reading { body, from, last: None };
                    } else {
                        cluster.pass(PAUSE).await;
                        state = Following::Listing { at_least: from };
                    }
                }
                Following::Reading { mut body, from, last } => {
                    // In this process, a frame of the body is what the server wrote in one go: whole lines.
                    match body.frame().await.and_then(|frame| frame.ok()?.into_data().ok()) {
                        Some(lines) if !lines.starts_with(b"{\"type\":\"ERROR\"") => {
                            let next = Following::Reading { body, from, last: Some(lines.clone()) };
                            return Some((PendingEvent::Changed(lines), (cluster, next)));
                        }
                        Some(_) => state = Following::Listing { at_least: from },
                        None => {
                            if last.is_none() {
                                // It may end at once again and again.
                                cluster.pass(PAUSE).await;
                            }
                            state = Following::Watching { from: last.map_or(from, |it| reached(&it, from)) };
                        }
                    }
                }
            }
        }
    }))
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

fn revision_of(list: &[u8]) -> Result<u64, serde_json::Error> {
    let list = std::str::from_utf8(list).map_err(serde::de::Error::custom)?;
    metadata_of::<ListMeta>(list)?.resource_version.parse().map_err(serde::de::Error::custom)
}

/// The revision of the last of these changes.
fn reached(lines: &[u8], before: u64) -> u64 {
    #[derive(Deserialize)]
    struct Changed {
        object: Object,
    }
    #[derive(Deserialize)]
    struct Object {
        metadata: ListMeta,
    }
    let events = serde_json::Deserializer::from_slice(lines).into_iter::<Changed>();
    let last = events.map_while(Result::ok).last();
    last.and_then(|event| event.object.metadata.resource_version.parse().ok()).unwrap_or(before)
}

fn listed(view: &mut View, resource: Resource, list: &[u8]) -> Result<Vec<Change>, serde_json::Error> {
    let revision = revision_of(list)?;
    let list: List<'_> = serde_json::from_slice(list)?;
    view.listed(resource, &list.items, revision)
}

/// One line of a watch: its type and its object. The server's own lines are taken apart without reading the object.
fn event(line: &str) -> Option<(&str, &str)> {
    let (kind, object) = line.strip_prefix("{\"type\":\"")?.split_once("\",\"object\":")?;
    Some((kind, object.strip_suffix('}')?))
}

fn changed(view: &mut View, resource: Resource, lines: &[u8]) -> Result<Vec<Change>, serde_json::Error> {
    let mut changes = Vec::new();
    let lines = std::str::from_utf8(lines).map_err(serde::de::Error::custom)?;
    for line in lines.split_terminator('\n') {
        let (kind, json) = event(line).ok_or_else(|| serde::de::Error::custom("not a line of a watch"))?;
        let change = match kind {
            "ADDED" | "MODIFIED" => view.written(resource, json, Source::Watch),
            "DELETED" => view.deleted(resource, json),
            _ => Ok(None),
        };
        match change {
            Ok(change) => changes.extend(change),
            // One bad object is nobody else's problem.
            Err(why) => tracing::warn!(?resource, %why, "an object cannot be read, and is ignored"),
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart() {
        let object = r#"{"metadata":{"name":"p"},"type":"x","object":{}}"#;
        let line = format!("{{\"type\":\"ADDED\",\"object\":{object}}}");
        assert_eq!(event(&line), Some(("ADDED", object)));
        for bad in ["{}", "{\"type\":\"ADDED\"}", "{\"type\":\"ADDED\",\"object\":1"] {
            assert_eq!(event(bad), None);
        }
    }

    fn pod(name: &str, revision: u64) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"d","resourceVersion":"{revision}"}},"spec":{{"containers":[]}}}}"#
        )
    }

    fn line(kind: &str, pod: &str) -> Vec<u8> {
        format!("{{\"type\":\"{kind}\",\"object\":{pod}}}\n").into_bytes()
    }

    fn list(revision: u64, pods: &[String]) -> Vec<u8> {
        let pods = pods.join(",");
        format!(r#"{{"metadata":{{"resourceVersion":"{revision}"}},"items":[{pods}]}}"#).into_bytes()
    }

    /// The names and revisions of the pods that the view has.
    fn known(view: &View) -> Vec<(String, u64)> {
        let of = |pod: &super::super::view::Pod| (pod.metadata.name.clone(), pod.metadata.revision());
        view.pods.iter().map(|(_, pod)| of(pod)).collect()
    }

    #[test]
    fn what_was_answered_is_no_change_and_goes_only_by_a_later_end() {
        let mut view = View::default();
        let changes = |view: &mut View, lines: &[u8]| changed(view, Resource::Pods, lines).unwrap().len();
        assert!(view.written(Resource::Pods, &pod("a", 5), Source::Answer).unwrap().is_some());
        assert_eq!(changes(&mut view, &line("DELETED", &pod("a", 4))), 0, "that was another pod of the name");
        assert_eq!(known(&view), [("a".to_string(), 5)]);
        assert_eq!(changes(&mut view, &line("ADDED", &pod("a", 5))), 0);
        assert!(view.written(Resource::Pods, &pod("a", 5), Source::Answer).unwrap().is_none());
        assert_eq!(changes(&mut view, &line("MODIFIED", &pod("a", 6))), 1);
        assert_eq!(changes(&mut view, &line("DELETED", &pod("a", 7))), 1);
        assert_eq!(known(&view), []);
    }

    #[test]
    fn a_list_that_is_older_than_an_answer_does_not_take_it_back() {
        let mut view = View::default();
        let pods = [("a".to_string(), 5), ("b".to_string(), 2)];
        view.written(Resource::Pods, &pod("a", 5), Source::Answer).unwrap();
        listed(&mut view, Resource::Pods, &list(3, &[pod("b", 2)])).unwrap();
        assert_eq!(known(&view), pods);
        // It is told again after the list, and nothing changes.
        assert!(changed(&mut view, Resource::Pods, &line("ADDED", &pod("a", 5))).unwrap().is_empty());
        assert_eq!(known(&view), pods);
        listed(&mut view, Resource::Pods, &list(9, &[pod("b", 2)])).unwrap();
        assert_eq!(known(&view), pods[1..]);
    }

    #[test]
    fn every_line_is_taken_in() {
        let mut view = View::default();
        let lines = [line("ADDED", &pod("a", 2)), line("ADDED", &pod("b", 3))].concat();
        assert_eq!(changed(&mut view, Resource::Pods, &lines).unwrap().len(), 2);
        assert_eq!(view.pods.len(), 2);
        assert_eq!(changed(&mut view, Resource::Pods, &line("DELETED", &pod("a", 4))).unwrap().len(), 1);
        for bad in [&b"nonsense\n"[..], b"\xff\n"] {
            assert!(changed(&mut view, Resource::Pods, bad).is_err());
        }
    }
}
