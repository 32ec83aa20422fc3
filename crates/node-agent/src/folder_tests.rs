//! Manifests on a real folder, with the agent killed between any two steps.

use super::*;

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n";
const OTHER: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {new: 'yes'}}\n";

/// A folder of its own, which goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("usher-manifests-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(manifest: &str) -> (Self, Folder) {
        let scratch = Self::new();
        fs::write(scratch.0.join("web.yaml"), manifest).unwrap();
        let folder = Folder::new(&scratch.0);
        (scratch, folder)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn record() -> Record {
    Record {
        maintenance: "m".into(),
        pod: PodName { namespace: "shop".into(), name: "web".into() },
        pod_uid: "u".into(),
        priority: 7,
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        taken_at: Timestamp::UNIX_EPOCH,
        alone: false,
    }
}

/// What the agent does until nothing is left to do, if the manifest is to be gone, or to be there.
fn settle(folder: &Folder, is_wanted_gone: bool) {
    for _ in 0..5 {
        let contents = folder.read().unwrap();
        let steps = match contents.taken.first() {
            Some(taken) if !is_wanted_gone || taken.place == ManifestState::Linked => {
                put_back(&contents, taken)
            }
            None if !contents.stale_records.is_empty() => {
                contents.stale_records.keys().flat_map(|file| forget(file)).collect()
            }
            None if is_wanted_gone && contents.manifests.contains_key("web.yaml") => {
                take("web.yaml", &record())
            }
            _ => return,
        };
        folder.carry_out(&steps).unwrap();
    }
    panic!("it does not settle");
}

fn names(folder: &Folder) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with(DRAFT))
        .collect();
    names.sort();
    names
}

#[test]
fn a_manifest_leaves_under_a_name_that_the_kubelet_ignores_and_comes_back_as_it_was() {
    let (_scratch, folder) = Scratch::with(POD);
    let before = folder.read().unwrap();
    assert_eq!(before.files_of(("shop", "web-node-1"), "Node-1"), ["web.yaml"]);
    settle(&folder, true);
    assert!(names(&folder).iter().all(|name| name.starts_with('.')), "{:?}", names(&folder));
    let taken = folder.read().unwrap();
    assert!(taken.manifests.is_empty());
    assert_eq!(taken.taken[0].record, Some(record()), "the record on disk says what was taken");
    assert_eq!(taken.taken_of(("shop", "web-n"), "n").map(|it| it.place), Some(ManifestState::Free));
    settle(&folder, false);
    assert_eq!(names(&folder), ["web.yaml"]);
    assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), POD);
}

#[test]
fn killed_between_any_two_steps_the_manifest_is_there_once_and_it_goes_on() {
    for (was_gone, is_wanted_gone) in [(false, true), (true, false)] {
        for killed_after in 0..6 {
            for change_of_mind in [false, true] {
                let (_scratch, folder) = Scratch::with(POD);
                settle(&folder, was_gone);
                let contents = folder.read().unwrap();
                let steps = match contents.taken.first() {
                    Some(taken) => put_back(&contents, taken),
                    None => take("web.yaml", &record()),
                };
                folder.carry_out(&steps[..killed_after.min(steps.len())]).unwrap();
                // The maintenance may have ended, or begun again, before the next agent looks.
                let wanted = is_wanted_gone != change_of_mind;
                settle(&folder, wanted);
                let expected: &[&str] =
                    if wanted { &[".usher-record-web.yaml", ".usher-taken-web.yaml"] } else { &["web.yaml"] };
                assert_eq!(names(&folder), expected, "{was_gone} killed after {killed_after} of {steps:?}");
                settle(&folder, false);
                assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), POD);
            }
        }
    }
}

#[test]
fn what_the_administrator_writes_is_never_overwritten_and_never_lost() {
    // Replaced: both are there in the end.
    for killed_after in 0..4 {
        let (_scratch, folder) = Scratch::with(POD);
        settle(&folder, true);
        fs::write(folder.path().join("web.yaml"), OTHER).unwrap();
        let contents = folder.read().unwrap();
        let steps = put_back(&contents, &contents.taken[0]);
        folder.carry_out(&steps[..killed_after.min(steps.len())]).unwrap();
        settle(&folder, false);
        assert_eq!(names(&folder), [".usher-kept-1-web.yaml", "web.yaml"], "killed after {killed_after}");
        assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), OTHER);
        assert_eq!(fs::read_to_string(folder.path().join(".usher-kept-1-web.yaml")).unwrap(), POD);
        // And again: what is kept stays too.
        settle(&folder, true);
        fs::write(folder.path().join("web.yaml"), POD).unwrap();
        settle(&folder, false);
        assert_eq!(names(&folder), [".usher-kept-1-web.yaml", ".usher-kept-2-web.yaml", "web.yaml"]);
    }
    // Edited where it lies: that is what comes back.
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    fs::write(folder.path().join(".usher-taken-web.yaml"), OTHER).unwrap();
    settle(&folder, false);
    assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), OTHER);
    // Deleted where it lies: nothing comes back.
    settle(&folder, true);
    fs::remove_file(folder.path().join(".usher-taken-web.yaml")).unwrap();
    settle(&folder, false);
    assert!(names(&folder).is_empty());
}

#[test]
fn a_manifest_that_comes_at_the_last_moment_is_not_overwritten() {
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    let contents = folder.read().unwrap();
    let steps = put_back(&contents, &contents.taken[0]);
    fs::write(folder.path().join("web.yaml"), OTHER).unwrap();
    let why = folder.carry_out(&steps).unwrap_err();
    assert_eq!(why.why.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), OTHER);
    settle(&folder, false);
    assert_eq!(names(&folder), [".usher-kept-1-web.yaml", "web.yaml"]);
}

#[test]
fn a_taken_manifest_without_its_record_is_known_by_what_it_says() {
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    fs::write(folder.path().join(".usher-record-web.yaml"), "{").unwrap();
    let contents = folder.read().unwrap();
    assert_eq!(
        (contents.taken[0].record.clone(), contents.taken[0].pod.clone().unwrap().name),
        (None, "web".into())
    );
    settle(&folder, false);
    assert_eq!(names(&folder), ["web.yaml"]);
}

#[test]
fn only_what_makes_a_pod_is_a_manifest_of_one() {
    let pod = |namespace: &str, name: &str| Some(PodName { namespace: namespace.into(), name: name.into() });
    for (text, wanted) in [
        (POD, pod("shop", "web")),
        (r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "json"}}"#, pod("default", "json")),
        ("kind: ConfigMap\nmetadata: {name: a}\n", None),
        ("kind: Pod\nmetadata: {}\n", None),
        ("\u{0}", None),
        ("", None),
    ] {
        assert_eq!(pod_of(text), wanted, "{text}");
    }
}

#[test]
fn one_agent_at_a_time_moves_manifests() {
    let (_scratch, folder) = Scratch::with(POD);
    fs::write(folder.path().join(".usher-draft-web.yaml"), "").unwrap();
    let first = folder.lock().unwrap();
    assert!(folder.lock().unwrap_err().is_in_use());
    assert_eq!(names(&folder), [".usher-lock", "web.yaml"], "what was left in the middle is gone");
    drop(first);
    folder.lock().unwrap().remove();
    assert!(!folder.path().join(".usher-lock").exists());
    assert!(folder.lock().is_ok());
    assert_eq!(folder.read().unwrap().manifests.len(), 1, "the lock is no manifest");
    assert_eq!(Folder::new(folder.path().join("missing")).read().unwrap(), Contents::default());
}

#[test]
fn a_link_to_what_was_taken_does_not_lose_it() {
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    std::os::unix::fs::symlink(".usher-taken-web.yaml", folder.path().join("web.yaml")).unwrap();
    assert_eq!(folder.read().unwrap().taken[0].place, ManifestState::Replaced);
    settle(&folder, false);
    assert_eq!(fs::read_to_string(folder.path().join(".usher-kept-1-web.yaml")).unwrap(), POD);
}

#[test]
fn what_is_taken_is_never_overwritten_by_another_of_its_name() {
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    fs::write(folder.path().join("web.yaml"), OTHER).unwrap();
    let why = folder.carry_out(&take("web.yaml", &record())).unwrap_err();
    assert_eq!(why.why.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(folder.path().join(".usher-taken-web.yaml")).unwrap(), POD);
    assert_eq!(fs::read_to_string(folder.path().join("web.yaml")).unwrap(), OTHER);
}

#[test]
fn a_pod_that_has_another_manifest_meanwhile_does_not_get_its_old_one_back() {
    let (_scratch, folder) = Scratch::with(POD);
    settle(&folder, true);
    fs::write(folder.path().join("web-v2.yaml"), OTHER).unwrap();
    assert_eq!(folder.read().unwrap().taken[0].place, ManifestState::Replaced);
    settle(&folder, false);
    assert_eq!(names(&folder), [".usher-kept-1-web.yaml", "web-v2.yaml"]);
}
