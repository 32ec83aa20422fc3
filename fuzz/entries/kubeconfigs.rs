//! Any file as a kubeconfig: read, merged with another as `KUBECONFIG` does it, and its contexts listed.

use kube::config::Kubeconfig;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (first, second) = text.split_once("\n---\n").unwrap_or((text, "current-context: c"));
    let Ok(first) = Kubeconfig::from_yaml(first) else { return };
    let names =
        |file: &Kubeconfig| file.contexts.iter().map(|context| context.name.clone()).collect::<Vec<_>>();
    let known = names(&first);
    let Ok(second) = Kubeconfig::from_yaml(second) else { return };
    if let Ok(both) = first.merge(second) {
        let all = names(&both);
        assert!(known.iter().all(|name| all.contains(name)));
    }
}
