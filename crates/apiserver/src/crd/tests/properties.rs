use super::*;
use proptest::prelude::*;

fn kind() -> CustomKind {
    kind_of(json!({"type": "object", "properties": {
        "a": {"type": "integer", "default": 1},
        "b": {"type": "string", "nullable": true},
        "c": {"type": "object", "default": {}, "properties": {"a": {"type": "boolean", "default": false}}},
        "d": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer", "default": 2}}}},
        "e": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
    }}))
}

/// Any JSON, with names that often meet the schema's.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5_i64..5).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-g]", inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn decoding_twice_changes_nothing_more(spec in any_json()) {
        let kind = kind();
        let mut once = widget(spec);
        decode(&kind, &mut once);
        let mut twice = once.clone();
        prop_assert_eq!(decode(&kind, &mut twice), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaults_never_add_errors(spec in any_json()) {
        let kind = kind();
        let mut object = widget(spec);
        kind.prune(&mut object);
        let before = kind.validate_create(&object).len();
        kind.default(&mut object);
        prop_assert!(kind.validate_create(&object).len() <= before);
    }

    #[test]
    fn an_object_may_always_stay_as_it_is(spec in any_json()) {
        let kind = kind();
        let object = widget(spec);
        prop_assert_eq!(kind.validate_update(&object, &object), Vec::new());
    }
}
