//! Drains of so many nodes that they are followed by what the manager counts: people see the same, and the command receives little.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use http_body_util::BodyExt as _;

/// What a command has received.
#[derive(Default)]
struct Received {
    /// How often it has asked for pods, by a list or a watch.
    asked_for_pods: AtomicUsize,
    /// Of pods and requests.
    bytes: AtomicUsize,
    /// How often it has asked for what: `list nodes`, `watch evictionrequests`. Each page of a list counts.
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Received {
    fn count(&self, request: &http::Request<kube::client::Body>) {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let what = path.rsplit('/').next().unwrap_or_default();
        let verb = match request.method() {
            &http::Method::GET if query.contains("watch=true") => "watch",
            &http::Method::GET => "list",
            method => method.as_str(),
        };
        *self.asked.lock().unwrap().entry(format!("{verb} {what}")).or_default() += 1;
    }

    fn asked(&self) -> BTreeMap<String, usize> {
        self.asked.lock().unwrap().clone()
    }
}

/// A person whose commands are told what they receive.
fn metered(scene: &Scene) -> (Environment, Arc<Received>) {
    let received = Arc::<Received>::default();
    let (inner, meter) = (scene.witness.client("person"), received.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (inner, meter) = (inner.clone(), meter.clone());
        async move {
            meter.count(&request);
            let path = request.uri().path();
            let (is_pods, is_requests) = (path.ends_with("/pods"), path.ends_with("/evictionrequests"));
            meter.asked_for_pods.fetch_add(usize::from(is_pods), Ordering::Relaxed);
            let response = inner.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| {
                body.map_frame(move |frame| {
                    let data = frame.data_ref().filter(|_| is_pods || is_requests);
                    let bytes = data.map_or(0, bytes::Bytes::len);
                    meter.bytes.fetch_add(bytes, Ordering::Relaxed);
                    frame
                })
            }))
        }
    });
    let cluster = Some(kube::Client::new(service, "default"));
    (Environment { cluster, ..scene.environment() }, received)
}

/// Names of the first nodes.
fn nodes(count: usize) -> String {
    (1..=count).map(|number| format!("n{number}")).collect::<Vec<_>>().join(" ")
}

async fn pods_on(scene: &Scene, count: usize) -> usize {
    let all = scene.get("/api/v1/pods").await.unwrap();
    let on_them = |pod: &&Value| {
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        node[1..].parse::<usize>().unwrap() <= count
    };
    all["items"].as_array().unwrap().iter().filter(on_them).count()
}

/// A pod that leaves is four events, and the one in its place as many, of three kilobytes each; what is needed of it is its request,
/// which is three events of one, and once its place in a list, for the guards.
#[tokio::test(start_paused = true)]
async fn following_a_drain_of_many_nodes_costs_little_for_each_pod() {
    let scene = Scene::new(130).await.unwrap();
    scene.deployment("web", 130, 100).await.unwrap();
    let pods = pods_on(&scene, 105).await;
    let before = serde_json::to_vec(&scene.get("/api/v1/pods").await.unwrap()).unwrap().len();
    let (environment, received) = metered(&scene);
    let line = format!("drain {} --name big --timeout 1h", nodes(105));
    let drained = typed::usher(&line, &environment).await.unwrap();
    assert_eq!(drained.code(), 0, "{drained:?}");
    assert!(drained.out.contains(&format!("\n105 nodes drained: {pods} pods left in ")), "{drained:?}");
    assert!(
        drained.out.contains(&format!("\n105 nodes: 105 drained, {pods} of {pods} pods gone\n")),
        "{drained:?}"
    );
    assert_eq!(drained.out.lines().filter(|line| line.contains(": drained, ")).count(), 105, "{drained:?}");
    assert!(drained.out.contains(" evicting"), "{drained:?}");
    assert_eq!(received.asked_for_pods.load(Ordering::Relaxed), 1, "for the guards");
    let per_pod = (received.bytes.load(Ordering::Relaxed) - before) / pods;
    // How many changes a watch tells in one depends on how busy the machine is: between 5,000 and 6,600 were seen. Pods and their events
    // would be four times that.
    assert!(per_pod < 8000, "{per_pod} bytes for each pod");
    // However many pods there are, and however long it takes: one page is read for every 500 of what is listed, and the rest is told by
    // watches.
    let wanted = [
        ("POST nodemaintenances", 1),
        ("list evictionrequests", 1),
        ("list nodemaintenances", 3),
        ("list nodes", 2),
        ("list poddisruptionbudgets", 1),
        ("list pods", 1),
        ("watch evictionrequests", 1),
        ("watch nodemaintenances", 1),
        ("watch poddisruptionbudgets", 1),
    ];
    assert_eq!(received.asked(), wanted.map(|(what, times)| (what.to_owned(), times)).into());
}

#[tokio::test(start_paused = true)]
async fn of_many_nodes_it_is_told_what_blocks_their_pods() {
    let scene = Scene::new(105).await.unwrap();
    scene.deployment("web", 210, 210).await.unwrap();
    scene.deployment("one", 1, 1).await.unwrap();
    let pods = pods_on(&scene, 104).await;
    let web = scene.pods("web").await.unwrap();
    let web = web.iter().filter(|pod| pod["spec"]["nodeName"] != "n105").count();
    let (environment, received) = metered(&scene);
    let line = format!("drain {} --name big --timeout 5m", nodes(104));
    let waited = typed::usher(&line, &environment).await.unwrap();
    assert_eq!(waited.code(), 3, "{waited:?}");
    let told = format!(
        "104 nodes: 0 drained, 0 of {pods} pods gone, {pods} blocked; disruption budget web does not allow the pod to be \
         evicted ({web} pods)\n"
    );
    assert!(waited.out.contains(&told), "{waited:?}");
    assert!(waited.err.starts_with(&format!("not drained after 5m: {pods} pods remain on ")), "{waited:?}");
    let named = format!("evicted ({web} pods: default/web-");
    assert!(
        waited.err.contains(&named) && waited.err.contains("budget web has minAvailable 210"),
        "{waited:?}"
    );
    let asked = received.asked_for_pods.load(Ordering::Relaxed);
    assert_eq!(asked, 3, "for the guards, when they were blocked, and to name them in the end");
}

#[tokio::test(start_paused = true)]
async fn of_many_nodes_it_is_told_that_only_pods_of_daemon_sets_are_left() {
    let scene = Scene::new(104).await.unwrap();
    scene.deployment("web", 8, 4).await.unwrap();
    scene.create(DAEMON_SETS, &workload("DaemonSet", "agent", json!({}))).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    let line = format!("drain {} --name big", nodes(102));
    let waited = usher(&scene, &format!("{line} --timeout 10m")).await;
    assert_eq!(waited.code(), 3, "{waited:?}");
    let told = "big: only DaemonSet and static pods remain: daemons leave now, static pods if a node agent runs there; --ignore-daemonsets waits for neither\n";
    assert_eq!(waited.out.matches(told).count(), 1, "{waited:?}");
    assert!(waited.err.starts_with("not drained after 10m: 102 pods remain on 102 nodes\n"), "{waited:?}");
    let ended = usher(&scene, &format!("{line} --ignore-daemonsets")).await;
    assert_eq!(ended.code(), 0, "{ended:?}");
    assert!(ended.out.contains("\n102 DaemonSet or static pods stay\n"), "{ended:?}");
}
