//! What all kinds have in common on the wire, reduced to what decisions read.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use embedded_apiserver::Key;

/// An object with only the fields that somebody decides by.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "S: Deserialize<'de> + Default, T: Deserialize<'de> + Default")]
pub(crate) struct Object<S, T = Value> {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: S,
    #[serde(default, deserialize_with = "or_default")]
    pub status: T,
}

/// Anything that is followed has a place and a revision.
pub(crate) trait Followed {
    fn meta(&self) -> &Meta;

    fn key(&self) -> Key {
        Key::new(&self.meta().namespace, &self.meta().name)
    }
}

impl<S, T> Followed for Object<S, T> {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl<S, T> Object<S, T> {
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "known_annotations")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "time")]
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<Owner>,
}

impl Meta {
    /// The owner that manages this object.
    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    pub(crate) fn created(&self) -> Timestamp {
        self.creation_timestamp.unwrap_or(Timestamp::UNIX_EPOCH)
    }

    pub(crate) fn revision(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    #[serde(deserialize_with = "or_default")]
    pub reason: String,
    #[serde(deserialize_with = "or_default")]
    pub message: String,
    #[serde(deserialize_with = "time")]
    pub last_transition_time: Option<Timestamp>,
}

pub(crate) fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// A number, or a share of some total such as `25%`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Number(i64),
    Share(String),
}

impl Amount {
    /// The share of `total`, rounded up or down; a text that is no share counts as nothing.
    pub(crate) fn of(&self, total: i64, round_up: bool) -> i64 {
        match self {
            Self::Number(number) => *number,
            Self::Share(text) => {
                let percent: i64 = text.trim_end_matches('%').parse().unwrap_or_default();
                let exact = percent.saturating_mul(total);
                if round_up { (exact + 99).div_euclid(100) } else { exact.div_euclid(100) }
            }
        }
    }
}

/// Annotations can be large; these are the ones that somebody reads here.
const ANNOTATIONS: [&str; 11] = [
    crate::kubelet::START_DELAY,
    crate::kubelet::RUN_TIME,
    crate::kubelet::TERMINATE_DELAY,
    crate::controllers::replica_set::DELETION_COST,
    crate::controllers::deployment::REVISION,
    crate::controllers::deployment::DESIRED,
    crate::controllers::deployment::MAXIMUM,
    crate::controllers::job::INDEX,
    crate::kubelet::READY_DELAY,
    crate::kubelet::EXIT_CODE,
    crate::kubelet::MIRROR,
];

fn known_annotations<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut all = Option::<BTreeMap<String, String>>::deserialize(from)?.unwrap_or_default();
    all.retain(|name, _| ANNOTATIONS.contains(&name.as_str()));
    Ok(all)
}

/// `null` is written where nothing is meant.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

pub(super) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    struct Time;
    impl Visitor<'_> for Time {
        type Value = Option<Timestamp>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("a time or null")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            text.parse().map(Some).map_err(E::custom)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    from.deserialize_any(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_round_as_their_user_asks() {
        let quarter = Amount::Share("25%".into());
        assert_eq!((quarter.of(10, true), quarter.of(10, false)), (3, 2));
        assert_eq!(Amount::Number(4).of(10, true), 4);
    }
}
