//! What kubectl's own commands make arrives as protobuf. It must come out as if it had been sent as JSON.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use usher_tests::TestCluster;

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Runs a command line (split at spaces) and returns what it says; `input` is its stdin.
    async fn run(&self, line: &str, input: &str) -> Result<String> {
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(line.split(' '))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("stdin")?.write_all(input.as_bytes()).await?;
        let output = child.wait_with_output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "kubectl {line}: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &said)
    }

    async fn get(&self, object: &str, namespace: &str) -> Result<Value> {
        let text = self.run(&format!("get {object} -n {namespace} -o json"), "").await?;
        Ok(comparable(serde_json::from_str(&text)?))
    }
}

/// The object without what every creation has of its own.
fn comparable(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "name"] {
            metadata.remove(field);
        }
        if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.remove("kubernetes.io/metadata.name");
        }
    }
    for field in ["clusterIP", "clusterIPs"] {
        if let Some(spec) = object["spec"].as_object_mut() {
            spec.remove(field);
        }
    }
    for binding in object["subjects"].as_array_mut().into_iter().flatten() {
        if let Some(subject) = binding.as_object_mut() {
            subject.remove("namespace");
        }
    }
    without_job_uid(&mut object);
    object
}

/// A job's selector and its pods' labels carry the job's uid.
fn without_job_uid(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.ends_with("controller-uid"));
            fields.values_mut().for_each(without_job_uid);
        }
        Value::Array(items) => items.iter_mut().for_each(without_job_uid),
        _ => {}
    }
}

/// A command, and the object that it makes.
const NAMESPACED: &[(&str, &str)] = &[
    ("create configmap settings --from-literal=a=1 --from-literal=b=two", "configmap/settings"),
    ("create secret generic keys --from-literal=key=value", "secret/keys"),
    ("create secret docker-registry registry --docker-username=u --docker-password=p", "secret/registry"),
    ("create serviceaccount robot", "serviceaccount/robot"),
    ("create deployment web --image=nginx:1 --replicas=2 --port=80", "deployment/web"),
    ("create service clusterip web --tcp=80:8080", "service/web"),
    ("create service nodeport open --tcp=80 --node-port=0", "service/open"),
    ("create service externalname far --external-name=example.com", "service/far"),
    ("create job once --image=busybox:1 -- true", "job/once"),
    ("create cronjob often --image=busybox:1 --schedule=@hourly", "cronjob/often"),
    ("create poddisruptionbudget keep --selector=app=web --min-available=50%", "pdb/keep"),
    ("create pdb keep-two --selector=app=web --max-unavailable=2", "pdb/keep-two"),
    ("create role reader --verb=get,list --resource=pods,deployments.apps", "role/reader"),
    ("create rolebinding reads --role=reader --serviceaccount=default:robot --user=u", "rolebinding/reads"),
    ("create quota most --hard=pods=3,cpu=0.5,memory=1024Mi", "resourcequota/most"),
    ("run pod --image=nginx:1 --port=80 --env=A=1 --labels=app=web", "pod/pod"),
];

const CLUSTER_WIDE: &[(&str, &str)] = &[
    ("create namespace space", "namespace/space"),
    ("create clusterrole all-reader --verb=get --resource=nodes", "clusterrole/all-reader"),
    ("create clusterrole prober --verb=get --non-resource-url=/healthz", "clusterrole/prober"),
    ("create clusterrolebinding all-reads --clusterrole=view --group=g", "clusterrolebinding/all-reads"),
    ("create priorityclass high --value=1000 --description=first", "priorityclass/high"),
];

async fn start() -> Result<(TestCluster, Kubectl)> {
    let (cluster, _) = TestCluster::embedded_with(true).await?;
    let program = usher_testbed::kubectl_path().await?;
    let kubeconfig = Path::to_path_buf(cluster.kubeconfig());
    Ok((cluster, Kubectl { program, kubeconfig }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kubectl_creates_is_what_its_json_form_creates() -> Result<()> {
    let (_cluster, kubectl) = start().await?;
    let said = kubectl.run("create namespace sent -v=9", "").await?;
    assert!(said.contains("application/vnd.kubernetes.protobuf"), "kubectl sends protobuf: {said}");
    kubectl.run("create namespace json", "").await?;
    let mut differing = Vec::new();
    for (line, object) in NAMESPACED {
        kubectl.run(&in_namespace(line, "sent"), "").await?;
        let form = kubectl.run(&in_namespace(line, "json --dry-run=client -o json"), "").await?;
        kubectl.run("create -n json -f -", &form).await?;
        let (sent, json) = (kubectl.get(object, "sent").await?, kubectl.get(object, "json").await?);
        if sent != json {
            differing.push(format!("{line}\n  sent {sent}\n  json {json}"));
        }
    }
    for (line, object) in CLUSTER_WIDE {
        let form = kubectl.run(&format!("{line} --dry-run=client -o json"), "").await?;
        kubectl.run(line, "").await?;
        let sent = kubectl.get(object, "default").await?;
        kubectl.run(&format!("delete {object}"), "").await?;
        kubectl.run("create -f -", &form).await?;
        let json = kubectl.get(object, "default").await?;
        if sent != json {
            differing.push(format!("{line}\n  sent {sent}\n  json {json}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    Ok(())
}

/// Flags go before the command that a job runs.
fn in_namespace(line: &str, namespace: &str) -> String {
    match line.split_once(" -- ") {
        Some((flags, command)) => format!("{flags} -n {namespace} -- {command}"),
        None => format!("{line} -n {namespace}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_build_on_other_objects_work() -> Result<()> {
    let (_cluster, kubectl) = start().await?;
    kubectl.run("create deployment web --image=nginx:1 --port=80", "").await?;
    kubectl.run("expose deployment web --port=80 --target-port=http", "").await?;
    let service = kubectl.get("service/web", "default").await?;
    assert_eq!(service["spec"]["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": "http"}]));
    assert_eq!(service["spec"]["selector"], json!({"app": "web"}));

    kubectl.run("autoscale deployment web --min=1 --max=3 --cpu=50%", "").await?;
    let spec = kubectl.get("hpa/web", "default").await?["spec"].clone();
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(3)));
    assert_eq!(
        spec["metrics"][0]["resource"]["target"],
        json!({"averageUtilization": 50, "type": "Utilization"})
    );

    kubectl.run("create serviceaccount robot", "").await?;
    let token = kubectl.run("create token robot --duration=1h", "").await?;
    assert_eq!(token.trim().split('.').count(), 3, "a token of three parts: {token}");

    kubectl.run("create quota most --hard=cpu=0.5,memory=1024Mi", "").await?;
    let quota = kubectl.get("quota/most", "default").await?;
    assert_eq!(quota["spec"]["hard"], json!({"cpu": "500m", "memory": "1Gi"}));
    Ok(())
}
