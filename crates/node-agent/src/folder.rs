//! The kubelet's folder of static pod manifests.
//!
//! A manifest that is taken lies beside the others under a name that begins with a dot, which the kubelet passes over, and a record
//! says whose it was. Every change is a list of steps, each of which is done or not done whatever kills the agent in between, and after
//! any number of them the folder can be read and gone on with. Nothing that an administrator wrote is ever overwritten or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const TAKEN: &str = ".usher-taken-";
const RECORD: &str = ".usher-record-";
const DRAFT: &str = ".usher-draft-";
/// What was taken and has been replaced by somebody meanwhile.
const KEPT: &str = ".usher-kept-";
const LOCK: &str = ".usher-lock";
/// The kubelet reads no larger ones.
const MANIFEST_BYTES: u64 = 10 << 20;

/// A pod as its manifest names it; the kubelet puts the node's name behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

impl PodName {
    /// The name of its mirror pod.
    pub fn on(&self, node: &str) -> String {
        format!("{}-{}", self.name, node.to_lowercase())
    }
}

/// What is remembered of a manifest that is taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The maintenance that it was taken for.
    pub maintenance: String,
    pub pod: PodName,
    pub pod_uid: String,
    pub priority: i32,
    pub labels: BTreeMap<String, String>,
    pub taken_at: Timestamp,
    /// It was taken for a shutdown of the node, without the API server: it comes back when that is over, whether the API server answers or
    /// not.
    #[serde(default)]
    pub alone: bool,
}

/// A manifest that is not where the kubelet reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The name that it had.
    pub file: String,
    pub pod: Option<PodName>,
    /// `None` if somebody took it away.
    pub record: Option<Record>,
    /// What has its name now.
    pub place: ManifestState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestState {
    Free,
    /// The very same file: it was about to come back.
    Linked,
    /// A copy of it, which is not the agent's.
    Copied,
    /// Another one, which is not the agent's; or another file makes its pod.
    Replaced,
}

/// What is in the folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// The manifests that the kubelet reads, by file, with the pod that each makes.
    pub manifests: BTreeMap<String, Option<PodName>>,
    pub taken: Vec<Taken>,
    /// Records of manifests that are not taken, or not any more.
    pub stale_records: BTreeMap<String, Option<Record>>,
    /// All names, hidden ones included.
    names: BTreeSet<String>,
}

impl Contents {
    /// The files that make this pod.
    pub fn files_of(&self, mirror: (&str, &str), node: &str) -> Vec<&str> {
        let is_it = |pod: &PodName| pod.namespace == mirror.0 && pod.on(node) == mirror.1;
        let files = self.manifests.iter().filter(|(_, pod)| pod.as_ref().is_some_and(is_it));
        files.map(|(file, _)| file.as_str()).collect()
    }

    pub fn taken_of(&self, mirror: (&str, &str), node: &str) -> Option<&Taken> {
        let is_it = |pod: &PodName| pod.namespace == mirror.0 && pod.on(node) == mirror.1;
        self.taken.iter().find(|taken| taken.pod.as_ref().is_some_and(is_it))
    }
}

/// One thing that is done to the folder, whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Writes a file of the agent's own, in full, to the disk.
    Write(String, String),
    /// Gives a file of the agent's own another name of its own, whatever has that.
    Rename(String, String),
    /// Gives a file another name, unless that is taken.
    Move(String, String),
    /// Gives a file a second name, unless that is taken.
    Link(String, String),
    /// Removes a name of the agent's own.
    Remove(String),
    /// Names so far are on the disk.
    Sync,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct FolderError {
    pub path: String,
    pub why: io::Error,
}

impl FolderError {
    /// Another agent is at work in the folder.
    pub fn is_in_use(&self) -> bool {
        self.why.kind() == io::ErrorKind::WouldBlock
    }
}

/// Keeps other agents out of the folder.
#[derive(Debug)]
pub struct Lock {
    _held: File,
    path: PathBuf,
}

impl Lock {
    /// For an agent that ends and leaves nothing behind.
    pub fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder itself.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Nobody else moves manifests while this is held. What another one was writing when it was killed is removed.
    ///
    /// # Errors
    /// Another agent does ([`FolderError::is_in_use`]), or the folder cannot be written.
    pub fn lock(&self) -> Result<Lock, FolderError> {
        let path = self.0.join(LOCK);
        let error = |why| failed(&path, why);
        let file = loop {
            let file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(error)?;
            file.try_lock().map_err(|why| error(why.into()))?;
            // Who had it before may have removed it meanwhile: then it keeps nobody out.
            let is_there = fs::metadata(&path).map(|it| (it.dev(), it.ino())).ok();
            let held = file.metadata().map_err(error)?;
            if is_there == Some((held.dev(), held.ino())) {
                break file;
            }
        };
        for entry in fs::read_dir(&self.0).map_err(error)?.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(DRAFT)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Lock { _held: file, path })
    }

    /// # Errors
    /// The folder cannot be read. A file that cannot be read makes no pod.
    pub fn read(&self) -> Result<Contents, FolderError> {
        let mut contents = Contents::default();
        let mut taken = BTreeSet::new();
        let mut records = BTreeMap::new();
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            // The kubelet waits for it to be made, and so does the agent.
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(contents),
            Err(why) => return Err(failed(&self.0, why)),
        };
        for entry in entries {
            let entry = entry.map_err(|why| failed(&self.0, why))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            contents.names.insert(name.clone());
            if let Some(file) = name.strip_prefix(TAKEN) {
                taken.insert(file.to_owned());
            } else if let Some(file) = name.strip_prefix(RECORD) {
                let record = fs::read(entry.path()).ok().and_then(|text| serde_json::from_slice(&text).ok());
                records.insert(file.to_owned(), record);
            } else if !name.starts_with('.') && entry.path().is_file() {
                let pod = self.text(&name).and_then(|text| pod_of(&text));
                contents.manifests.insert(name, pod);
            }
        }
        for file in taken {
            let text = self.text(&taken_name(&file));
            let record: Option<Record> = records.remove(&file).flatten();
            let place = match contents.names.contains(&file) {
                false => ManifestState::Free,
                true if self.are_one(&file, &taken_name(&file)) => ManifestState::Linked,
                // A link is no copy: it may lead to the very file that is hidden.
                true if !self.is_link(&file) && self.text(&file).is_some_and(|it| Some(it) == text) => {
                    ManifestState::Copied
                }
                true => ManifestState::Replaced,
            };
            let named = record.as_ref().map(|record| record.pod.clone());
            let pod = named.or_else(|| text.as_deref().and_then(pod_of));
            let makes_it = |(other, makes): (&String, &Option<PodName>)| {
                *other != file && makes.is_some() && *makes == pod
            };
            let place = match place {
                ManifestState::Free if contents.manifests.iter().any(makes_it) => ManifestState::Replaced,
                place => place,
            };
            contents.taken.push(Taken { file, pod, record, place });
        }
        contents.stale_records = records;
        Ok(contents)
    }

    fn are_one(&self, a: &str, b: &str) -> bool {
        let file = |name: &str| fs::symlink_metadata(self.0.join(name)).ok().map(|it| (it.dev(), it.ino()));
        file(a).is_some_and(|one| Some(one) == file(b))
    }

    fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok()
    }

    fn is_link(&self, name: &str) -> bool {
        fs::symlink_metadata(self.0.join(name)).is_ok_and(|it| it.is_symlink())
    }

    /// Of a file: reading a pipe would wait for whoever writes to it.
    fn text(&self, name: &str) -> Option<String> {
        let path = self.0.join(name);
        let is_small = fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= MANIFEST_BYTES);
        is_small.then(|| fs::read_to_string(&path).ok()).flatten()
    }

    fn rename_if_free(&self, from: &str, to: &str) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        let (from, to_path) = (self.0.join(from), self.0.join(to));
        match renameat_with(CWD, &from, CWD, &to_path, RenameFlags::NOREPLACE) {
            // Some file systems cannot.
            Err(Errno::INVAL | Errno::NOSYS) if !self.has(to) => fs::rename(from, to_path),
            done => Ok(done?),
        }
    }

    /// # Errors
    /// A step could not be done; those before it are.
    pub fn carry_out(&self, steps: &[Step]) -> Result<(), FolderError> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&self, step: &Step) -> Result<(), FolderError> {
        let at = |name: &String| self.0.join(name);
        match step {
            Step::Write(name, text) => {
                let write = || {
                    let mut file = File::create(at(name))?;
                    file.write_all(text.as_bytes())?;
                    file.sync_all()
                };
                write().map_err(|why| failed(&at(name), why))
            }
            Step::Rename(from, to) => fs::rename(at(from), at(to)).map_err(|why| failed(&at(from), why)),
            Step::Move(from, to) => self.rename_if_free(from, to).map_err(|why| failed(&at(to), why)),
            Step::Link(from, to) => match fs::hard_link(at(from), at(to)) {
                // Links of others may not be linked to, and file systems without links know none.
                Err(why)
                    if [io::ErrorKind::PermissionDenied, io::ErrorKind::Unsupported]
                        .contains(&why.kind()) =>
                {
                    self.rename_if_free(from, to).map_err(|why| failed(&at(to), why))
                }
                done => done.map_err(|why| failed(&at(to), why)),
            },
            Step::Remove(name) => match fs::remove_file(at(name)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => Err(failed(&at(name), why)),
                _ => Ok(()),
            },
            Step::Sync => {
                File::open(&self.0).and_then(|it| it.sync_all()).map_err(|why| failed(&self.0, why))
            }
        }
    }
}

fn failed(path: &Path, why: io::Error) -> FolderError {
    FolderError { path: path.display().to_string(), why }
}

fn taken_name(file: &str) -> String {
    format!("{TAKEN}{file}")
}

fn record_name(file: &str) -> String {
    format!("{RECORD}{file}")
}

/// A manifest leaves: the record is on the disk before it does.
pub fn take(file: &str, record: &Record) -> Vec<Step> {
    let draft = format!("{DRAFT}{file}");
    let text = serde_json::to_string_pretty(record).unwrap_or_default();
    vec![
        Step::Write(draft.clone(), text),
        Step::Rename(draft, record_name(file)),
        Step::Sync,
        Step::Move(file.to_owned(), taken_name(file)),
        Step::Sync,
    ]
}

/// A manifest comes back, unless something else has its place: then it is kept under another name.
pub fn put_back(contents: &Contents, taken: &Taken) -> Vec<Step> {
    let (hidden, file) = (taken_name(&taken.file), &taken.file);
    let mut steps = match taken.place {
        ManifestState::Free => {
            vec![Step::Link(hidden.clone(), file.clone()), Step::Sync, Step::Remove(hidden)]
        }
        ManifestState::Linked | ManifestState::Copied => vec![Step::Remove(hidden)],
        ManifestState::Replaced => vec![Step::Move(hidden, kept_name(contents, file))],
    };
    steps.extend(forget(file));
    steps
}

/// The record of a manifest that is not taken is removed.
pub fn forget(file: &str) -> [Step; 2] {
    [Step::Remove(record_name(file)), Step::Sync]
}

/// The name under which a manifest is kept that was replaced: one that nothing has.
pub fn kept_name(contents: &Contents, file: &str) -> String {
    let numbered = |number: usize| format!("{KEPT}{number}-{file}");
    (1..).map(numbered).find(|name| !contents.names.contains(name)).unwrap_or_else(|| numbered(0))
}

/// The pod that a manifest makes.
fn pod_of(text: &str) -> Option<PodName> {
    #[derive(Deserialize)]
    struct Manifest {
        kind: String,
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        namespace: String,
    }
    let manifest: Manifest = serde_saphyr::from_str(text).ok()?;
    let Metadata { name, namespace } = manifest.metadata;
    let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
    (manifest.kind == "Pod" && !name.is_empty()).then_some(PodName { namespace, name })
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
