//! What is said of policies that are wrong, or hardly meant.

use super::*;

const HEAD: &str = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n";

/// What is said of a policy with these lines from line 3 on.
fn said(lines: &str) -> Vec<String> {
    let errors = Policy::read(&format!("{HEAD}{lines}\n")).map_or_else(|errors| errors.0, |_| Vec::new());
    errors.iter().map(ToString::to_string).collect()
}

/// What is said of the args of a plugin, which are on line 3.
fn said_of(plugin: &str, args: &str) -> Vec<String> {
    said(&format!("profiles: [{{name: p, pluginConfig: [{{name: {plugin}, args: {{{args}}}}}]}}]"))
}

#[test]
fn yaml_that_no_policy_is_written_in_is_called_what_it_is() {
    let bomb: String = (1..9)
        .map(|level| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(", ")))
        .collect();
    let chain: String = (1..100).map(|level| format!("a{level}: &a{level} [*a{}]\n", level - 1)).collect();
    let cases = [
        ("maxNoOfPodsToEvictTotal: .nan".to_owned(), "line 3: .nan is not a finite number"),
        ("maxNoOfPodsToEvictTotal: -.inf".to_owned(), "line 3: -.inf is not a finite number"),
        ("maxNoOfPodsToEvictTotal: 1e999".to_owned(), "line 3: 1e999 is not a finite number"),
        (
            format!("a0: &a0 [x]\n{bomb}"),
            "line 9: the file is too large for a policy, with what aliases in it stand for",
        ),
        (format!("a0: &a0 [x]\n{chain}"), "this is nested 21 levels deep"),
        ("a: &a [*a]".to_owned(), "an alias names what it is a part of"),
        (format!("a: {}{}", "[".repeat(100), "]".repeat(100)), "line 3: this is nested 21 levels deep"),
        (format!("a: &a x\nb: [{}]", "*a, ".repeat(60_000)), "aliases stand for more than a policy can have"),
        (format!("a: [{}]", "x, ".repeat(300_000)), "the file is too large for a policy"),
    ];
    for (lines, part) in cases {
        let found = said(&lines);
        let start: String = lines.chars().take(60).collect();
        assert!(found.len() == 1 && found[0].contains(part), "{start}: {found:?}");
    }
}

#[test]
fn a_number_that_is_too_large_or_small_is_refused_with_its_range() {
    let total = "line 3: maxNoOfPodsToEvictTotal: ";
    let unsigned = "is out of range: this must be a whole number from 0 to 18446744073709551615";
    let cases = [
        ("-1", format!("{total}-1 {unsigned}")),
        ("18446744073709551616", format!("{total}18446744073709551616 {unsigned}")),
        ("1e30", format!("{total}1000000000000000000000000000000 {unsigned}")),
        ("1.5", format!("{total}this must be a whole number, and is 1.5")),
        ("'3'", format!("{total}this must be a whole number, and is a text")),
    ];
    for (number, message) in cases {
        assert_eq!(said(&format!("maxNoOfPodsToEvictTotal: {number}")), [message]);
    }
    let digits = "9".repeat(50);
    assert!(said(&format!("maxNoOfPodsToEvictTotal: {digits}"))[0].ends_with(unsigned));
    for (plugin, args, part) in [
        ("RemoveFailedPods", "exitCodes: [4294967296]", "from -2147483648 to 2147483647"),
        ("RemoveFailedPods", "exitCodes: [one]", "must be a whole number, and is a text"),
        ("DefaultEvictor", "minPodAge: -1h", "-1h is negative, and no pod is that young"),
    ] {
        let found = said_of(plugin, args);
        assert!(found.len() == 1 && found[0].contains(part), "{args}: {found:?}");
    }
    assert!(said_of("DefaultEvictor", "minPodAge: 0s").is_empty());
}

#[test]
fn who_knows_a_key_from_elsewhere_is_told_what_takes_its_place() {
    let top = "line 3: the top level of the policy takes no key";
    for (key, hint) in [
        ("maxNoOfPodsEvacuationsTotal", " (did you mean maxNoOfPodsToEvictTotal? It counts requests too)"),
        ("deschedulingInterval", " (this is a flag of the descheduler: --descheduling-interval)"),
        ("dryRun", " (this is a flag of the descheduler: --dry-run)"),
        ("profile", " (did you mean profiles?)"),
        ("knd", " (did you mean kind?)"),
        // Everything is near to what is as short as that.
        ("k", ""),
        ("x", ""),
        ("ä", ""),
    ] {
        assert_eq!(said(&format!("{key}: 1")), [format!("{top} {key}{hint}")]);
    }
    let spread =
        said_of("RemovePodsViolatingTopologySpreadConstraint", "includeSoftConstraints: true").join("\n");
    assert!(
        spread.ends_with("(this is older: write constraints: [DoNotSchedule, ScheduleAnyway])"),
        "{spread}"
    );
}

#[test]
fn a_config_map_in_place_of_the_policy_in_it_is_called_that() {
    let map = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: policy}}\n{data}");
    let error = |key: &str| {
        format!(
            "line 2: this is a ConfigMap, and not the policy that is in it (give the text under data, {key}, by itself)"
        )
    };
    for (data, key) in [
        ("data: {policy.yaml: x}", "policy.yaml"),
        ("data: {mine.yaml: x}", "mine.yaml"),
        ("data: {a: x, b: y}", "policy.yaml"),
        ("", "policy.yaml"),
    ] {
        assert_eq!(Policy::read(&map(data)).unwrap_err().to_string(), error(key));
    }
}

#[test]
fn a_policy_that_can_do_nothing_is_taken_with_a_remark() {
    let enabled = "plugins: {deschedule: {enabled: [RemoveFailedPods]}}";
    let good = format!("{{name: p, pluginConfig: [{{name: RemoveFailedPods}}], {enabled}}}");
    let configured = "{name: q, pluginConfig: [{name: RemoveFailedPods}]}";
    let none = "profiles: there is no profile, so that nothing is descheduled";
    let idle = "no plugin is enabled, so that this profile does nothing";
    for (lines, remarks) in [
        (String::new(), vec![format!("line 1: {none}")]),
        ("profiles: []".to_owned(), vec![format!("line 3: {none}")]),
        (format!("profiles:\n- {good}\n- {configured}"), vec![format!("line 5: profiles[1]: {idle}")]),
        (format!("profiles: [{good}]"), vec![]),
    ] {
        let policy = Policy::read(&format!("{HEAD}{lines}\n")).unwrap();
        let found: Vec<String> = policy.remarks.iter().map(ToString::to_string).collect();
        assert_eq!(found, remarks, "{lines}");
    }
}
