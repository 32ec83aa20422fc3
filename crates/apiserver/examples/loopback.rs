//! An API server on a loopback port, for kubectl. It holds objects, and nobody acts on them: a Deployment gets no pods here,
//! for that put `cluster-simulator` beside it.
//!
//! ```sh
//! cargo run -p embedded-apiserver --example loopback > /tmp/kubeconfig
//! kubectl --kubeconfig /tmp/kubeconfig create configmap greeting --from-literal=hello=world
//! ```

use std::collections::HashMap;

use embedded_apiserver::{Cluster, MASTERS, Options, User};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let administrator = User { name: "admin".into(), groups: vec![MASTERS.into()], ..User::default() };
    let tokens = HashMap::from([("secret".to_string(), administrator)]);
    let cluster = Cluster::new(Options { tokens, ..Options::default() });
    let serving = cluster.serve_https().await?;
    println!("{}", serving.kubeconfig_for("secret"));
    eprintln!("serving on {} until this process is ended", serving.url());
    std::future::pending().await
}
