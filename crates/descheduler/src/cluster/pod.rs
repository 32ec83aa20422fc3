//! A pod: its name, where it is, and its status.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

/// No node.
pub const UNBOUND: u32 = u32::MAX;

#[derive(Debug, PartialEq)]
pub struct Pod {
    pub name: Arc<str>,
    pub uid: Uid,
    pub shape: u32,
    pub node: u32,
    /// Seconds since 1970.
    pub created: i64,
    pub started: Option<i64>,
    pub phase: Phase,
    pub terminating: bool,
    pub restarts: i32,
    pub init_restarts: i32,
    pub reason: Option<Arc<str>>,
    pub conditions: Box<[Condition]>,
    /// Containers that wait or have ended.
    pub containers: Box<[ContainerState]>,
}

/// Nearly always a number of 128 bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uid {
    Number(u128),
    Text(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
    None,
}

#[derive(Debug, PartialEq)]
pub struct Condition {
    pub what: Arc<ConditionKind>,
    pub since: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConditionKind {
    pub kind: Box<str>,
    pub status: Box<str>,
    pub reason: Box<str>,
}

#[derive(Debug, PartialEq)]
pub struct ContainerState {
    pub role: Role,
    pub waiting: Option<Arc<str>>,
    pub terminated: Option<(i32, Arc<str>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Main,
    Init,
    Ephemeral,
}

impl Phase {
    pub fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some("Unknown") => Self::Unknown,
            _ => Self::None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::None => "",
        }
    }

    /// It holds no resources any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl Uid {
    pub fn of(text: &str) -> Self {
        let digits: String = text.chars().filter(|one| *one != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok().map(Self::Number);
        number.filter(|uid| uid.to_string() == text).unwrap_or_else(|| Self::Text(text.into()))
    }

    /// Whether it is written so.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Text(own) => **own == *text,
            Self::Number(number) => {
                let mut digits = (0..32).rev().map(|place| (number >> (4 * place)) & 0xf);
                let is_digit = |one: u8, digit: u128| b"0123456789abcdef".get(digit as usize) == Some(&one);
                text.len() == 36
                    && text.bytes().enumerate().all(|(place, one)| match place {
                        8 | 13 | 18 | 23 => one == b'-',
                        _ => digits.next().is_some_and(|digit| is_digit(one, digit)),
                    })
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => {
                let hex = format!("{number:032x}");
                write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
            }
        }
    }
}

/// What the store shares between pods while it reads one.
pub trait Share {
    fn text(&mut self, text: &str) -> Arc<str>;
    fn condition(&mut self, kind: ConditionKind) -> Arc<ConditionKind>;
}

impl Pod {
    pub fn of(pod: &core::Pod, shape: u32, node: u32, share: &mut impl Share) -> Self {
        let empty = core::PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let restarts = |all: &Option<Vec<core::ContainerStatus>>| {
            all.iter().flatten().fold(0_i32, |sum, one| sum.wrapping_add(one.restart_count))
        };
        let mut containers = Vec::new();
        for (role, all) in [
            (Role::Main, &status.container_statuses),
            (Role::Init, &status.init_container_statuses),
            (Role::Ephemeral, &status.ephemeral_container_statuses),
        ] {
            for state in all.iter().flatten().filter_map(|one| one.state.as_ref()) {
                let waiting =
                    state.waiting.as_ref().map(|one| share.text(one.reason.as_deref().unwrap_or_default()));
                let terminated = state
                    .terminated
                    .as_ref()
                    .map(|one| (one.exit_code, share.text(one.reason.as_deref().unwrap_or_default())));
                if waiting.is_some() || terminated.is_some() {
                    containers.push(ContainerState { role, waiting, terminated });
                }
            }
        }
        let conditions = status.conditions.iter().flatten().map(|one| Condition {
            what: share.condition(ConditionKind {
                kind: one.type_.as_str().into(),
                status: one.status.as_str().into(),
                reason: one.reason.as_deref().unwrap_or_default().into(),
            }),
            since: one.last_transition_time.as_ref().map(|time| time.0.as_second()),
        });
        let conditions = conditions.collect();
        Self {
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            uid: Uid::of(pod.metadata.uid.as_deref().unwrap_or_default()),
            shape,
            node,
            created: pod.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            started: status.start_time.as_ref().map(|time| time.0.as_second()),
            phase: Phase::parse(status.phase.as_deref()),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            restarts: restarts(&status.container_statuses),
            init_restarts: restarts(&status.init_container_statuses),
            reason: status
                .reason
                .as_deref()
                .filter(|reason| !reason.is_empty())
                .map(|reason| share.text(reason)),
            conditions,
            containers: containers.into(),
        }
    }

    pub fn is_active(&self) -> bool {
        !self.phase.is_over()
    }
}
