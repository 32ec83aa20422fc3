//! The definitions in `deploy/crds` are those of the types, and no rule in them goes without a case.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../examples/crdgen.rs"]
mod crdgen;

use std::collections::BTreeSet;
use std::path::Path;

use kube::core::{CustomResourceExt, Resource};
use serde_json::{Value, json};
use usher_api::{EvictionRequest, NodeMaintenance, crd::crds};

#[test]
fn the_files_are_the_ones_generated_from_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut expected = BTreeSet::new();
    for (file, crd) in crds() {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let generated = crdgen::render(&crd).unwrap();
        assert!(
            text == generated,
            "{file} is out of date: cargo run -p usher-api --example crdgen deploy/crds"
        );
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            without_float(read),
            without_float(serde_json::to_value(&crd).unwrap()),
            "{file} reads back"
        );
        expected.insert(file.to_owned());
    }
    let found = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
}

#[test]
fn groups_names_and_scopes_are_those_of_the_design() {
    let er = EvictionRequest::crd();
    assert_eq!(er.metadata.name.as_deref(), Some("evictionrequests.evictionrequest.coordination.k8s.io"));
    assert_eq!(
        (er.spec.scope.as_str(), er.spec.names.short_names),
        ("Namespaced", Some(vec!["er".to_owned()]))
    );
    let nm = NodeMaintenance::crd();
    assert_eq!(nm.metadata.name.as_deref(), Some("nodemaintenances.nodemaintenance.k8s.io"));
    assert_eq!((nm.spec.scope.as_str(), nm.spec.names.short_names), ("Cluster", Some(vec!["nm".to_owned()])));

    use usher_api::names::{EVICTION_REQUEST_GROUP, NODE_MAINTENANCE_GROUP, VERSION};
    assert_eq!(EvictionRequest::api_version(&()), format!("{EVICTION_REQUEST_GROUP}/{VERSION}"));
    assert_eq!(NodeMaintenance::api_version(&()), format!("{NODE_MAINTENANCE_GROUP}/{VERSION}"));
}

#[test]
fn protected_groups_carry_the_approval_annotation_and_status_is_a_subresource() {
    for (file, crd) in crds() {
        let approved = &crd.metadata.annotations.unwrap()["api-approved.kubernetes.io"];
        assert!(approved.starts_with("unapproved, "), "{file}: {approved}");
        let version = &crd.spec.versions[0];
        assert!(version.subresources.as_ref().unwrap().status.is_some(), "{file}");
    }
}

#[test]
fn columns_point_at_fields_that_exist() {
    for (file, crd) in crds() {
        let crd = serde_json::to_value(crd).unwrap();
        let version = &crd["spec"]["versions"][0];
        for column in version["additionalPrinterColumns"].as_array().unwrap() {
            let path = column["jsonPath"].as_str().unwrap();
            if path.starts_with(".metadata.") {
                continue;
            }
            let plain = path.split('[').next().unwrap();
            let pointer = plain.replace('.', "/properties/");
            let field = version["schema"]["openAPIV3Schema"].pointer(&pointer);
            assert!(field.is_some(), "{file}: {path}");
        }
    }
}

#[test]
fn every_cel_rule_has_a_message_and_a_case_that_it_rejects() {
    let cases = crate::rule_cases::load();
    for (_, crd) in crds() {
        let kind = crd.spec.names.kind.clone();
        let mut rules = Vec::new();
        collect_rules(&serde_json::to_value(crd).unwrap(), &mut rules);
        assert!(!rules.is_empty());
        for (rule, message) in rules {
            let message = message.unwrap_or_else(|| panic!("{rule} has no message"));
            let rejected = cases.iter().filter(|c| c.kind() == kind).filter_map(|c| c.rejected.as_ref());
            assert!(
                rejected.into_iter().any(|fragment| *fragment == message),
                "{kind}: no case for: {message}"
            );
        }
    }
}

#[test]
fn cases_are_well_formed() {
    let cases = crate::rule_cases::load();
    let names: BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "names are unique");
    for case in &cases {
        let requests = [&case.create, &case.patch, &case.patch_status].into_iter().flatten().count();
        assert_eq!(requests, 1, "{}: one request", case.name);
        assert_eq!(case.create.is_none(), case.given.is_some(), "{}: a patch needs an object", case.name);
        assert_ne!(case.accepted, case.rejected.is_some(), "{}: one outcome", case.name);
        assert!(["EvictionRequest", "NodeMaintenance"].contains(&case.kind()), "{}", case.name);
    }
}

#[test]
fn accepted_objects_are_read_by_the_types_without_loss() {
    for case in crate::rule_cases::load() {
        let Some(object) = case.create.or(case.given).filter(|_| case.accepted) else { continue };
        let mut written = match object["kind"].as_str().unwrap() {
            "EvictionRequest" => round_trip::<EvictionRequest>(&object),
            _ => round_trip::<NodeMaintenance>(&object),
        };
        // What the object left out is written as the default the API server would fill in.
        drop_what_is_not_in(&mut written, &object);
        assert_eq!(written, object, "{}", case.name);
    }
}

fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

fn drop_what_is_not_in(written: &mut Value, object: &Value) {
    match (written, object) {
        (Value::Object(written), Value::Object(object)) => {
            written.retain(|key, _| object.contains_key(key));
            for (key, value) in written {
                drop_what_is_not_in(value, &object[key]);
            }
        }
        (Value::Array(written), Value::Array(object)) => {
            for (value, original) in written.iter_mut().zip(object) {
                drop_what_is_not_in(value, original);
            }
        }
        _ => {}
    }
}

fn collect_rules(value: &Value, rules: &mut Vec<(String, Option<String>)>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match (key.as_str(), field) {
                    ("x-kubernetes-validations", Value::Array(found)) => {
                        rules.extend(found.iter().map(|rule| {
                            (
                                rule["rule"].as_str().unwrap().to_owned(),
                                rule["message"].as_str().map(str::to_owned),
                            )
                        }))
                    }
                    _ => collect_rules(field, rules),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_rules(item, rules)),
        _ => {}
    }
}

/// YAML writes the bounds as `600.0`; an integer is the same bound.
fn without_float(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Object(fields) => {
            for field in fields.values_mut() {
                *field = without_float(field.take());
            }
            value
        }
        Value::Array(items) => {
            for item in items.iter_mut() {
                *item = without_float(item.take());
            }
            value
        }
        _ => value,
    }
}
