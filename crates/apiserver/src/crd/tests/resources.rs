use super::*;

fn with(field: Value) -> Value {
    json!({"type": "object", "properties": {"x": field}})
}

#[test]
fn value_rules_that_no_recorded_case_breaks_have_the_servers_words() {
    let cases = [
        (json!({"type": "integer"}), json!(2.0), ""),
        (
            json!({"type": "string"}),
            json!(null),
            r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#,
        ),
        (json!({"type": "string", "nullable": true}), json!(null), ""),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(true),
            r#"spec.x: Invalid value: "": spec.x in body must be of type int32: """#,
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_i64),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.x"#,
        ),
        (
            json!({"type": "number", "maximum": 0.5}),
            json!(0.75),
            "spec.x: Invalid value: 0.75: spec.x in body should be less than or equal to 0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "spec.x: Invalid value: 7: spec.x in body should be a multiple of 5",
        ),
        (
            json!({"type": "string", "format": "uuid"}),
            json!("no"),
            r#"spec.x: Invalid value: "no": spec.x in body must be of type uuid: "no""#,
        ),
        (json!({"type": "string", "format": "unheard-of"}), json!("anything"), ""),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            r#"spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"a": "b", "c": "d"}),
            "spec.x: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            "spec.x: Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a": 1}),
            r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type string: "integer""#,
        ),
        (
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}),
            json!({}),
            "spec.x.a: Required value",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!("10%"), ""),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!(["a", "b", "a", "a"]),
            r#"spec.x[2]: Duplicate value: "a""#,
        ),
    ];
    for (schema, value, expected) in cases {
        let expected: Vec<String> = if expected.is_empty() { vec![] } else { vec![expected.to_string()] };
        assert_eq!(create_errors(with(schema.clone()), json!({"x": value})), expected, "{schema}");
    }
}

#[test]
fn a_fraction_is_no_integer_in_two_ways() {
    assert_eq!(
        create_errors(with(json!({"type": "integer"})), json!({"x": 1.5})),
        [
            r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.x"#,
        ]
    );
}

#[test]
fn alternatives_are_reported_at_no_field_with_the_best_match() {
    let one_of = json!({
        "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    });
    assert_eq!(
        create_errors(one_of.clone(), json!({"a": "1", "b": "2"})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]
    );
    assert_eq!(
        create_errors(one_of, json!({})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.a: Required value",
        ]
    );
    let not = json!({"type": "object", "properties": {"a": {"type": "string"}}, "not": {"required": ["a"]}});
    assert_eq!(
        create_errors(not, json!({"a": "1"})),
        [r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#]
    );
}

#[test]
fn a_resource_must_be_of_the_kind_and_version_asked_for() {
    let kind = kind_of(with(json!({"type": "string"})));
    let mut object = widget(json!({}));
    object["kind"] = "Gadget".into();
    object["apiVersion"] = "example.com/v2".into();
    assert_eq!(
        words(&kind.validate_create(&object)),
        [
            r#"kind: Invalid value: "Gadget": must be Widget"#,
            r#"apiVersion: Invalid value: "example.com/v2": must be example.com/v1"#,
        ]
    );
}

#[test]
fn unknown_fields_go_nulls_go_and_defaults_come() {
    let kind = kind_of(json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 3},
        "color": {"type": "string"},
        "maybe": {"type": "string", "nullable": true},
        "deep": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": true}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    }}));
    let mut object = widget(json!({
        "size": null, "color": null, "maybe": null, "extra": 1, "free": {"any": {"b": 1}, "known": {"a": "x", "b": 1}},
    }));
    object["metadata"]["bogus"] = 1.into();
    let unknown = decode(&kind, &mut object);
    assert_eq!(unknown, ["metadata.bogus", "spec.extra", "spec.free.known.b"]);
    assert_eq!(
        object["spec"],
        json!({"size": 3, "maybe": null, "deep": {"on": true}, "free": {"any": {"b": 1}, "known": {"a": "x"}}})
    );
    assert!(object["metadata"].get("bogus").is_none());
}

#[test]
fn unchanged_invalid_values_are_tolerated_on_update() {
    let kind = kind_of(json!({"type": "object", "properties": {
        "a": {"type": "integer", "maximum": 1}, "b": {"type": "integer", "maximum": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
        "atoms": {"type": "array", "items": {"type": "integer", "maximum": 1}},
    }}));
    let old = widget(json!({"a": 5, "b": 0, "list": [{"k": "x", "v": 9}], "atoms": [9]}));
    let new =
        widget(json!({"a": 5, "b": 7, "list": [{"k": "y", "v": 8}, {"k": "x", "v": 9}], "atoms": [9, 0]}));
    assert_eq!(
        words(&kind.validate_update(&old, &new)),
        [
            "spec.atoms[0]: Invalid value: 9: spec.atoms[0] in body should be less than or equal to 1",
            "spec.b: Invalid value: 7: spec.b in body should be less than or equal to 1",
            "spec.list[0].v: Invalid value: 8: spec.list[0].v in body should be less than or equal to 1",
        ]
    );
}

#[test]
fn status_updates_check_the_status_alone_and_name_fields_from_the_root() {
    let mut crd = definition(json!({"type": "object", "properties": {"a": {"type": "integer"}}}));
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let kind = CustomKind::parse(&crd).remove(0);
    let mut old = widget(json!({"a": "bad"}));
    old["status"] = json!({});
    let mut new = old.clone();
    new["status"] = json!({"n": "x"});
    assert_eq!(
        words(&kind.validate_status_update(&old, &new)),
        [r#"status.n: Invalid value: "string": n in body must be of type integer: "string""#]
    );
}

#[test]
fn a_negative_scale_is_refused_and_a_negative_count_too() {
    let mut crd = definition(json!({"type": "object", "properties": {"count": {"type": "integer"}}}));
    crd["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.count", "statusReplicasPath": ".status.ready", "labelSelectorPath": ".status.selector",
    });
    let kind = CustomKind::parse(&crd).remove(0);
    let mut object = widget(json!({"count": 3}));
    let mut scale = kind.scale_of(&object).unwrap();
    scale["spec"]["replicas"] = (-1).into();
    let refused = kind.apply_scale(&mut object, &scale).unwrap_err();
    assert_eq!(words(&refused), ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]);
    object["spec"]["count"] = (-2).into();
    assert_eq!(
        words(&kind.validate_create(&object)),
        [".spec.count: Invalid value: -2: should be a non-negative integer"]
    );
}

#[test]
fn json_paths_of_columns() {
    let object = json!({
        "metadata": {"annotations": {"a.b/c": "x"}},
        "status": {"conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}], "n": [1, 2]},
    });
    let cases = [
        (".metadata.annotations['a.b/c']", vec![json!("x")]),
        (r".metadata.annotations.a\.b/c", vec![json!("x")]),
        (r#".status.conditions[?(@.type=="Ready")].status"#, vec![json!("True")]),
        (".status.conditions[?(@.type=='A')].status", vec![json!("False")]),
        (".status.conditions[*].type", vec![json!("A"), json!("Ready")]),
        (".status.n[1]", vec![json!(2)]),
        (".status.n[-1]", vec![json!(2)]),
        (".status.missing.deep", vec![]),
        (".status[?(", vec![]),
    ];
    for (path, expected) in cases {
        let found: Vec<Value> = JsonPath::parse(path).all(&object).into_iter().cloned().collect();
        assert_eq!(found, expected, "{path}");
    }
}
