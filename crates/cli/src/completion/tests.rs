//! What is offered after which words.

use clap::{CommandFactory as _, Parser};

use super::{Kind, Wanted, answer, read};
use crate::Environment;

#[derive(Parser)]
#[command(name = "usher")]
struct Typed {
    #[command(subcommand)]
    _command: crate::Command,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

/// The last word is the one that is being typed.
fn wanted(line: &str) -> Wanted {
    read(&Typed::command(), &words(line)).wanted
}

async fn offered(line: &str) -> Vec<String> {
    let text = answer(&Typed::command(), &words(line), &Environment::plain()).await;
    text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_string()).collect()
}

#[test]
fn names_are_offered_where_a_command_wants_them() {
    for (line, kind) in [
        ("evict ", Kind::Pods),
        ("evict web-1 we", Kind::Pods),
        ("cancel --force ", Kind::Pods),
        ("explain ", Kind::PodsAndNodes),
        ("explain node ", Kind::Nodes),
        ("explain pods ", Kind::Pods),
        ("explain deploy ", Kind::Deployments),
        ("drain n1 ", Kind::Nodes),
        ("drain --wait=false --reason kernel ", Kind::Nodes),
        ("uncordon ", Kind::Nodes),
        ("maintenance describe ", Kind::Maintenances),
        ("nm drain dr", Kind::Maintenances),
        ("evict -n ", Kind::Namespaces),
        ("evict --namespace = ", Kind::Namespaces),
        ("evict --namespace=sh", Kind::Namespaces),
        ("requests --context ", Kind::Contexts),
    ] {
        assert_eq!(wanted(line), Wanted::Names(kind), "{line:?}");
    }
    assert_eq!(wanted("drain --plan "), Wanted::Files);
    assert_eq!(wanted("maintenance describe m "), Wanted::Words(Vec::new()), "it takes one");
}

#[test]
fn the_cluster_and_namespace_of_the_line_are_asked() {
    let line = read(&Typed::command(), &words("evict -nshop --context = blue --kubeconfig=k.yaml web-1 w"));
    let connection = line.connection;
    assert_eq!(connection.namespace.as_deref(), Some("shop"));
    assert_eq!(connection.context.as_deref(), Some("blue"));
    assert_eq!(connection.kubeconfig.as_deref(), Some(std::path::Path::new("k.yaml")));
    assert_eq!((line.typed, line.begun), (vec!["web-1".to_string()], "w".to_string()));
}

#[tokio::test]
async fn commands_flags_and_values_are_offered_by_their_beginning() {
    assert_eq!(offered("e").await, ["evict", "explain", ":4"]);
    assert_eq!(offered("maintenance co").await, ["cordon", "complete", ":4"]);
    assert_eq!(offered("drain --d").await, ["--delete-emptydir-data", "--dry-run", ":4"]);
    assert_eq!(offered("requests -o w").await, ["wide", ":4"]);
    assert_eq!(offered("requests --output=j").await, ["--output=json", ":4"]);
    assert_eq!(offered("drain --plan ").await, [":0"]);
}
