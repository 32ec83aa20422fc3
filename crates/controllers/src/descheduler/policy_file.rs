//! The policy file, read again whenever it changes: a ConfigMap that is mounted is replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use usher_descheduler::Policy;

use super::Policies;

/// A file is looked at this often. The kubelet brings a changed ConfigMap within about a minute.
const LOOK: Duration = Duration::from_secs(5);
/// A file that is written anew may be gone, or empty, for a moment: it is told only when that is so in this many looks in a row.
const LOOKS: u32 = 2;

/// Reads a policy.
///
/// # Errors
/// There is none, or it is wrong: in words for people, a line for each error.
pub fn read(path: &Path) -> Result<Policy, String> {
    let text = std::fs::read_to_string(path).map_err(|why| unreadable(path, &why))?;
    understood(&text, path)
}

fn unreadable(path: &Path, why: &io::Error) -> String {
    format!("the policy {} cannot be read: {why}", path.display())
}

fn understood(text: &str, path: &Path) -> Result<Policy, String> {
    if text.trim().is_empty() {
        return Err(format!("the policy {} is refused: the file is empty", path.display()));
    }
    Policy::read(text).map_err(|errors| format!("the policy {} is refused: {errors}", path.display()))
}

/// The policy, and each that takes its place.
pub fn follow(path: PathBuf) -> Policies {
    futures::stream::unfold((path, PolicyFile::default()), |(path, mut file)| async {
        loop {
            let text = std::fs::read_to_string(&path);
            if let Some(event) = file.observe(text, &path) {
                return Some((event, (path, file)));
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .boxed()
}

/// What was seen of the file.
#[derive(Default)]
struct PolicyFile {
    /// At the last event.
    last: Option<LastContent>,
    /// In how many looks in a row there was nothing in it, since it had something.
    looks_without: u32,
}

#[derive(PartialEq)]
enum LastContent {
    Text(String),
    /// It is gone, or there is nothing in it.
    Nothing,
}

impl PolicyFile {
    /// The event after a look at the file, if it has changed. There is one when the file is gone, and one when it is back.
    fn observe(&mut self, text: io::Result<String>, path: &Path) -> Option<Result<Policy, String>> {
        let is_something = text.as_ref().is_ok_and(|text| !text.trim().is_empty());
        self.looks_without = if is_something { 0 } else { self.looks_without.saturating_add(1) };
        let content = match &text {
            Ok(text) if is_something => LastContent::Text(text.clone()),
            _ => LastContent::Nothing,
        };
        // At the start there is nothing to hold on to.
        let is_passing = !is_something && self.last.is_some() && self.looks_without < LOOKS;
        if is_passing || self.last.as_ref() == Some(&content) {
            return None;
        }
        self.last = Some(content);
        Some(text.map_err(|why| unreadable(path, &why)).and_then(|text| understood(&text, path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\n";
    const OTHER: &str =
        "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nmaxNoOfPodsToEvictTotal: 1\n";

    /// Looks at a file, with what is told after each: `.` for nothing, `ok`, or a part of what is wrong.
    type Looks = &'static [(Option<&'static str>, &'static str)];

    #[test]
    fn a_file_that_is_gone_or_emptied_is_told_once_and_so_is_that_it_is_back() {
        const GONE: &str = "the policy /policy.yaml cannot be read: entity not found";
        const EMPTY: &str = "the policy /policy.yaml is refused: the file is empty";
        let cases: [(&str, Looks); 7] = [
            ("nothing changes", &[(Some(GOOD), "ok"), (Some(GOOD), "."), (Some(OTHER), "ok")]),
            ("it is gone", &[(Some(GOOD), "ok"), (None, "."), (None, GONE), (None, "."), (None, ".")]),
            ("it is emptied", &[(Some(GOOD), "ok"), (Some(" \n"), "."), (Some(""), EMPTY), (Some(""), ".")]),
            ("it is back", &[(Some(GOOD), "ok"), (None, "."), (None, GONE), (Some(GOOD), "ok"), (None, ".")]),
            ("it is replaced", &[(Some(GOOD), "ok"), (None, "."), (Some(GOOD), "."), (Some(OTHER), "ok")]),
            ("there was none", &[(None, GONE), (None, "."), (Some(GOOD), "ok")]),
            ("it was empty", &[(Some(""), EMPTY), (Some(""), "."), (Some("a: b"), "takes no key a")]),
        ];
        for (case, looks) in cases {
            let mut file = PolicyFile::default();
            for (index, (text, expected)) in looks.iter().enumerate() {
                let text = text.map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into());
                let told = match file.observe(text, Path::new("/policy.yaml")) {
                    None => ".".to_owned(),
                    Some(Ok(_)) => "ok".to_owned(),
                    Some(Err(why)) => why,
                };
                assert!(
                    told.contains(expected) && (*expected == ".") == (told == "."),
                    "{case} {index}: {told}"
                );
            }
        }
    }
}
