//! Shutdowns of a node, with the real systemd-logind on a bus of its own. A stand-in for systemd is asked to start the reboot, notes it and
//! refuses, so that nothing ever powers off.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cluster_simulator::{self as life, Times};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use usher_api::workloads::BundledInterceptor;
use usher_apply::Clock;
use usher_controllers::run_all;
use usher_node_agent::agent::{self, Beside};
use usher_node_agent::folder::Folder;
use usher_node_agent::kubelet::GracePeriod;
use usher_node_agent::logind::Logind;
use usher_node_agent::shutdown::{Options, Shutdown, ShutdownState};
use usher_node_agent::shutdown_limit::{LimitError, ShutdownLimit};
use usher_testbed::packages::{install_missing, is_root};
use usher_tests::living::{Living, NODES, PODS, bare_pod};
use usher_tests::scenario::beside::{answer_inside, manager};

const LOGIND: &str = "/lib/systemd/systemd-logind";
const MAINTENANCE: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances/shutdown-n1";
const MAINTENANCES: &str = "/apis/nodemaintenance.k8s.io/v1alpha1/nodemaintenances";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All of them keep what they know below /run/systemd: one at a time.
static ONE_LOGIND: Mutex<()> = Mutex::const_new(());

/// A system bus with logind on it.
struct Machine {
    address: String,
    folder: PathBuf,
    /// When a reboot would have begun.
    reboots: UnboundedReceiver<Instant>,
    _systemd: JoinSet<()>,
    /// The bus and logind.
    processes: [Running; 2],
    _alone: MutexGuard<'static, ()>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        // logind makes it, and it is left if others hold something.
        let _ = fs::remove_dir("/run/systemd/inhibit");
    }
}

impl Machine {
    async fn start(name: &str) -> Self {
        let alone = ONE_LOGIND.lock().await;
        assert!(is_root(), "this test needs root, to start a systemd-logind of its own");
        install_missing(&[("/usr/bin/dbus-daemon", "dbus"), (LOGIND, "systemd")]).unwrap();
        let folder = std::env::temp_dir().join(format!("usher-logind-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let address = format!("unix:path={}", folder.join("bus").display());
        let config = folder.join("bus.conf");
        fs::write(
            &config,
            format!(
                r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
                "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
                <busconfig><type>system</type><listen>{address}</listen><auth>EXTERNAL</auth><policy context="default">
                <allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>"#
            ),
        )
        .unwrap();
        let run = |command: &mut Command| {
            Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let config = format!("--config-file={}", config.display());
        let bus = run(Command::new("setpriv").args(["--pdeathsig", "KILL", "dbus-daemon"]).args([
            &config,
            "--nofork",
            "--nopidfile",
        ]));
        let systemd = loop {
            let connection = zbus::connection::Builder::address(address.as_str());
            match connection.name("org.freedesktop.systemd1").build().await {
                Ok(connection) => break connection,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let (begun, reboots) = unbounded_channel();
        let mut tasks = JoinSet::new();
        let pid = Arc::new(AtomicU32::new(0));
        tasks.spawn(stand_in(systemd.clone(), begun, pid.clone()));
        // It has files of its own, and not those of the machine.
        fs::create_dir_all(folder.join("systemd/logind.conf.d")).unwrap();
        let own_files = r#"mount --bind "$0/systemd" /etc/systemd && exec "$1""#;
        let logind = run(Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "/bin/sh", "-c", own_files])
            .arg(&folder)
            .arg(LOGIND)
            .env("DBUS_SYSTEM_BUS_ADDRESS", &address));
        pid.store(logind.0.id(), Ordering::SeqCst);
        let machine =
            Self { address, folder, reboots, _systemd: tasks, processes: [bus, logind], _alone: alone };
        for _ in 0..100 {
            if machine.call("ListInhibitors", &()).await.is_ok() {
                return machine;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("systemd-logind does not start: see `systemd-logind --version` and the journal");
    }

    async fn call(
        &self,
        method: &str,
        body: &(impl serde::Serialize + zbus::zvariant::DynamicType + Sync),
    ) -> zbus::Result<zbus::Message> {
        let connection = zbus::connection::Builder::address(self.address.as_str()).build().await?;
        let (service, path) = ("org.freedesktop.login1", "/org/freedesktop/login1");
        connection
            .call_method(Some(service), path, Some("org.freedesktop.login1.Manager"), method, body)
            .await
    }

    async fn inhibited(&self) {
        for _ in 0..100 {
            if format!("{:?}", self.inhibitors().await).contains("usher node-agent") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the agent holds no inhibitor");
    }

    async fn inhibitors(&self) -> Vec<(String, String, String, String, u32, u32)> {
        let answer = self.call("ListInhibitors", &()).await.unwrap();
        answer.body().deserialize().unwrap()
    }
}

/// Refuses to reboot, which logind tells everybody as a cancellation.
/// `logind` is the process that gets signals.
async fn stand_in(connection: zbus::Connection, begun: UnboundedSender<Instant>, logind: Arc<AtomicU32>) {
    let mut messages = zbus::MessageStream::from(&connection);
    while let Some(Ok(message)) = messages.next().await {
        if message.message_type() != zbus::message::Type::MethodCall {
            continue;
        }
        let header = message.header();
        let member = header.member().map(ToString::to_string).unwrap_or_default();
        let answered = match member.as_str() {
            "Get" => connection.reply(&header, &zbus::Variant::from("loaded")).await,
            "StartUnit" => {
                let _ = begun.send(Instant::now());
                let error =
                    zbus::names::ErrorName::try_from("org.freedesktop.DBus.Error.AccessDenied").unwrap();
                connection.reply_error(&header, error, &"nothing powers off here").await
            }
            "KillUnit" => {
                let (unit, whom, signal): (String, String, i32) = message.body().deserialize().unwrap();
                assert_eq!((unit.as_str(), whom.as_str()), ("systemd-logind.service", "all"));
                let pid = logind.load(Ordering::SeqCst).to_string();
                let sent = Command::new("kill").arg(format!("-{signal}")).arg(pid).status().unwrap();
                assert!(sent.success());
                connection.reply(&header, &()).await
            }
            _ => connection.reply(&header, &()).await,
        };
        answered.unwrap();
    }
}

struct Scene {
    living: Arc<Living>,
    machine: Machine,
    /// The API server does not answer.
    is_away: Arc<AtomicBool>,
    client: kube::Client,
    progress: watch::Receiver<ShutdownState>,
    for_agent: watch::Sender<ShutdownState>,
    tasks: JoinSet<()>,
}

impl Scene {
    /// Two nodes, a pod of a Deployment on the first, and a manager.
    async fn start(name: &str) -> Self {
        let machine = Machine::start(name).await;
        let second = Duration::from_millis(500);
        let times = Times { start: second, run: second, terminate: second };
        let options = life::Options { times, ..life::Options::default() };
        let living = Arc::new(Living::start_with(1, 1, options).await.unwrap());
        living.install_crds().await.unwrap();
        living.deployment("web", 1, 0).await.unwrap();
        living.create(NODES, &usher_tests::living::node("n2")).await.unwrap();
        let client = kube::Client::new(living.cluster.service_as(manager()), "default");
        for (path, configuration) in answer_inside(&living.cluster, client.clone(), &BundledInterceptor::ALL)
        {
            living.create(&path, &configuration).await.unwrap();
        }
        let mut tasks = JoinSet::new();
        let of_manager = client.clone();
        let clock = clock(&living);
        tasks.spawn(async move { run_all(of_manager, clock, &BundledInterceptor::ALL).await });
        let is_away = Arc::new(AtomicBool::new(false));
        let (service, away) = (living.cluster.service_as(manager()), is_away.clone());
        let unsteady = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (service, away) = (service.clone(), away.clone());
            async move {
                if away.load(Ordering::SeqCst) {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                let Ok(answer) = service.oneshot(request).await;
                Ok(answer)
            }
        });
        let client = kube::Client::new(unsteady, "default");
        let (for_agent, progress) = watch::channel(ShutdownState::default());
        Self { living, machine, is_away, client, progress, for_agent, tasks }
    }

    fn shutdown(&self, boot: &str, complete_after_boot: bool) -> Shutdown {
        let periods = [0, 1000].map(|priority| GracePeriod { priority, shutdown_grace_period_seconds: 5 });
        let options = Options {
            node: "n1".into(),
            boot: boot.into(),
            periods: periods.to_vec(),
            complete_after_boot,
            limit: None,
        };
        Shutdown { client: self.client.clone(), clock: clock(&self.living), options }
    }

    async fn agent(&mut self, boot: &str, complete_after_boot: bool) {
        let (shutdown, alone) = (self.shutdown(boot, complete_after_boot), self.for_agent.clone());
        let bus = self.machine.address.clone();
        let state = watch::channel(Err(String::new())).0;
        self.tasks.spawn(async move { shutdown.run(bus, alone, state).await });
        self.machine.inhibited().await;
    }

    /// The part of the agent that moves manifests, beside the one that delays shutdowns.
    fn static_pods(&mut self, manifests: &Path) {
        let options = agent::Options {
            node: "n1".into(),
            folder: Some(Folder::new(manifests)),
            has_url: false,
            folder_name: "/etc/kubernetes/manifests".into(),
            version: "test".into(),
            warnings: Vec::new(),
        };
        let beside = Beside { shutdown: self.progress.clone(), ..Beside::nothing() };
        let (client, clock) = (self.client.clone(), clock(&self.living));
        self.tasks.spawn(agent::run_until(client, clock, options, beside, std::future::pending()));
    }

    /// A pod that takes longer to end than a shutdown waits.
    async fn slow_pod(&self) {
        let mut stays = bare_pod("stays", "n1");
        stays["metadata"]["annotations"] = json!({"cluster-simulator.dev/terminate-delay": "40s"});
        stays["spec"]["terminationGracePeriodSeconds"] = 60.into();
        self.living.create(PODS, &stays).await.unwrap();
    }

    async fn reboot(&self) -> Instant {
        self.machine.call("Reboot", &false).await.unwrap();
        Instant::now()
    }

    async fn on_node(&self) -> usize {
        let list = self.living.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1")).await.unwrap();
        list["items"].as_array().unwrap().len()
    }

    async fn no_maintenance(&self) {
        let is_empty = |it: &Value| it["items"].as_array().is_some_and(Vec::is_empty);
        self.living.until(MAINTENANCES, is_empty).await.unwrap();
    }
}

fn clock(living: &Living) -> Clock {
    let (now, timers) = (living.cluster.clone(), living.cluster.clone());
    Clock::with_timers(move || now.now(), move |at| timers.time_until(at))
}

#[tokio::test]
async fn a_shutdown_waits_at_logind_until_the_pods_have_left_and_a_cancelled_one_is_withdrawn() {
    let mut scene = Scene::start("waits").await;
    scene.agent("boot-1", false).await;
    assert_eq!(scene.on_node().await, 1);
    let asked = scene.reboot().await;
    let is_there = |it: &Value| it["items"][0]["metadata"]["name"] == "shutdown-n1";
    let list = scene.living.until(MAINTENANCES, is_there).await.unwrap();
    let made = &list["items"][0];
    assert_eq!((&made["spec"]["stage"], &made["spec"]["reason"]), (&json!("Drain"), &json!("node shutdown")));
    assert_eq!(made["spec"]["drainPlan"][0], json!({"podPriority": 999, "podType": "Default"}));
    let begun = scene.machine.reboots.recv().await.unwrap();
    assert_eq!(scene.on_node().await, 0, "the shutdown goes on when all pods have ended");
    assert!(
        begun - asked < Duration::from_millis(4900),
        "and not when the time is over: {:?}",
        begun - asked
    );
    // The stand-in refuses, and logind tells that the shutdown is cancelled.
    scene.no_maintenance().await;
    let told = |list: &Value| {
        let events = list["items"].as_array().cloned().unwrap_or_default();
        ["NodeShutdown", "NodeShutdownGoesOn"]
            .iter()
            .all(|it| events.iter().any(|event| event["reason"] == **it))
    };
    scene.living.until("/api/v1/namespaces/default/events", told).await.unwrap();
    let free = |it: &Value| it["spec"]["unschedulable"] != true;
    scene.living.until(&format!("{NODES}/n1"), free).await.unwrap();
    scene.machine.inhibited().await;
}

#[tokio::test]
async fn when_the_time_of_logind_is_over_the_shutdown_goes_on_and_a_maintenance_that_drains_is_joined() {
    let mut scene = Scene::start("joins").await;
    let other = json!({
        "apiVersion": "nodemaintenance.k8s.io/v1alpha1", "kind": "NodeMaintenance", "metadata": {"name": "other"},
        "spec": {"stage": "Drain", "nodeSelector": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ]}},
    });
    scene.slow_pod().await;
    scene.living.create(MAINTENANCES, &other).await.unwrap();
    let draining = |it: &Value| it["metadata"]["annotations"]["nodemaintenance.k8s.io/phase"] == "Draining";
    scene.living.until(&format!("{NODES}/n1"), draining).await.unwrap();
    scene.agent("boot-1", false).await;
    let asked = scene.reboot().await;
    let begun = scene.machine.reboots.recv().await.unwrap();
    let took = begun - asked;
    assert!(took >= Duration::from_secs(4) && took <= Duration::from_secs(6), "{took:?}");
    assert!(scene.on_node().await > 0, "somebody is left");
    assert!(scene.living.get(MAINTENANCE).await.is_err(), "there is one that drains already");
}

#[tokio::test]
async fn without_an_api_server_the_agent_is_on_its_own_until_it_is_back() {
    let mut scene = Scene::start("alone").await;
    let manifests = scene.machine.folder.join("manifests");
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proxy"},
        "spec": {"containers": [{"name": "c", "image": "proxy:1"}]},
    });
    fs::create_dir_all(&manifests).unwrap();
    fs::write(manifests.join("proxy.yaml"), manifest.to_string()).unwrap();
    scene.living.life.run_static_pod("n1", manifest);
    let running = |it: &Value| it["items"][0]["status"]["phase"] == "Running";
    let mirror = format!("{PODS}?fieldSelector=metadata.name%3Dproxy-n1");
    scene.living.until(&mirror, running).await.unwrap();
    scene.static_pods(&manifests);
    scene.agent("boot-1", false).await;
    let named = "interceptor.evictionrequest.coordination.k8s.io/priority_kubelet.k8s.io";
    let is_known = |it: &Value| !it["items"][0]["metadata"]["annotations"][named].is_null();
    scene.living.until(&mirror, is_known).await.unwrap();
    let is_there = || manifests.join("proxy.yaml").exists();

    scene.is_away.store(true, Ordering::SeqCst);
    scene.reboot().await;
    scene.progress.wait_for(|it| it.alone_since.is_some()).await.unwrap();
    while is_there() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.is_away.store(false, Ordering::SeqCst);
    scene.progress.wait_for(|it| it.alone_since.is_none()).await.unwrap();
    scene.machine.reboots.recv().await.unwrap();
    assert!(!is_there(), "it does not start again while the node goes down");
    // The stand-in refuses to reboot.
    scene.no_maintenance().await;
    while !is_there() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_during_a_shutdown_lets_it_go_on_and_the_next_one_takes_back_what_it_began() {
    let mut scene = Scene::start("killed").await;
    scene.slow_pod().await;
    let state = watch::channel(Err(String::new())).0;
    let (shutdown, progress) = (scene.shutdown("boot-1", false), scene.for_agent.clone());
    let agent = tokio::spawn(shutdown.run(scene.machine.address.clone(), progress, state));
    scene.machine.inhibited().await;
    let asked = scene.reboot().await;
    let is_there = |it: &Value| it["items"][0]["metadata"]["name"] == "shutdown-n1";
    scene.living.until(MAINTENANCES, is_there).await.unwrap();
    agent.abort();
    let begun = scene.machine.reboots.recv().await.unwrap();
    assert!(begun - asked < Duration::from_secs(4), "nobody holds it any more: {:?}", begun - asked);
    scene.agent("boot-1", false).await;
    scene.no_maintenance().await;
}

#[tokio::test]
async fn a_bus_that_goes_during_a_shutdown_does_not_end_it() {
    let mut scene = Scene::start("deaf").await;
    scene.slow_pod().await;
    scene.agent("boot-1", false).await;
    let asked = scene.reboot().await;
    scene.progress.wait_for(|it| it.is_under_way).await.unwrap();
    scene.machine.processes[0].0.kill().unwrap();
    scene.progress.wait_for(|it| !it.is_under_way).await.unwrap();
    let took = asked.elapsed();
    assert!(
        took >= Duration::from_secs(4) && took <= Duration::from_secs(7),
        "until its time is over: {took:?}"
    );
    scene.living.get(MAINTENANCE).await.unwrap();
}

#[tokio::test]
async fn after_a_boot_the_maintenance_stays_for_an_administrator_or_goes_at_once() {
    let mut scene = Scene::start("boots").await;
    let deadline = scene.living.cluster.now() + Duration::from_secs(120);
    scene.shutdown("boot-1", false).give_notice("spot", deadline).await.unwrap();
    let made = scene.living.get(MAINTENANCE).await.unwrap();
    assert_eq!(made["spec"]["reason"], "spot");
    assert!(made["metadata"]["annotations"]["nodemaintenance.k8s.io/deadline"].is_string());
    scene.agent("boot-1", true).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        scene.living.get(MAINTENANCE).await.unwrap()["spec"]["reason"],
        "spot",
        "a notice is no shutdown to cancel"
    );
    scene.agent("boot-2", false).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    scene.living.get(MAINTENANCE).await.unwrap();
    scene.agent("boot-3", true).await;
    scene.no_maintenance().await;
}

/// What the agent writes, beside a drop-in of the administrator.
#[tokio::test]
async fn the_limit_of_logind_is_raised_where_that_is_allowed_and_no_other_file_is_changed() {
    let mut scene = Scene::start("limit").await;
    let mut shutdown = scene.shutdown("b", false);
    let machine = &scene.machine;
    let logind = Logind::connect(&machine.address).await.unwrap();
    let folder = machine.folder.join("systemd/logind.conf.d");
    let own = folder.join("99-usher-node-agent.conf");
    let limit = |seconds| ShutdownLimit { at_least: Duration::from_secs(seconds), folder: folder.clone() };
    let granted = logind.longest_delay().await.unwrap();
    limit(granted.as_secs()).raise(&logind).await.unwrap();
    assert!(!own.exists(), "what is long enough is left as it is");

    let theirs = "[Login]\nInhibitDelayMaxSec=7s\n";
    fs::write(folder.join("50-usher.conf"), theirs).unwrap();
    shutdown.options.limit = Some(limit(90));
    let (bus, alone) = (machine.address.clone(), scene.for_agent.clone());
    let state = watch::channel(Err(String::new())).0;
    scene.tasks.spawn(async move { shutdown.run(bus, alone, state).await });
    machine.inhibited().await;
    assert_eq!(logind.longest_delay().await.unwrap(), Duration::from_secs(90));
    limit(120).raise(&logind).await.unwrap();
    assert_eq!(
        logind.longest_delay().await.unwrap(),
        Duration::from_secs(120),
        "what is its own is written again"
    );
    assert_eq!(fs::read_to_string(folder.join("50-usher.conf")).unwrap(), theirs);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "and no draft");

    fs::write(folder.join("99-z.conf"), theirs).unwrap();
    let unheeded = limit(300).raise(&logind).await.unwrap_err();
    assert!(
        matches!(unheeded, LimitError::Unheeded { granted } if granted == Duration::from_secs(7)),
        "{unheeded}"
    );
    fs::remove_file(folder.join("99-z.conf")).unwrap();
    fs::write(&own, theirs).unwrap();
    let foreign = limit(600).raise(&logind).await.unwrap_err();
    assert!(matches!(foreign, LimitError::Foreign(_)), "{foreign}");
    assert_eq!(fs::read_to_string(&own).unwrap(), theirs);
}
