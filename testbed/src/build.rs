//! Finds the programs of the control plane: in `KUBEBUILDER_ASSETS`, in the cache, or by building them.

use crate::Error;
use crate::binaries::{
    Binary, CHARTS, CONTROL_PLANE, DESCHEDULERS, FOREIGN_DRAINERS, GoVersion, OLDER_CLIENTS, REAL_NODES, Set,
    required_go,
};
use crate::cache::{self, BUILD_ENVIRONMENT, CACHE_VARIABLE};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A folder with ready-made etcd, kube-apiserver and kubectl, as other Kubernetes test tools know it.
const ASSETS_VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// What the built programs take, and what a cold build leaves in Go's own cache.
const BINARIES_MIB: u64 = 700;
const GO_CACHE_MIB: u64 = 3500;

/// Programs that are there and can be run.
#[derive(Clone, Debug, Default)]
pub struct Toolbox {
    paths: BTreeMap<Binary, PathBuf>,
}

impl Toolbox {
    /// The path of a program that was asked for in [`toolbox`].
    #[must_use]
    pub fn path(&self, binary: Binary) -> Option<&Path> {
        self.paths.get(&binary).map(PathBuf::as_path)
    }

    /// All programs, in the order of [`Binary::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Binary, &Path)> {
        self.paths.iter().map(|(binary, path)| (*binary, path.as_path()))
    }
}

/// Makes sure that the `needed` programs exist, building what is missing. Blocks, for minutes where nothing is
/// cached; a second caller waits for the first instead of building the same twice.
///
/// # Errors
/// Go is missing or too old, the disk is full, a build failed, or `KUBEBUILDER_ASSETS` points nowhere.
pub fn toolbox(needed: &[Binary]) -> Result<Toolbox, Error> {
    let mut toolbox = Toolbox::default();
    let assets = std::env::var_os(ASSETS_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = &assets {
        toolbox.paths = from_assets(folder, needed)?;
    }
    let rest: Vec<Binary> =
        needed.iter().copied().filter(|binary| !toolbox.paths.contains_key(binary)).collect();
    if rest.is_empty() {
        return Ok(toolbox);
    }
    toolbox.paths.extend(built(&CONTROL_PLANE, &rest, assets.as_deref())?);
    Ok(toolbox)
}

/// Programs of a set from the cache, where those that are missing are built first. `assets` have none of them.
fn built(set: &Set, needed: &[Binary], assets: Option<&Path>) -> Result<BTreeMap<Binary, PathBuf>, Error> {
    let go = Go::find(set, needed)?;
    let folder = cache::root()?.join(cache::key(&go.identity, set));
    let missing = |binaries: &[Binary]| -> Vec<Binary> {
        binaries.iter().copied().filter(|binary| !folder.join(binary.name()).is_file()).collect()
    };
    if !missing(needed).is_empty() {
        if let Some(assets) = assets {
            let names: Vec<_> = needed.iter().map(|binary| binary.name()).collect();
            eprintln!("testbed: {} has no {}: building", assets.display(), names.join(", "));
        }
        let _lock = lock(&folder)?;
        // Another process may have built them while this one waited for the lock.
        let missing = missing(needed);
        if !missing.is_empty() {
            build(set, &go, &folder, &missing)?;
        }
    }
    Ok(needed.iter().map(|binary| (*binary, folder.join(binary.name()))).collect())
}

/// The path of kubectl alone, for use against any cluster. Builds nothing else.
///
/// # Errors
/// As for [`toolbox`].
pub async fn kubectl_path() -> Result<PathBuf, Error> {
    let toolbox = tokio::task::spawn_blocking(|| toolbox(&[Binary::Kubectl])).await??;
    Ok(toolbox.path(Binary::Kubectl).map(Path::to_path_buf).unwrap_or_default())
}

/// The path of helm, built where it is not cached. Nothing else is built, and nothing else builds it.
///
/// # Errors
/// As for [`toolbox`].
pub async fn helm_path() -> Result<PathBuf, Error> {
    let built = tokio::task::spawn_blocking(|| built(&CHARTS, &[Binary::Helm], None)).await??;
    Ok(built.into_values().next().unwrap_or_default())
}

/// The paths of older versions of kubectl by their names, built where they are not cached. Nothing else builds them.
///
/// # Errors
/// As for [`toolbox`].
pub async fn older_kubectl_paths() -> Result<Vec<(&'static str, PathBuf)>, Error> {
    let set = &OLDER_CLIENTS;
    let built = tokio::task::spawn_blocking(|| built(set, set.binaries, None)).await??;
    Ok(built.into_iter().map(|(binary, path)| (binary.name(), path)).collect())
}

/// The path of the program that drains as Karpenter and Cluster API do, built where it is not cached. Nothing else is built, and nothing else
/// builds it.
///
/// # Errors
/// As for [`toolbox`].
pub async fn drainers_path() -> Result<PathBuf, Error> {
    let built = tokio::task::spawn_blocking(|| built(&FOREIGN_DRAINERS, &[Binary::Drainers], None)).await??;
    Ok(built.into_values().next().unwrap_or_default())
}

/// The path of the program that asks the Go descheduler, built where it is not cached. Nothing else is built, and nothing else builds it.
///
/// # Errors
/// As for [`toolbox`].
pub fn descheduler_judge_path() -> Result<PathBuf, Error> {
    let built = built(&DESCHEDULERS, &[Binary::DeschedulerJudge], None)?;
    Ok(built.into_values().next().unwrap_or_default())
}

/// Builds what the tests of `make test-real` start besides the control plane: Helm, the Go descheduler, foreign drainers, and the programs of
/// real nodes.
///
/// # Errors
/// As for [`toolbox`].
pub fn toolbox_of_tests() -> Result<Toolbox, Error> {
    let mut paths = BTreeMap::new();
    for set in [&CHARTS, &DESCHEDULERS, &FOREIGN_DRAINERS, &REAL_NODES] {
        paths.extend(built(set, set.binaries, None)?);
    }
    Ok(Toolbox { paths })
}

/// The kubelet, kube-proxy, and the program in the image of pods. Nothing else is built, and nothing else builds them.
pub(crate) async fn real_node_toolbox() -> Result<Toolbox, Error> {
    let set = &REAL_NODES;
    let paths = tokio::task::spawn_blocking(|| built(set, set.binaries, None)).await??;
    Ok(Toolbox { paths })
}

/// The three programs that `KUBEBUILDER_ASSETS` must hold, and the others where it has them.
fn from_assets(folder: &Path, needed: &[Binary]) -> Result<BTreeMap<Binary, PathBuf>, Error> {
    let found = |binary: Binary| Some(folder.join(binary.name())).filter(|path| path.is_file());
    let missing: Vec<_> = Binary::API_SERVER_ONLY
        .into_iter()
        .filter(|binary| found(*binary).is_none())
        .map(Binary::name)
        .collect();
    if !missing.is_empty() {
        return Err(Error::BadAssets { folder: folder.to_path_buf(), missing: missing.join(", ") });
    }
    let mut paths = BTreeMap::new();
    for binary in needed {
        if let Some(path) = found(*binary) {
            let path = std::path::absolute(&path).map_err(Error::io("cannot resolve", path))?;
            paths.insert(*binary, path);
        }
    }
    Ok(paths)
}

/// The Go that builds.
struct Go {
    /// Release and platform, as part of the cache key.
    identity: String,
    /// Go's build cache, by far the largest thing a build writes.
    cache: PathBuf,
}

impl Go {
    fn find(set: &Set, needed: &[Binary]) -> Result<Self, Error> {
        let required = required_go(set);
        let output = Command::new("go")
            .args(["env", "GOVERSION", "GOOS", "GOARCH", "GOCACHE"])
            .envs(BUILD_ENVIRONMENT)
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::GoMissing { required, needed: needed.to_vec() });
            }
            Err(source) => return Err(Error::Io { what: "cannot run", path: "go".into(), source }),
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (version, os, architecture, cache) = (next(), next(), next(), next());
        // An unreadable version is a development build of Go, which its owner knows about.
        if GoVersion::parse(&version).is_some_and(|found| found < required) {
            return Err(Error::GoTooOld { found: version.trim_start_matches("go").to_owned(), required });
        }
        Ok(Self { identity: format!("{version} {os} {architecture}"), cache: cache.into() })
    }
}

/// Waits for a build of the same binaries by another process.
fn lock(folder: &Path) -> Result<File, Error> {
    fs::create_dir_all(folder).map_err(Error::io("cannot create", folder))?;
    let path = folder.join("build.lock");
    let file = File::create(&path).map_err(Error::io("cannot create", &path))?;
    if file.try_lock().is_err() {
        eprintln!("testbed: another process is building the control plane: waiting for it");
        file.lock().map_err(Error::io("cannot lock", &path))?;
    }
    Ok(file)
}

fn build(set: &Set, go: &Go, folder: &Path, missing: &[Binary]) -> Result<(), Error> {
    cache::require_space(folder, BINARIES_MIB, CACHE_VARIABLE)?;
    cache::require_space(&go.cache, GO_CACHE_MIB, "GOCACHE")?;
    let modules = folder.join("modules");
    write_modules(set, &modules)?;
    let progress = Progress::new(set, missing.len());
    for (done, binary) in missing.iter().enumerate() {
        let step = progress.begin(*binary, done + 1);
        let built = build_one(*binary, &modules, folder);
        step.end(built.is_ok());
        built?;
    }
    fs::remove_dir_all(&modules).map_err(Error::io("cannot remove", &modules))
}

fn write_modules(set: &Set, folder: &Path) -> Result<(), Error> {
    for module in set.modules {
        let folder = folder.join(module.name);
        fs::create_dir_all(&folder).map_err(Error::io("cannot create", &folder))?;
        for (name, content) in module.files {
            let path = folder.join(name);
            fs::write(&path, content).map_err(Error::io("cannot write", &path))?;
        }
    }
    Ok(())
}

/// Builds under another name and renames, so that a program in the cache is always whole.
fn build_one(binary: Binary, modules: &Path, folder: &Path) -> Result<(), Error> {
    let log_path = folder.join(format!("build-{binary}.log"));
    let log = File::create(&log_path).map_err(Error::io("cannot create", &log_path))?;
    let unfinished = folder.join(format!(".{binary}.unfinished"));
    let status = Command::new("go")
        .args(["build", "-trimpath", "-ldflags", &binary.ldflags(), "-o"])
        .arg(&unfinished)
        .arg(binary.package())
        .current_dir(modules.join(binary.module().name))
        .envs(BUILD_ENVIRONMENT)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(Error::io("cannot write", &log_path))?)
        .stderr(log)
        .status()
        .map_err(Error::io("cannot run", "go"))?;
    if !status.success() {
        let text = fs::read_to_string(&log_path).unwrap_or_default();
        return Err(Error::BuildFailed { binary, reason: build_failure(&text), log: log_path });
    }
    let finished = folder.join(binary.name());
    fs::rename(&unfinished, &finished).map_err(Error::io("cannot create", finished))
}

/// The one line of a build log that says why, with what to do where that is known.
fn build_failure(log: &str) -> String {
    if log.contains("no space left on device") {
        return format!(
            "the disk is full: free some space, or set {CACHE_VARIABLE} and GOCACHE to a larger one"
        );
    }
    let offline = ["dial tcp", "no such host", "proxyconnect"].iter().any(|sign| log.contains(sign));
    if offline {
        return "Go modules could not be downloaded: check the network and GOPROXY, then try again"
            .to_owned();
    }
    log.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("go build said nothing")
        .trim()
        .to_owned()
}

/// Says which program is being built: a moving line on a terminal, one line per program elsewhere.
struct Progress {
    total: usize,
    moving: bool,
}

struct Step {
    label: String,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(set: &Set, total: usize) -> Self {
        let moving = io::stderr().is_terminal();
        eprintln!("testbed: building {total} {}", set.title);
        Self { total, moving }
    }

    fn begin(&self, binary: Binary, number: usize) -> Step {
        let label = format!("{binary} ({number} of {})", self.total);
        let bar = self.moving.then(|| {
            let bar = ProgressBar::new_spinner().with_message(label.clone());
            if let Ok(style) = ProgressStyle::with_template("{spinner} building {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Step { label, started: Instant::now(), bar }
    }
}

impl Step {
    fn end(self, built: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if built {
            eprintln!("testbed: built {} in {:.0} s", self.label, self.started.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_without_an_api_server_are_refused_by_name() {
        let folder = Path::new("/nonexistent-assets");
        let line = from_assets(folder, &Binary::ALL).unwrap_err().to_string();
        assert!(line.contains("missing: etcd, kube-apiserver, kubectl"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }

    #[test]
    fn a_failed_build_is_told_in_one_line() {
        assert!(build_failure("a\nwrite x: no space left on device\n").contains("disk is full"));
        assert!(build_failure("go: x: dial tcp 1.2.3.4: refused\n").contains("GOPROXY"));
        assert_eq!(build_failure("first\n  main.go:1: undefined: x  \n\n"), "main.go:1: undefined: x");
        assert_eq!(build_failure(""), "go build said nothing");
    }
}
