use super::*;
use jiff::Timestamp;

fn changed(pointer: &str, value: Value) -> Vec<String> {
    let mut crd = definition(json!({"type": "object"}));
    *crd.pointer_mut(pointer).unwrap() = value;
    words(&validate_definition(&crd))
}

#[test]
fn names_scope_and_versions_of_a_definition() {
    let cases = [
        (
            "/metadata/name",
            json!("gadgets.example.com"),
            r#"metadata.name: Invalid value: "gadgets.example.com": must be spec.names.plural+"."+spec.group"#,
        ),
        (
            "/spec/scope",
            json!("World"),
            r#"spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced""#,
        ),
        ("/spec/scope", json!(""), "spec.scope: Required value"),
        ("/spec/names/kind", json!(""), "spec.names.kind: Required value"),
        (
            "/spec/names/listKind",
            json!("Widget"),
            r#"spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same"#,
        ),
        ("/spec/versions/0/schema", json!({}), "spec.versions[0].schema.openAPIV3Schema: Required value"),
        (
            "/spec/conversion/strategy",
            json!("Magic"),
            r#"spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook""#,
        ),
    ];
    for (pointer, value, expected) in cases {
        assert_eq!(changed(pointer, value), [expected], "{pointer}");
    }
    let no_storage = changed("/spec/versions/0/storage", json!(false));
    assert!(
        no_storage[0].ends_with("must have exactly one version marked as storage version"),
        "{no_storage:?}"
    );
}

#[test]
fn schemas_must_be_structural() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    let cases = [
        (json!({}), format!("{at}.type: Required value: must not be empty for specified object fields")),
        (json!({"type": "array"}), format!("{at}.items: Required value: must be specified")),
        (
            json!({"type": "array", "items": {}}),
            format!("{at}.items.type: Required value: must not be empty for specified array items"),
        ),
        (
            json!({"type": "object", "anyOf": [{"type": "object"}]}),
            format!("{at}.anyOf[0].type: Forbidden: must be empty to be structural"),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
            format!(
                "{at}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
            ),
        ),
        (json!({"type": "object", "$ref": "#/x"}), format!("{at}.$ref: Forbidden: $ref is not supported")),
        (
            json!({"type": "money"}),
            format!(
                r#"{at}.type: Unsupported value: "money": supported values: "array", "boolean", "integer", "number", "object", "string""#
            ),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            format!(
                "{at}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
            ),
        ),
        (
            json!({"type": "string", "x-kubernetes-preserve-unknown-fields": false}),
            format!(
                "{at}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"
            ),
        ),
        (
            json!({"type": "integer", "default": "x"}),
            format!(r#"{at}.default: Invalid value: "string":  in body must be of type integer: "string""#),
        ),
        (
            json!({"type": "object", "default": {"a": 1}}),
            format!(r#"{at}.default: Invalid value: {{"a":1}}: must not have unknown fields"#),
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}),
            format!(
                "{at}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            ),
        ),
        (
            json!({"type": "array", "items": {"type": "object", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
            format!(
                r#"{at}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {at}"#
            ),
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}]}),
            format!("{at}.x-kubernetes-validations[0].rule: Required value: rule is not specified"),
        ),
    ];
    for (schema, expected) in cases {
        let found = words(&validate_definition(&definition(schema.clone())));
        assert_eq!(found, [expected], "{schema}");
    }
}

#[test]
fn rules_that_do_not_compile_are_refused() {
    for rule in ["self.a ==", "object.spec.a == 1"] {
        let crd = definition(json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]}));
        let found = words(&validate_definition(&crd));
        let start = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
        assert!(found[0].contains("compilation failed: "), "{found:?}");
    }
}

#[test]
fn the_projects_own_groups_need_approval() {
    let mut crd = definition(json!({"type": "object"}));
    crd["metadata"]["name"] = "widgets.stuff.k8s.io".into();
    crd["spec"]["group"] = "stuff.k8s.io".into();
    assert_eq!(
        words(&validate_definition(&crd)),
        [
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \
          \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"
        ]
    );
    crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, experimental"});
    assert_eq!(words(&validate_definition(&crd)), Vec::<String>::new());
}

#[test]
fn what_storage_depends_on_is_immutable() {
    let mut old = definition(json!({"type": "object"}));
    old["metadata"]["resourceVersion"] = "1".into();
    old["status"] = compute_status(&old, &ClaimedNames::default(), Timestamp::UNIX_EPOCH);
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["names"]["kind"] = "Gadget".into();
    new["spec"]["versions"][0]["name"] = "v2".into();
    let found = words(&validate_definition_update(&old, &new));
    assert_eq!(found[0], r#"spec.scope: Invalid value: "Cluster": field is immutable"#);
    assert_eq!(found[1], r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#);
    assert!(
        found[2].starts_with(
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was"#
        )
    );
}

#[test]
fn a_definition_whose_names_are_free_is_established() {
    let crd = definition(json!({"type": "object"}));
    let status = compute_status(&crd, &ClaimedNames::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(status["acceptedNames"], crd["spec"]["names"]);
    assert_eq!(status["storedVersions"], json!(["v1"]));
    assert_eq!(
        status["conditions"],
        json!([
            {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
                "lastTransitionTime": "1970-01-01T00:00:00Z"},
            {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted", "lastTransitionTime": "1970-01-01T00:00:00Z"},
        ])
    );
}

#[test]
fn a_definition_whose_names_are_taken_waits() {
    let crd = definition(json!({"type": "object"}));
    let claimed = ClaimedNames { resources: vec!["wd".into()], kinds: vec!["Widget".into()] };
    let mut crd = crd;
    crd["status"] = compute_status(&crd, &claimed, Timestamp::UNIX_EPOCH);
    assert!(!is_established(&crd));
    assert_eq!(crd["status"]["conditions"][0]["reason"], "KindConflict");
    assert_eq!(crd["status"]["conditions"][0]["message"], "\"Widget\" is already in use");
    assert_eq!(crd["status"]["conditions"][1]["reason"], "NotAccepted");
    crd["status"] = compute_status(&crd, &ClaimedNames::default(), Timestamp::UNIX_EPOCH);
    assert!(is_established(&crd));
}
