//! What `deploy/` installs, as Helm and kustomize render it: both install the same objects, and the values of the chart take effect.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tokio::process::Command;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").canonicalize().unwrap()
}

/// By kind, namespace and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let named = |object: Value| {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_string();
        let meta = &object["metadata"];
        let key = format!("{} {} {}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]));
        (key, with_whole_numbers(object))
    };
    documents.into_iter().filter(|document| !document.is_null()).map(named).collect()
}

/// `0.0` and `0` are the same number to Kubernetes, and kustomize writes the one as the other.
fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(all) => all.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, with_whole_numbers(field))).collect()
        }
        value => value,
    }
}

/// Tells Helm that the server has mutating admission policies.
const NEW_SERVER: [&str; 2] = ["--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"];

async fn helm(arguments: &[&str]) -> Output {
    let home = std::env::temp_dir().join(format!("usher-helm-{}", std::process::id()));
    let helm = usher_testbed::helm_path().await.unwrap();
    let mut command = Command::new(helm);
    command.arg("template").arg("usher").arg(deploy().join("helm/usher"));
    command.args(["--namespace", "usher-system", "--kube-version", "1.37.1"]).args(arguments);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, &home);
    }
    let output = command.output().await.unwrap();
    if home.exists() {
        std::fs::remove_dir_all(home).unwrap();
    }
    output
}

async fn rendered(arguments: &[&str]) -> BTreeMap<String, Value> {
    let output = helm(arguments).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    objects(&String::from_utf8(output.stdout).unwrap())
}

async fn kustomized(folder: &Path) -> BTreeMap<String, Value> {
    let kubectl = usher_testbed::kubectl_path().await.unwrap();
    let output = Command::new(kubectl).arg("kustomize").arg(folder).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    objects(&String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn the_chart_and_the_kustomization_make_the_same_objects() {
    let chart = rendered(&["--include-crds", NEW_SERVER[0], NEW_SERVER[1]]).await;
    let mut base = kustomized(&deploy()).await;
    base.remove("Namespace - usher-system").expect("kustomize makes the namespace");
    assert!(base.contains_key("Deployment usher-system usher-manager"), "{:?}", base.keys());
    assert_eq!(chart.keys().collect::<Vec<_>>(), base.keys().collect::<Vec<_>>());
    for (key, object) in &base {
        assert_eq!(&chart[key], object, "{key}: the chart on the left, kustomize on the right");
    }
}

/// Volumes have no order, and the text of a policy is YAML too.
fn make_comparable(objects: &mut BTreeMap<String, Value>) {
    let pod = objects.get_mut("Deployment usher-system usher-manager");
    let pod = &mut pod.unwrap()["spec"]["template"]["spec"];
    for pointer in ["/volumes", "/containers/0/volumeMounts"] {
        if let Some(volumes) = pod.pointer_mut(pointer).and_then(Value::as_array_mut) {
            volumes.sort_by_key(|volume| volume["name"].to_string());
        }
    }
    if let Some(map) = objects.get_mut("ConfigMap usher-system usher-descheduler-policy") {
        let policy = &mut map["data"]["policy.yaml"];
        *policy = serde_saphyr::from_str(policy.as_str().unwrap()).unwrap();
    }
}

/// A kustomization that adds components to what is installed.
async fn with_components(components: &[&str]) -> BTreeMap<String, Value> {
    let folder = std::env::temp_dir().join(format!("usher-{}-{}", components.join("-"), std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = folder.canonicalize().unwrap();
    // It takes relative paths only.
    let up = "../".repeat(folder.components().count() - 1);
    let deploy = format!("{up}{}", deploy().display().to_string().trim_start_matches('/'));
    let components: Vec<String> = components.iter().map(|name| format!("{deploy}/{name}")).collect();
    let components = components.join(", ");
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{deploy}]\ncomponents: [{components}]\n"
    );
    std::fs::write(folder.join("kustomization.yaml"), text).unwrap();
    let made = tokio::spawn({
        let folder = folder.clone();
        async move { kustomized(&folder).await }
    });
    let made = made.await;
    std::fs::remove_dir_all(folder).unwrap();
    made.unwrap()
}

#[tokio::test]
async fn the_choices_are_the_same_in_the_chart_and_in_kustomize() {
    let rights = |objects: &BTreeMap<String, Value>| {
        let roles =
            objects.iter().filter(|(key, _)| key.starts_with("Role ") || key.starts_with("ClusterRole "));
        roles.map(|(_, role)| role["rules"].to_string()).collect::<String>()
    };
    let plain = rendered(&["--include-crds", NEW_SERVER[0], NEW_SERVER[1]]).await;
    assert!(rights(&plain).contains("secrets") && rights(&plain).contains("webhookconfigurations"));
    for (components, choice) in [
        (
            ["strict"].as_slice(),
            ["--include-crds", "--set", "strict=true", NEW_SERVER[0], NEW_SERVER[1]].as_slice(),
        ),
        (
            &["outside-certificates"],
            &[
                "--include-crds",
                "--set",
                "certificates.secretName=usher-webhook-tls",
                NEW_SERVER[0],
                NEW_SERVER[1],
            ],
        ),
        (&["gateway"], &["--include-crds", "--set", "gateway.mode=request", NEW_SERVER[0], NEW_SERVER[1]]),
        (
            &["descheduler"],
            &["--include-crds", "--set", "descheduler.enabled=true", NEW_SERVER[0], NEW_SERVER[1]],
        ),
        (
            &["outside-certificates", "descheduler"],
            &[
                "--include-crds",
                "--set",
                "certificates.secretName=usher-webhook-tls,descheduler.enabled=true",
                NEW_SERVER[0],
                NEW_SERVER[1],
            ],
        ),
        (
            &["node-agent"],
            &["--include-crds", "--set", "nodeAgent.enabled=true", NEW_SERVER[0], NEW_SERVER[1]],
        ),
        (&["older-servers"], &["--include-crds"]),
        (
            &["evict-policy"],
            &["--include-crds", "--set", "evictPolicy.enabled=true", NEW_SERVER[0], NEW_SERVER[1]],
        ),
    ] {
        let mut chart = rendered(choice).await;
        let mut base = with_components(components).await;
        base.remove("Namespace - usher-system").expect("kustomize makes the namespace");
        let component = components.join(" and ");
        make_comparable(&mut chart);
        make_comparable(&mut base);
        assert_eq!(chart.keys().collect::<Vec<_>>(), base.keys().collect::<Vec<_>>(), "{component}");
        for (key, object) in &base {
            assert_eq!(
                &chart[key], object,
                "{component}, {key}: the chart on the left, kustomize on the right"
            );
        }
        let is_outside = components.contains(&"outside-certificates");
        assert_eq!(rights(&chart).contains("secrets"), !is_outside, "{component}");
        assert_eq!(rights(&chart).contains("webhookconfigurations"), !is_outside, "{component}");
        assert_ne!(chart, plain, "{component} changes something");
    }
    let values = "certificates.secretName=s,certificates.injectFrom=usher-system/webhook";
    let chart = rendered(&["--set", values]).await;
    let configuration = &chart["ValidatingWebhookConfiguration - usher"];
    assert_eq!(
        configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"],
        "usher-system/webhook"
    );
}

#[tokio::test]
async fn values_are_checked_and_reach_the_manager() {
    for (wrong, named) in [
        ("replicas=0", "replicas"),
        ("nonsense=1", "nonsense"),
        ("featureGates.X=true", "X"),
        ("traces.otlpEndpoint=c:4318", "otlpEndpoint"),
        ("image.digest=latest", "digest"),
        ("gateway.mode=on", "mode"),
        ("evictPolicy.timeout=soon", "timeout"),
        ("descheduler.interval=often", "interval"),
        ("networkPolicy.apiServers={anywhere}", "apiServers"),
        ("networkPolicy.apiServerPorts={https}", "apiServerPorts"),
        ("networkPolicy.extraEgress={anywhere}", "extraEgress"),
    ] {
        let output = helm(&["--set", wrong]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(named), "{wrong}: {said}");
    }
    let values = "featureGates.EvictionRequestAPI=false,image.tag=9.9.9,serviceAccount.annotations.a=b,\
                  traces.otlpEndpoint=http://c:4318";
    let chart = rendered(&["--set", values]).await;
    let container =
        &chart["Deployment usher-system usher-manager"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "usher:9.9.9");
    let fewer = rendered(&["--set", "interceptors={statefulset,deployment}"]).await;
    let arguments =
        &fewer["Deployment usher-system usher-manager"]["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(arguments[1], "--interceptors=statefulset,deployment");
    assert!(!fewer.contains_key("ClusterRole - usher-interceptor-daemonset"));
    let digest = format!("sha256:{}", "0a".repeat(32));
    let by_digest = rendered(&["--set", &format!("image.digest={digest}")]).await;
    let image =
        &by_digest["Deployment usher-system usher-manager"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(image["image"], format!("usher@{digest}"));
    assert_eq!(
        container["args"][0],
        "--feature-gates=DeclarativeNodeMaintenance=true,EvictionRequestAPI=false"
    );
    assert_eq!(container["args"][3], "--otlp-endpoint=http://c:4318");
    assert!(!container["args"].to_string().contains("--interceptors"), "all of them, as it comes");
    let account = &chart["ServiceAccount usher-system usher-manager"];
    assert_eq!(account["metadata"]["annotations"]["a"], "b");
}

#[tokio::test]
async fn the_network_is_narrowed_to_whom_the_manager_has_to_talk() {
    const POLICY: &str = "NetworkPolicy usher-system usher-manager";
    let ports = |rule: &Value| -> Vec<String> {
        rule["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].to_string().replace('"', ""))
            .collect()
    };
    let usual = rendered(&[]).await;
    let spec = &usual[POLICY]["spec"];
    let ingress: Vec<_> = spec["ingress"].as_array().unwrap().iter().map(ports).collect();
    assert_eq!(ingress, [["webhook"], ["metrics"]], "probes come from the node and nobody else");
    assert!(spec["ingress"][1]["from"][0]["namespaceSelector"]["matchLabels"]["metrics"] == "enabled");
    assert_eq!(spec["egress"].as_array().unwrap().len(), 2, "names and API servers");
    let manager = &usual["Deployment usher-system usher-manager"]["spec"]["template"];
    for (label, value) in spec["podSelector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&manager["metadata"]["labels"][label], value, "the policy is about the manager");
    }
    let named: Vec<&Value> = manager["spec"]["containers"][0]["ports"].as_array().unwrap().iter().collect();
    for port in ["webhook", "metrics"] {
        assert!(named.iter().any(|named| named["name"] == port), "{port}");
    }

    for (endpoint, wanted) in [
        ("http://c:4318", "4318"),
        ("http://collector.observability:4318/v1/traces", "4318"),
        ("https://c.example.com/x:1", "443"),
        ("http://c", "80"),
    ] {
        let chart = rendered(&["--set", &format!("traces.otlpEndpoint={endpoint}")]).await;
        assert_eq!(ports(&chart[POLICY]["spec"]["egress"][2]), [wanted], "{endpoint}");
    }
    let values = "networkPolicy.apiServers={10.0.0.0/24},metrics.authorization=false";
    let chart = rendered(&["--set", values]).await;
    assert_eq!(chart[POLICY]["spec"]["ingress"][0]["from"][0]["ipBlock"]["cidr"], "10.0.0.0/24");
    assert!(!chart.contains_key("ClusterRole - usher-metrics-authorization"));
    let arguments = chart["Deployment usher-system usher-manager"]["spec"]["template"]["spec"]["containers"]
        [0]["args"]
        .to_string();
    assert!(arguments.contains("--metrics-authorization=false"), "{arguments}");
    let prometheus = "networkPolicy.extraEgress[0].ports[0].port=9090";
    let chart = rendered(&["--set", prometheus]).await;
    assert_eq!(ports(&chart[POLICY]["spec"]["egress"][2]), ["9090"]);
    assert!(!rendered(&["--set", "networkPolicy.enabled=false"]).await.contains_key(POLICY));
}

#[tokio::test]
async fn a_policy_of_the_descheduler_that_is_given_takes_the_place_of_the_one_to_begin_with() {
    let given = "descheduler.enabled=true,descheduler.policy.apiVersion=descheduler/v1alpha2,\
                 descheduler.policy.kind=DeschedulerPolicy,descheduler.policy.maxNoOfPodsToEvictTotal=3";
    let chart = rendered(&["--set", given]).await;
    let text = chart["ConfigMap usher-system usher-descheduler-policy"]["data"]["policy.yaml"].clone();
    let policy: Value = serde_saphyr::from_str(text.as_str().unwrap()).unwrap();
    let wanted = serde_json::json!({
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "maxNoOfPodsToEvictTotal": 3,
    });
    assert_eq!(policy, wanted, "nothing of the other one is left");
}

#[tokio::test]
async fn agents_see_the_files_of_logind_only_if_they_are_to_raise_its_limit() {
    for (choice, is_raised) in
        [("nodeAgent.raiseShutdownLimit=", false), ("nodeAgent.raiseShutdownLimit=10m", true)]
    {
        let chart = rendered(&["--set", "nodeAgent.enabled=true", "--set", choice]).await;
        let pod = &chart["DaemonSet usher-system usher-node-agent"]["spec"]["template"]["spec"];
        let says = |part: &Value, text: &str| part.to_string().contains(text);
        assert_eq!(says(&pod["containers"][0]["args"], "--raise-shutdown-limit=10m"), is_raised);
        assert_eq!(says(&pod["containers"][0]["volumeMounts"], "/host/etc/systemd/logind.conf.d"), is_raised);
        assert_eq!(says(&pod["volumes"], r#""path":"/etc/systemd/logind.conf.d""#), is_raised);
    }
}
