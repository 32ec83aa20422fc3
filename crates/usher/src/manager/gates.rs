//! Feature gates, written as Kubernetes' components have them.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Eviction requests are carried out.
    EvictionRequestApi,
    /// Node maintenances are carried out.
    DeclarativeNodeMaintenance,
    /// Pods are descheduled, if there is a policy.
    Descheduler,
    /// The descheduler evicts pods that are moved in the background.
    EvictionsInBackground,
    /// The descheduler asks by eviction requests.
    DeschedulerEvictionRequests,
    /// Workloads take over pods of the evict policy ControllerTakeOver.
    PodEvictPolicy,
}

impl Gate {
    const ALL: [Self; 6] = [
        Self::EvictionRequestApi,
        Self::DeclarativeNodeMaintenance,
        Self::Descheduler,
        Self::EvictionsInBackground,
        Self::DeschedulerEvictionRequests,
        Self::PodEvictPolicy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::EvictionRequestApi => "EvictionRequestAPI",
            Self::DeclarativeNodeMaintenance => "DeclarativeNodeMaintenance",
            Self::Descheduler => "Descheduler",
            Self::EvictionsInBackground => "EvictionsInBackground",
            Self::DeschedulerEvictionRequests => "DeschedulerEvictionRequests",
            Self::PodEvictPolicy => "PodEvictPolicy",
        }
    }

    /// It needs rights and policies that are not installed as it comes.
    fn is_on_by_default(self) -> bool {
        self != Self::PodEvictPolicy
    }
}

/// What was said of the gates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<Gate, bool>);

impl Gates {
    pub fn is_on(&self, gate: Gate) -> bool {
        self.0.get(&gate).copied().unwrap_or(gate.is_on_by_default())
    }
}

/// Reads `A=true,B=false`.
pub fn parse(text: &str) -> Result<Gates, String> {
    let mut gates = Gates::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) =
            part.split_once('=').ok_or_else(|| format!("{part}: write it as {part}=true or {part}=false"))?;
        let Some(gate) = Gate::ALL.into_iter().find(|gate| gate.name() == name.trim()) else {
            return Err(format!(
                "there is no feature gate {name}; there are: {}",
                Gate::ALL.map(Gate::name).join(", ")
            ));
        };
        let on = match value.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => true,
            "false" | "f" | "0" => false,
            _ => return Err(format!("{name} is true or false, not {value}")),
        };
        if gates.0.insert(gate, on).is_some_and(|before| before != on) {
            return Err(format!("{name} is said to be both true and false"));
        }
    }
    if gates.is_on(Gate::PodEvictPolicy) && !gates.is_on(Gate::EvictionRequestApi) {
        return Err("PodEvictPolicy needs EvictionRequestAPI: its admission policy would refuse evictions that nobody carries out; \
                    switch off both, and remove deploy/evict-policy"
            .to_owned());
    }
    Ok(gates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_as_kubernetes_reads_them() {
        let on = |text: &str| parse(text).map(|gates| gates.is_on(Gate::EvictionRequestApi));
        assert_eq!(on(""), Ok(true));
        assert_eq!(on("EvictionRequestAPI=false"), Ok(false));
        assert_eq!(on(" EvictionRequestAPI = True ,"), Ok(true));
        let policy = |text: &str| parse(text).map(|gates| gates.is_on(Gate::PodEvictPolicy));
        assert_eq!((policy(""), policy("PodEvictPolicy=true")), (Ok(false), Ok(true)));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_there_is() {
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(
            wrong("Evictions=true")
                .contains("no feature gate Evictions; there are: EvictionRequestAPI, Decl")
        );
        assert!(wrong("EvictionRequestAPI").contains("EvictionRequestAPI=true or EvictionRequestAPI=false"));
        assert!(wrong("EvictionRequestAPI=yes").contains("true or false, not yes"));
        assert!(wrong("EvictionRequestAPI=true,EvictionRequestAPI=false").contains("both"));
        assert!(wrong("EvictionRequestAPI=false,PodEvictPolicy=true").contains("switch off both"));
    }
}
