use super::*;

fn ruled(rules: Value) -> Value {
    json!({"type": "object", "properties": {
        "a": {"type": "integer"}, "b": {"type": "integer"}, "name": {"type": "string"},
        "when": {"type": "string", "format": "date-time"},
    }, "x-kubernetes-validations": rules})
}

#[test]
fn failed_rules_show_the_message_and_no_object() {
    let cases = [
        (json!([{"rule": "self.a < self.b", "message": "a before b"}]), "spec: Invalid value: a before b"),
        (json!([{"rule": "self.a < self.b"}]), "spec: Invalid value: failed rule: self.a < self.b"),
        (
            json!([{"rule": "self.a < self.b", "messageExpression": "'a is ' + string(self.a)"}]),
            "spec: Invalid value: a is 5",
        ),
        (
            json!([{"rule": "self.a < self.b", "message": "m", "reason": "FieldValueForbidden"}]),
            "spec: Forbidden: m",
        ),
        (
            json!([{"rule": "self.a < self.b", "message": "m", "reason": "FieldValueRequired", "fieldPath": ".b"}]),
            "spec.b: Required value: m",
        ),
        (
            json!([{"rule": "self.missing == 1"}]),
            "spec: Invalid value: \"object\": no such key: missing evaluating rule: self.missing == 1",
        ),
        (
            json!([{"rule": "has(self.name) && self.name == 'w'", "message": "named"}]),
            "spec: Invalid value: named",
        ),
    ];
    for (rules, expected) in cases {
        assert_eq!(create_errors(ruled(rules.clone()), json!({"a": 5, "b": 1})), [expected], "{rules}");
    }
}

#[test]
fn scalar_rules_show_the_value_and_map_values_are_named_by_key() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self % 2 == 0", "message": "even"}]},
        "m": {"type": "object", "additionalProperties": {"type": "integer",
            "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]}},
        "l": {"type": "array", "items": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self.startsWith('a')", "message": "a"}]}},
    }});
    assert_eq!(
        create_errors(schema, json!({"n": 3, "m": {"k": 0}, "l": ["ab", "b"]})),
        [
            r#"spec.l[1]: Invalid value: "b": a"#,
            "spec.m[k]: Invalid value: 0: positive",
            "spec.n: Invalid value: 3: even",
        ]
    );
}

#[test]
fn transition_rules_run_on_updates_only() {
    let kind = kind_of(ruled(json!([{"rule": "self.a == oldSelf.a", "message": "a is immutable"}])));
    let (old, new) = (widget(json!({"a": 1})), widget(json!({"a": 2})));
    assert_eq!(words(&kind.validate_create(&new)), Vec::<String>::new());
    assert_eq!(words(&kind.validate_update(&old, &new)), ["spec: Invalid value: a is immutable"]);
    assert_eq!(words(&kind.validate_status_update(&old, &new)), ["spec: Invalid value: a is immutable"]);
}

#[test]
fn optional_old_self_runs_on_create_too() {
    let rule = json!([{"rule": "oldSelf.hasValue() || self.a == 0", "message": "starts at zero", "optionalOldSelf": true}]);
    let kind = kind_of(ruled(rule));
    assert_eq!(
        words(&kind.validate_create(&widget(json!({"a": 2})))),
        ["spec: Invalid value: starts at zero"]
    );
    assert_eq!(
        words(&kind.validate_update(&widget(json!({"a": 1})), &widget(json!({"a": 2})))),
        Vec::<String>::new()
    );
}

#[test]
fn items_of_map_lists_meet_their_old_selves_by_key() {
    let kind = kind_of(json!({"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "never falls"}]},
    }}}));
    let old = widget(json!({"list": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}));
    let new = widget(json!({"list": [{"k": "b", "v": 2}, {"k": "c", "v": 0}, {"k": "a", "v": 4}]}));
    assert_eq!(words(&kind.validate_update(&old, &new)), ["spec.list[2]: Invalid value: never falls"]);
}

#[test]
fn broken_rules_on_unchanged_parts_are_tolerated() {
    let kind = kind_of(json!({"type": "object", "properties": {
        "left": ruled(json!([{"rule": "self.a < self.b", "message": "left"}])),
        "right": ruled(json!([{"rule": "self.a < self.b", "message": "right"}])),
    }}));
    let bad = json!({"a": 5, "b": 1});
    let old = widget(json!({"left": bad, "right": bad}));
    let new = widget(json!({"left": bad, "right": {"a": 6, "b": 1}}));
    assert_eq!(words(&kind.validate_update(&old, &new)), ["spec.right: Invalid value: right"]);
}

#[test]
fn rules_wait_until_the_shape_is_right() {
    assert_eq!(
        create_errors(ruled(json!([{"rule": "self.a < self.b"}])), json!({"a": "x", "b": 1})),
        [
            r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct \
             the existing errors to complete validation",
        ]
    );
}

#[test]
fn root_rules_see_the_names_and_times_are_times() {
    let mut crd = definition(ruled(json!([])));
    let root = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    root["x-kubernetes-validations"] = json!([
        {"rule": "self.metadata.name == self.spec.name", "message": "name agrees"},
        {"rule": "self.spec.when > timestamp('2026-01-01T00:00:00Z')", "message": "not before 2026"},
    ]);
    assert_eq!(words(&validate_definition(&crd)), Vec::<String>::new());
    let kind = CustomKind::parse(&crd).remove(0);
    let bad = widget(json!({"name": "other", "when": "2025-06-01T00:00:00Z"}));
    assert_eq!(
        words(&kind.validate_create(&bad)),
        ["<nil>: Invalid value: name agrees", "<nil>: Invalid value: not before 2026"]
    );
    let good = widget(json!({"name": "w", "when": "2026-06-01T00:00:00+02:00"}));
    assert_eq!(words(&kind.validate_create(&good)), Vec::<String>::new());
}
