//! Manifests: from a file to objects in the cluster.

use std::path::Path;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use embedded_apiserver::Cluster;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt as _;

/// The objects of a YAML or JSON file, of all its documents and of lists in them.
pub fn read(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text, &file.display().to_string())
}

/// The objects of a text; `file` is what errors call it.
pub fn parse(text: &str, file: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|why| anyhow::anyhow!("{file} is no valid YAML: {}", one_line(&why.to_string())))?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(ref fields) if document["kind"] == "List" => {
                objects.extend(fields.get("items").and_then(Value::as_array).cloned().unwrap_or_default());
            }
            Value::Object(_) => objects.push(document),
            _ => bail!("{file} holds something that is no object"),
        }
    }
    Ok(objects)
}

/// What a parser says, without the excerpt that it draws.
fn one_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown error")
}

/// Creates an object where its kind and namespace say.
pub async fn create(cluster: &Cluster, object: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let name = text(&object["metadata"]["name"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(row) = cluster.served_kind(&api_version, &kind) else {
        bail!("no kind {kind:?} in version {api_version:?} is served here");
    };
    let prefix = if group.is_empty() { "/api".to_string() } else { format!("/apis/{group}") };
    let namespace = match text(&object["metadata"]["namespace"]) {
        _ if !row.namespaced => String::new(),
        none if none.is_empty() => "/namespaces/default".to_string(),
        namespace => format!("/namespaces/{namespace}"),
    };
    let request = Request::post(format!("{prefix}/{version}{namespace}/{}", row.plural))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "usher-sandbox")
        .body(Full::new(Bytes::from(object.to_string())))
        .with_context(|| format!("{kind} {name:?} has no valid name or namespace"))?;
    let Ok(response) = cluster.service().oneshot(request).await;
    let code = response.status().as_u16();
    let Ok(body) = response.into_body().collect().await;
    if code >= 300 {
        let status: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        bail!("{kind} {name:?} was refused: {}", status["message"].as_str().unwrap_or("no reason given"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("usher-manifest-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    fn read_text(name: &str, text: &str) -> anyhow::Result<Vec<Value>> {
        let path = file(name, text);
        let objects = read(&path);
        std::fs::remove_file(path).unwrap();
        objects
    }

    #[test]
    fn all_documents_and_lists_of_a_file_count() {
        let text = "---\nkind: A\n---\nkind: List\nitems:\n- kind: B\n- kind: C\n";
        let kinds: Vec<Value> =
            read_text("many", text).unwrap().iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
    }

    #[test]
    fn what_cannot_be_read_is_said_in_one_line() {
        let broken = read_text("broken", "a: [1,\n").unwrap_err().to_string();
        assert!(broken.contains("is no valid YAML") && !broken.contains('\n'), "{broken}");
        let scalar = read_text("scalar", "just text\n").unwrap_err().to_string();
        assert!(scalar.ends_with("holds something that is no object"), "{scalar}");
        let missing = read(Path::new("no/such/file")).unwrap_err().to_string();
        assert_eq!(missing, "cannot read no/such/file");
    }
}
