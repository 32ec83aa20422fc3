//! From a file to a policy: every key is known, every value is what it should be, and nothing contradicts itself.

use usher_api::names::DESCHEDULER_POLICY_KEY;

use super::args::{Balance, DefaultEvictorArgs, Deschedule, MetricsSource};
use super::errors::{PolicyError, PolicyErrors};
use super::schema::{self, Section, nearest};
use super::tree::{Entry, Tree, Value, parse};
use super::{Limits, MetricsProvider, PluginName, Policy, Profile, PrometheusProvider};
use crate::selector::Selector;

const EVICTOR: &str = "DefaultEvictor";
const DEFAULT_PREFIX: &str = "Eviction triggered";

pub fn policy(text: &str) -> Result<Policy, PolicyErrors> {
    let tree = parse(text).map_err(|error| PolicyErrors(vec![error]))?;
    if let Some(error) = is_config_map(&tree) {
        return Err(PolicyErrors(vec![error]));
    }
    let mut reader = Reader::default();
    let policy = reader.policy(&tree);
    if reader.errors.is_empty() {
        return Ok(policy);
    }
    reader.errors.sort();
    Err(PolicyErrors(reader.errors))
}

#[derive(Debug, Default)]
pub struct Reader {
    errors: Vec<PolicyError>,
    remarks: Vec<PolicyError>,
}

/// The entries of a map whose keys are all known.
#[derive(Debug)]
pub struct Fields<'a> {
    pub line: usize,
    pub path: String,
    entries: &'a [Entry],
}

impl<'a> Fields<'a> {
    /// The value of a key; one of nothing is none.
    pub fn get(&self, key: &str) -> Option<&'a Tree> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        (!matches!(entry.value.value, Value::Null)).then_some(&entry.value)
    }

    pub fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The line of a key, or of the map if it is not there.
    pub fn line(&self, key: &str) -> usize {
        self.entries.iter().find(|entry| entry.key == key).map_or(self.line, |entry| entry.line)
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A plugin's arguments as they were configured.
#[derive(Debug)]
enum Configured {
    Evictor(Box<DefaultEvictorArgs>),
    Deschedule(Deschedule),
    Balance(Balance),
}

impl Reader {
    pub fn error(&mut self, line: usize, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(PolicyError { line, path: path.into(), message: message.into(), hint: None });
    }

    fn error_with(
        &mut self,
        line: usize,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.errors.push(PolicyError { line, path: path.into(), message: message.into(), hint });
    }

    fn remark(&mut self, line: usize, path: impl Into<String>, message: impl Into<String>) {
        self.remarks.push(PolicyError { line, path: path.into(), message: message.into(), hint: None });
    }

    pub fn expected(&mut self, tree: &Tree, path: &str, what: &str) {
        self.error(tree.line, path, format!("this must be {what}, and is {}", tree.value.kind()));
    }

    /// The fields of a map, all of which belong there.
    pub fn fields<'a>(&mut self, tree: &'a Tree, path: &str, section: &Section) -> Fields<'a> {
        let entries: &[Entry] = match &tree.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            _ => {
                self.expected(tree, path, "a map");
                &[]
            }
        };
        for entry in entries {
            if !section.keys.contains(&entry.key.as_str()) {
                let message = format!("{} takes no key {}", section.name, entry.key);
                self.error_with(entry.line, path, message, schema::meant(&entry.key, section));
            }
        }
        Fields { line: tree.line, path: path.to_owned(), entries }
    }

    pub fn text(&mut self, fields: &Fields<'_>, key: &str) -> Option<String> {
        let tree = fields.get(key)?;
        match &tree.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.expected(tree, &fields.path(key), "a text");
                None
            }
        }
    }

    pub fn boolean(&mut self, fields: &Fields<'_>, key: &str) -> Option<bool> {
        let tree = fields.get(key)?;
        match &tree.value {
            Value::Bool(value) => Some(*value),
            _ => {
                self.expected(tree, &fields.path(key), "true or false");
                None
            }
        }
    }

    pub fn list<'a>(&mut self, fields: &Fields<'a>, key: &str) -> Option<&'a [Tree]> {
        let tree = fields.get(key)?;
        match &tree.value {
            Value::List(list) => Some(list),
            _ => {
                self.expected(tree, &fields.path(key), "a list");
                None
            }
        }
    }

    pub fn texts(&mut self, fields: &Fields<'_>, key: &str) -> Option<Vec<String>> {
        Some(self.texts_with_lines(fields, key)?.into_iter().map(|(_, text)| text).collect())
    }

    pub fn texts_with_lines(&mut self, fields: &Fields<'_>, key: &str) -> Option<Vec<(usize, String)>> {
        let mut texts = Vec::new();
        for (index, tree) in self.list(fields, key)?.iter().enumerate() {
            match &tree.value {
                Value::Text(text) => texts.push((tree.line, text.clone())),
                _ => self.expected(tree, &format!("{}[{index}]", fields.path(key)), "a text"),
            }
        }
        Some(texts)
    }

    /// Texts that are each one of those allowed.
    pub fn chosen(&mut self, fields: &Fields<'_>, key: &str, allowed: &[&str]) -> Vec<String> {
        let texts = self.texts_with_lines(fields, key).unwrap_or_default();
        for (line, text) in &texts {
            self.choice(*line, &fields.path(key), text, allowed);
        }
        texts.into_iter().map(|(_, text)| text).collect()
    }

    fn choice(&mut self, line: usize, path: &str, text: &str, allowed: &[&str]) {
        if !allowed.contains(&text) {
            let hint = nearest(text, allowed.iter().copied()).map(|near| format!("did you mean {near}?"));
            self.error_with(line, path, format!("{text:?} is not one of {}", allowed.join(", ")), hint);
        }
    }

    fn policy(&mut self, tree: &Tree) -> Policy {
        let top = self.fields(tree, "", &schema::TOP);
        self.version(&top);
        let node_selector = self.text(&top, "nodeSelector").and_then(|text| self.selector_text(&top, &text));
        let limits = self.limits(&top);
        // It is checked and means nothing: the grace period of each pod holds, and on a server all have one.
        if self.number::<i64>(&top, "gracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
            self.error(top.line("gracePeriodSeconds"), "gracePeriodSeconds", "this must not be negative");
        }
        let metrics_providers = self.metrics_providers(&top);
        let prefixes = self.texts(&top, "evictionMessagePrefixes");
        if prefixes.iter().flatten().any(String::is_empty) {
            let message = "an empty text begins every message, and every refusal would count as a promise";
            self.error(top.line("evictionMessagePrefixes"), "evictionMessagePrefixes", message);
        }
        let mut profiles = Vec::new();
        for (index, profile) in self.list(&top, "profiles").unwrap_or_default().iter().enumerate() {
            let path = format!("profiles[{index}]");
            let read = self.profile(profile, &path, &metrics_providers);
            if profiles.iter().any(|other: &Profile| other.name == read.name) {
                let message = format!("there is another profile {:?}: give it a name of its own", read.name);
                self.error(profile.line, path.as_str(), message);
            }
            if read.deschedule.is_empty() && read.balance.is_empty() {
                let message = "no plugin is enabled, so that this profile does nothing";
                self.remark(profile.line, path, message);
            }
            profiles.push(read);
        }
        if profiles.is_empty() {
            self.remark(
                top.line("profiles"),
                "profiles",
                "there is no profile, so that nothing is descheduled",
            );
        }
        Policy {
            node_selector,
            limits,
            eviction_failure_event_notification: self
                .boolean(&top, "evictionFailureEventNotification")
                .unwrap_or(false),
            metrics_providers,
            eviction_message_prefixes: prefixes.unwrap_or_else(|| vec![DEFAULT_PREFIX.to_owned()]),
            profiles,
            remarks: std::mem::take(&mut self.remarks),
        }
    }

    fn version(&mut self, top: &Fields<'_>) {
        match self.text(top, "apiVersion").as_deref() {
            Some("descheduler/v1alpha2") => {}
            Some(other) => {
                let hint = (other == "descheduler/v1alpha1")
                    .then(|| "strategies of v1alpha1 are plugins of profiles in v1alpha2".to_owned());
                let message = format!("this must be descheduler/v1alpha2, and is {other:?}");
                self.error_with(top.line("apiVersion"), "apiVersion", message, hint);
            }
            None if top.get("apiVersion").is_none() => {
                self.error(top.line, "apiVersion", "this must be descheduler/v1alpha2, and is missing");
            }
            None => {}
        }
        match self.text(top, "kind").as_deref() {
            Some("DeschedulerPolicy") => {}
            Some(other) => {
                self.error(
                    top.line("kind"),
                    "kind",
                    format!("this must be DeschedulerPolicy, and is {other:?}"),
                );
            }
            None if top.get("kind").is_none() => {
                self.error(top.line, "kind", "this must be DeschedulerPolicy, and is missing");
            }
            None => {}
        }
    }

    /// Limits have an older and a newer name; where both are given, the smaller one holds.
    fn limits(&mut self, top: &Fields<'_>) -> Limits {
        let mut smaller = |old: &str, new: &str| {
            let old = self.number::<u64>(top, old);
            let new = self.number::<u64>(top, new);
            old.into_iter().chain(new).min()
        };
        Limits {
            per_node: smaller("maxNoOfPodsToEvictPerNode", "maxNoOfPodsEvacuationsPerNode"),
            per_namespace: smaller("maxNoOfPodsToEvictPerNamespace", "maxNoOfPodsEvacuationsPerNamespace"),
            total: self.number::<u64>(top, "maxNoOfPodsToEvictTotal"),
        }
    }

    fn selector_text(&mut self, fields: &Fields<'_>, text: &str) -> Option<Selector> {
        match Selector::parse(text) {
            Ok(selector) => {
                for why in selector.wrong_labels() {
                    self.error(fields.line("nodeSelector"), fields.path("nodeSelector"), why);
                }
                (!selector.is_everything()).then_some(selector)
            }
            Err(why) => {
                self.error(fields.line("nodeSelector"), fields.path("nodeSelector"), why.to_string());
                None
            }
        }
    }

    pub fn node_selector(&mut self, fields: &Fields<'_>) -> Option<Selector> {
        let text = self.text(fields, "nodeSelector")?;
        self.selector_text(fields, &text)
    }

    fn metrics_providers(&mut self, top: &Fields<'_>) -> Vec<MetricsProvider> {
        let mut providers: Vec<MetricsProvider> = Vec::new();
        for (index, tree) in self.list(top, "metricsProviders").unwrap_or_default().iter().enumerate() {
            let path = format!("metricsProviders[{index}]");
            let fields = self.fields(tree, &path, &schema::METRICS_PROVIDER);
            let Some(source) = self.metrics_source(&fields) else {
                if fields.get("source").is_none() {
                    self.error(tree.line, path, "this has no source: KubernetesMetrics or Prometheus");
                }
                continue;
            };
            if providers.iter().any(|one| one.source == source) {
                self.error(tree.line, path, "this source is configured already, and each may be only once");
                continue;
            }
            let prometheus = self.prometheus_provider(&fields);
            if source == MetricsSource::Prometheus && fields.get("prometheus").is_none() {
                self.error(tree.line, path, "the source Prometheus wants a key prometheus with the url");
            } else if source == MetricsSource::KubernetesMetrics && prometheus.is_some() {
                self.error(
                    fields.line("prometheus"),
                    path,
                    "the source KubernetesMetrics takes no key prometheus",
                );
            }
            providers.push(MetricsProvider { source, prometheus });
        }
        if let Some(tree) = top.get("metricsCollector") {
            let fields = self.fields(tree, "metricsCollector", &schema::METRICS_COLLECTOR);
            let source = MetricsSource::KubernetesMetrics;
            if self.boolean(&fields, "enabled").unwrap_or(false) {
                if providers.iter().any(|one| one.source == source) {
                    let message = "this is the older form of the provider KubernetesMetrics, which is there too: keep one of them";
                    self.error(tree.line, "metricsCollector", message);
                } else {
                    providers.push(MetricsProvider { source, prometheus: None });
                }
            }
        }
        providers
    }

    pub fn metrics_source(&mut self, fields: &Fields<'_>) -> Option<MetricsSource> {
        let text = self.text(fields, "source").filter(|text| !text.is_empty())?;
        self.choice(
            fields.line("source"),
            &fields.path("source"),
            &text,
            &["KubernetesMetrics", "Prometheus"],
        );
        match text.as_str() {
            "KubernetesMetrics" => Some(MetricsSource::KubernetesMetrics),
            "Prometheus" => Some(MetricsSource::Prometheus),
            _ => None,
        }
    }

    fn prometheus_provider(&mut self, provider: &Fields<'_>) -> Option<PrometheusProvider> {
        let tree = provider.get("prometheus")?;
        let path = provider.path("prometheus");
        let fields = self.fields(tree, &path, &schema::PROMETHEUS_PROVIDER);
        let url = self.text(&fields, "url").unwrap_or_default();
        if !(url.starts_with("http://") || url.starts_with("https://")) {
            self.error(fields.line("url"), &path, "the url of a Prometheus server is missing");
        } else if let Some(why) = wrong_server(&url) {
            self.error(fields.line("url"), &path, why);
        }
        let mut auth_token = None;
        if let Some(tree) = fields.get("authToken") {
            let token = self.fields(tree, &fields.path("authToken"), &schema::AUTH_TOKEN);
            let reference = token.get("secretReference").map(|tree| {
                let secret = self.fields(tree, &token.path("secretReference"), &schema::SECRET_REFERENCE);
                (
                    self.text(&secret, "namespace").unwrap_or_default(),
                    self.text(&secret, "name").unwrap_or_default(),
                )
            });
            match reference {
                Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
                    if url.starts_with("http://") {
                        let message =
                            "a token is not sent over plain http: write an https url, or leave authToken out";
                        self.error(tree.line, &path, message);
                    }
                    auth_token = Some((namespace, name));
                }
                _ => {
                    self.error(tree.line, token.path, "this wants a secretReference with namespace and name");
                }
            }
        }
        Some(PrometheusProvider { url, auth_token })
    }

    fn profile(&mut self, tree: &Tree, path: &str, providers: &[MetricsProvider]) -> Profile {
        let fields = self.fields(tree, path, &schema::PROFILE);
        let mut configured: Vec<(String, Option<Configured>)> = Vec::new();
        for (index, tree) in self.list(&fields, "pluginConfig").unwrap_or_default().iter().enumerate() {
            let path = format!("{path}.pluginConfig[{index}]");
            let entry = self.fields(tree, &path, &schema::PLUGIN_CONFIG);
            let Some(name) = self.text(&entry, "name") else {
                if entry.get("name").is_none() {
                    self.error(tree.line, path, "this has no name of a plugin");
                }
                continue;
            };
            if configured.iter().any(|(one, _)| *one == name) {
                self.error(tree.line, path, format!("{name} is configured already in this profile"));
                continue;
            }
            let args = self.args(&name, &entry, providers);
            configured.push((name, args));
        }
        let mut profile = Profile {
            name: self.text(&fields, "name").unwrap_or_default(),
            evictor: DefaultEvictorArgs::default(),
            deschedule: Vec::new(),
            balance: Vec::new(),
        };
        let enabled = self.points(&fields);
        for (line, path, name) in enabled {
            let Some(index) = configured.iter().position(|(one, _)| *one == name) else {
                let message = format!("{name} is enabled and has no entry in pluginConfig");
                self.error_with(line, path, message, Some(format!("add one with name: {name}")));
                continue;
            };
            match configured.swap_remove(index).1 {
                Some(Configured::Deschedule(plugin)) => profile.deschedule.push(plugin),
                Some(Configured::Balance(plugin)) => profile.balance.push(plugin),
                Some(Configured::Evictor(_)) | None => {}
            }
        }
        for (_, args) in configured {
            if let Some(Configured::Evictor(args)) = args {
                profile.evictor = *args;
            }
        }
        profile
    }

    /// The plugins that are enabled where they work, each with where that is said.
    fn points(&mut self, profile: &Fields<'_>) -> Vec<(usize, String, String)> {
        let Some(tree) = profile.get("plugins") else {
            return Vec::new();
        };
        let points = self.fields(tree, &profile.path("plugins"), &schema::POINTS);
        let mut all = Vec::new();
        for key in schema::POINTS.keys {
            let Some(tree) = points.get(key) else {
                continue;
            };
            let point = self.fields(tree, &points.path(key), &schema::POINT);
            let enabled = self.texts_with_lines(&point, "enabled").unwrap_or_default();
            let disabled = self.texts_with_lines(&point, "disabled").unwrap_or_default();
            for (index, (line, name)) in enabled.iter().enumerate() {
                let path = point.path("enabled");
                if enabled[..index].iter().any(|(_, one)| one == name) {
                    self.error(*line, path, format!("{name} is enabled twice"));
                } else if self.works_at(*line, &path, name, key) && name != EVICTOR {
                    all.push((*line, path, name.clone()));
                }
            }
            for (line, name) in &disabled {
                let path = point.path("disabled");
                if enabled.iter().any(|(_, one)| one == name) {
                    self.error(*line, path, format!("{name} is both enabled and disabled"));
                } else if name == EVICTOR && matches!(*key, "filter" | "preevictionfilter") {
                    self.error(*line, path, format!("{name} cannot be disabled: it is always there"));
                } else if name != "*" {
                    self.works_at(*line, &path, name, key);
                }
            }
        }
        all
    }

    /// Whether a plugin works at an extension point. Nothing but the evictor filters or sorts.
    fn works_at(&mut self, line: usize, path: &str, name: &str, point: &str) -> bool {
        let home = match plugin(name) {
            Some(plugin) if plugin.is_balance() => "balance",
            Some(_) => "deschedule",
            None if name == EVICTOR => "filter",
            None => {
                self.unknown_plugin(line, path, name);
                return false;
            }
        };
        let works = home == point || home == "filter" && !matches!(point, "deschedule" | "balance");
        if !works {
            let hint = Some(format!("it belongs to {home}"));
            self.error_with(line, path, format!("{name} does not work at {point}"), hint);
        }
        works
    }

    fn unknown_plugin(&mut self, line: usize, path: &str, name: &str) {
        let names = PluginName::ALL.iter().map(|one| one.as_str()).chain([EVICTOR]);
        let hint = nearest(name, names).map(|near| format!("did you mean {near}?"));
        self.error_with(line, path, format!("there is no plugin {name}"), hint);
    }

    fn args(&mut self, name: &str, entry: &Fields<'_>, providers: &[MetricsProvider]) -> Option<Configured> {
        let none = Tree { line: entry.line, value: Value::Null };
        let tree = entry.get("args").unwrap_or(&none);
        let path = entry.path("args");
        if name == EVICTOR {
            return Some(Configured::Evictor(Box::new(self.default_evictor(tree, &path))));
        }
        let Some(plugin) = plugin(name) else {
            self.unknown_plugin(entry.line("name"), &entry.path("name"), name);
            return None;
        };
        Some(match plugin {
            PluginName::PodLifeTime => {
                Configured::Deschedule(Deschedule::PodLifeTime(self.pod_life_time(tree, &path)))
            }
            PluginName::RemoveFailedPods => {
                Configured::Deschedule(Deschedule::RemoveFailedPods(self.failed_pods(tree, &path)))
            }
            PluginName::RemovePodsHavingTooManyRestarts => {
                Configured::Deschedule(Deschedule::TooManyRestarts(self.too_many_restarts(tree, &path)))
            }
            PluginName::RemovePodsViolatingNodeTaints => {
                Configured::Deschedule(Deschedule::NodeTaints(self.node_taints(tree, &path)))
            }
            PluginName::RemovePodsViolatingNodeAffinity => {
                Configured::Deschedule(Deschedule::NodeAffinity(self.node_affinity(tree, &path)))
            }
            PluginName::RemovePodsViolatingInterPodAntiAffinity => {
                Configured::Deschedule(Deschedule::InterPodAntiAffinity(self.anti_affinity(tree, &path)))
            }
            PluginName::RemoveDuplicates => {
                Configured::Balance(Balance::RemoveDuplicates(self.duplicates(tree, &path)))
            }
            PluginName::RemovePodsViolatingTopologySpreadConstraint => {
                Configured::Balance(Balance::TopologySpread(self.topology_spread(tree, &path)))
            }
            PluginName::LowNodeUtilization => {
                Configured::Balance(Balance::LowNodeUtilization(self.low_utilization(tree, &path, providers)))
            }
            PluginName::HighNodeUtilization => {
                Configured::Balance(Balance::HighNodeUtilization(self.high_utilization(tree, &path)))
            }
        })
    }
}

/// Who has a policy in a cluster has it in a ConfigMap, and may take one for the other.
fn is_config_map(tree: &Tree) -> Option<PolicyError> {
    let Value::Map(entries) = &tree.value else { return None };
    let find = |key: &str| entries.iter().find(|entry| entry.key == key);
    let kind =
        find("kind").filter(|kind| matches!(&kind.value.value, Value::Text(kind) if kind == "ConfigMap"))?;
    let key = match find("data").map(|data| &data.value.value) {
        Some(Value::Map(texts)) if texts.len() == 1 => &texts[0].key,
        _ => DESCHEDULER_POLICY_KEY,
    };
    Some(PolicyError {
        line: kind.line,
        path: String::new(),
        message: "this is a ConfigMap, and not the policy that is in it".to_owned(),
        hint: Some(format!("give the text under data, {key}, by itself")),
    })
}

fn plugin(name: &str) -> Option<PluginName> {
    PluginName::ALL.into_iter().find(|one| one.as_str() == name)
}

/// What is wrong with the server and port of a URL.
fn wrong_server(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let server = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let server = server.rsplit_once('@').map_or(server, |(_, server)| server);
    // The colons of an IPv6 address are in brackets.
    let (name, port) = match server.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (server, None),
    };
    if name.is_empty() {
        return Some(format!("{url} has no server"));
    }
    let port = port.filter(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))?;
    Some(format!("{port} is no port: it is a number from 1 to 65535"))
}
