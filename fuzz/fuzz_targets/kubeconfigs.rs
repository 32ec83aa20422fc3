//! Any file as a kubeconfig: read, merged with another as `KUBECONFIG` does it, and its contexts listed.
#![no_main]

use kube::config::Kubeconfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (first, second) = text.split_once("\n---\n").unwrap_or((text, "current-context: c"));
    let Ok(first) = Kubeconfig::from_yaml(first) else { return };
    let names = |file: &Kubeconfig| file.contexts.iter().map(|context| context.name.clone()).collect::<Vec<_>>();
    let known = names(&first);
    let Ok(second) = Kubeconfig::from_yaml(second) else { return };
    if let Ok(both) = first.merge(second) {
        let all = names(&both);
        assert!(known.iter().all(|name| all.contains(name)));
    }
});
