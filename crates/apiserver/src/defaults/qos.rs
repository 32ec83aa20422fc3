//! A pod's quality of service.

use serde_json::{Map, Value};

/// `Guaranteed` if every container limits cpu and memory and requests as much, `BestEffort` if none asks for
/// either, else `Burstable`. Resources given for the whole pod stand for those of its containers.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let whole = &spec["resources"];
    if has_any(whole) {
        return class([whole].into_iter());
    }
    let of =
        |list: &str| spec[list].as_array().into_iter().flatten().map(|c| &c["resources"]).collect::<Vec<_>>();
    let all = of("containers").into_iter().chain(of("initContainers"));
    class(all)
}

fn class<'a>(all: impl Iterator<Item = &'a Value>) -> &'static str {
    let (mut asked, mut guaranteed) = (false, true);
    for resources in all {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(resources, "requests", name), amount(resources, "limits", name));
            asked |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (asked, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn has_any(resources: &Value) -> bool {
    let listed = |kind: &str| resources[kind].as_object().is_some_and(|r: &Map<_, _>| !r.is_empty());
    listed("requests") || listed("limits")
}

/// The amount in plain units; zero counts as none.
fn amount(resources: &Value, kind: &str, name: &str) -> Option<f64> {
    let amount = match &resources[kind][name] {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => parse(text)?,
        _ => return None,
    };
    (amount > 0.0).then_some(amount)
}

fn parse(quantity: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 16] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    let (suffix, factor) = SUFFIXES.iter().find(|(suffix, _)| quantity.ends_with(suffix))?;
    Some(quantity.strip_suffix(suffix)?.parse::<f64>().ok()? * factor)
}
