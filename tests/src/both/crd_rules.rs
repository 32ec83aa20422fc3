//! The rules of Usher's definitions, as the API servers enforce them: every case of the CRD crate on both clusters.

#[path = "../../../crates/api/tests/rules/rule_cases.rs"]
mod rule_cases;

use crate::cluster::ADMIN;
use crate::{Answer, Request, TestCluster, crds};
use anyhow::{Result, bail};
use futures::StreamExt;
use rule_cases::RuleCase;
use serde_json::{Value, json};

const EVICTION_REQUESTS: &str =
    "/apis/evictionrequest.coordination.k8s.io/v1alpha1/namespaces/default/evictionrequests";
const NODE_MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

/// Cases in flight at a time.
const ABREAST: usize = 8;

fn collection(case: &RuleCase) -> &'static str {
    if case.kind() == "EvictionRequest" { EVICTION_REQUESTS } else { NODE_MAINTENANCES }
}

fn path(case: &RuleCase, object: &Value) -> String {
    format!("{}/{}", collection(case), object["metadata"]["name"].as_str().unwrap_or_default())
}

/// The request under test, on the object that the case gives.
async fn ask(cluster: &TestCluster, case: &RuleCase) -> Result<Answer> {
    if let Some(create) = &case.create {
        return cluster.post(collection(case), create).await;
    }
    let Some(given) = &case.given else { bail!("nothing to patch") };
    cluster.created(collection(case), given).await?;
    let object = path(case, given);
    let status = format!("{object}/status");
    for given in &case.given_status {
        let answer = cluster.merge_patch(&status, &json!({"status": given})).await?;
        if answer.status != 200 {
            bail!("the given status: {}", answer.body);
        }
    }
    match (&case.patch, &case.patch_status) {
        (Some(patch), _) => cluster.merge_patch(&object, patch).await,
        (None, Some(patch)) => cluster.merge_patch(&status, patch).await,
        (None, None) => bail!("no request"),
    }
}

async fn run(cluster: &TestCluster, case: &RuleCase) -> Result<()> {
    let answer = ask(cluster, case).await?;
    match &case.rejected {
        Some(fragment) => {
            let message = answer.body["message"].as_str().unwrap_or_default();
            if answer.status != 422 || !message.contains(fragment.as_str()) {
                bail!("wanted 422 with {fragment:?}, got {} {}", answer.status, answer.body);
            }
        }
        None if !case.accepted || !matches!(answer.status, 200 | 201) => {
            bail!("{} {}", answer.status, answer.body)
        }
        None => {}
    }
    if let Some(stored) = &case.stored {
        let found = cluster.get(&path(case, case.given.as_ref().or(case.create.as_ref()).unwrap())).await?;
        if !contains(&found.body, stored) {
            bail!("wanted {stored} in {}", found.body);
        }
    }
    Ok(())
}

/// Every field of `part` is in `whole`; null stands for a missing one.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(_), Value::Object(fields)) => fields.iter().all(|(k, v)| contains(&whole[k], v)),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| contains(a, b))
        }
        _ => whole == part,
    }
}

async fn every_case_ends_as_expected(cluster: &TestCluster) {
    let cases = rule_cases::load();
    let failures: Vec<String> = futures::stream::iter(&cases)
        .map(
            |case| async move { run(cluster, case).await.err().map(|why| format!("{}: {why:#}", case.name)) },
        )
        .buffered(ABREAST)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let (all, failed) = (cases.len(), failures.len());
    assert!(
        failures.is_empty(),
        "{failed} of {all} cases on the {}:\n{}",
        cluster.name(),
        failures.join("\n")
    );
}

/// The table that `kubectl get` prints.
async fn table(cluster: &TestCluster, path: &str) -> Value {
    let mut request = Request::new(http::Method::GET, path);
    request.headers.push(("accept".into(), "application/json;as=Table;v=v1;g=meta.k8s.io".into()));
    cluster.send(ADMIN, request).await.unwrap().body
}

/// The columns of the definition stand behind the name, in order, and a fresh object has a cell in each.
async fn columns_are_served(cluster: &TestCluster, installed: &[Value]) {
    let uid = "99999999-0000-4000-8000-000000000001";
    let request = json!({
        "apiVersion": "evictionrequest.coordination.k8s.io/v1alpha1", "kind": "EvictionRequest",
        "metadata": {"name": uid}, "spec": {"podRef": {"name": "web-1", "uid": uid}},
    });
    cluster.created(EVICTION_REQUESTS, &request).await.unwrap();
    for (definition, path) in installed.iter().zip([EVICTION_REQUESTS, NODE_MAINTENANCES]) {
        let table = table(cluster, path).await;
        let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        let wanted: Vec<&Value> = columns.iter().map(|column| &column["name"]).collect();
        let found = table["columnDefinitions"].as_array().unwrap();
        assert_eq!(found[0]["name"], "Name", "{}", cluster.name());
        assert_eq!(found[1..].iter().map(|column| &column["name"]).collect::<Vec<_>>(), wanted);
        for row in table["rows"].as_array().unwrap() {
            assert_eq!(row["cells"].as_array().unwrap().len(), found.len(), "{}", cluster.name());
        }
    }
    let rows = table(cluster, &format!("{EVICTION_REQUESTS}/{uid}")).await;
    assert_eq!(rows["rows"][0]["cells"][0], uid, "{rows}");
    assert!(rows["rows"][0]["cells"].as_array().unwrap().iter().any(|cell| cell == "web-1"), "{rows}");
}

pub async fn the_definitions_hold(cluster: TestCluster) {
    let installed = crds::install(&cluster).await.unwrap();
    assert_eq!(installed.len(), 2);
    for definition in &installed {
        assert_eq!(definition["metadata"]["finalizers"], Value::Null, "only a deletion adds one");
    }
    columns_are_served(&cluster, &installed).await;
    every_case_ends_as_expected(&cluster).await;
}
