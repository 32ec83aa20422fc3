//! What `deploy/` installs: every interceptor has its files, and no right is wider than it says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails here has failed")]

use std::path::PathBuf;

use serde_json::Value;
use usher_api::workloads::BundledInterceptor;
use usher_tests::manifests;

fn deploy() -> PathBuf {
    manifests::folder().canonicalize().unwrap()
}

#[test]
fn each_bundled_interceptor_is_installed_with_its_role_and_its_policies() {
    let yaml = |path: &str| -> Value {
        let text = std::fs::read_to_string(deploy().join(path));
        serde_saphyr::from_str(&text.unwrap_or_else(|why| panic!("deploy/{path}: {why}"))).unwrap()
    };
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let folder = std::fs::read_dir(deploy().join("workloads")).unwrap();
    let files = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: Vec<String> = files.filter(|file| file != "kustomization.yaml").collect();
    for file in &files {
        let linked = deploy().join("helm/usher/workloads").join(file).canonicalize();
        assert_eq!(
            linked.ok(),
            Some(deploy().join("workloads").join(file)),
            "{file} is not linked in the chart"
        );
    }
    let installed = strings(&yaml("workloads/kustomization.yaml")["resources"]);
    for each in BundledInterceptor::ALL {
        for part in ["role", "policies"] {
            let file = format!("{}-{part}.yaml", each.name());
            assert!(files.contains(&file), "there is no deploy/workloads/{file}");
            assert!(installed.contains(&file), "{file} is not in deploy/workloads/kustomization.yaml");
        }
        let limits = format!("{}-limits.yaml", each.name());
        assert_eq!(files.contains(&limits), installed.contains(&limits), "{limits} in the kustomization");
        let class = each.class();
        assert!(usher_api::names::PROJECT_CLASSES.contains(&class), "{class} is no class of the project");
    }
    let names = BundledInterceptor::ALL.map(|it| it.name().to_owned());
    assert_eq!(strings(&yaml("helm/usher/values.yaml")["interceptors"]), names, "the values of the chart");
    let schema = yaml("helm/usher/values.schema.json");
    assert_eq!(
        strings(&schema["properties"]["interceptors"]["items"]["enum"]),
        names,
        "the schema of the values"
    );
    // The chart gives the manager the flag where it has fewer names than there are such files.
    let policies = files.iter().filter(|file| file.ends_with("-policies.yaml"));
    assert_eq!(policies.count(), names.len(), "{files:?}");
}

#[test]
fn uninstalling_finds_what_gives_rights_by_its_label() {
    let mut found = 0;
    let mut folders = vec![deploy()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && file != "helm" {
                folders.push(path);
            } else if file.ends_with(".yaml") && file != "kustomization.yaml" && !path.is_dir() {
                let rights = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"];
                for object in manifests::objects(path.to_str().unwrap()).unwrap() {
                    if rights.iter().any(|kind| object["kind"] == *kind) {
                        found += 1;
                        let label = &object["metadata"]["labels"]["app.kubernetes.io/name"];
                        let name = &object["metadata"]["name"];
                        assert_eq!(label, "usher", "{name} of {}", path.display());
                    }
                }
            }
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn no_right_is_a_wildcard_and_secrets_are_read_by_name() {
    let mut rules = 0;
    for file in [
        "base/cluster-role.yaml",
        "base/role.yaml",
        "base/certificates-role.yaml",
        "base/metrics-role.yaml",
        "descheduler/role.yaml",
    ] {
        for object in manifests::objects(file).unwrap() {
            let key = format!("{} {}", object["kind"], object["metadata"]["name"]);
            for rule in object["rules"].as_array().into_iter().flatten() {
                rules += 1;
                assert!(!rule.to_string().contains('*'), "{key}: {rule}");
                let has = |field: &str, value: &str| {
                    rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == value))
                };
                if has("resources", "secrets") && !has("verbs", "create") {
                    assert!(rule["resourceNames"].is_array(), "{key}: {rule}");
                }
                assert!(!has("resources", "secrets") || !has("verbs", "list"), "{key}: {rule}");
                let deletes_others =
                    (has("resources", "pods") || has("resources", "nodes")) && has("verbs", "delete");
                assert!(!deletes_others, "the manager deletes neither pods nor nodes, {key}: {rule}");
            }
        }
    }
    assert!(rules > 5, "the roles were found");
}

#[test]
fn uninstalling_takes_all_classes_of_the_project_off_pods() {
    let script = std::fs::read_to_string(deploy().join("uninstall")).unwrap();
    let (_, list) = script.split_once("for class in ").unwrap();
    let (list, _) = list.split_once(';').unwrap();
    let mut listed: Vec<&str> = list.split_whitespace().filter(|word| *word != "\\").collect();
    let mut all = usher_api::names::PROJECT_CLASSES.to_vec();
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all);
}
