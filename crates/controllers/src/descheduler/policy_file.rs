//! The policy file, read again whenever it changes: a ConfigMap that is mounted is replaced as a whole.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use usher_descheduler::Policy;

use super::Policies;

/// A file is looked at this often. The kubelet brings a changed ConfigMap within about a minute.
const LOOK: Duration = Duration::from_secs(5);

/// Reads a policy.
///
/// # Errors
/// There is none, or it is wrong: in words for people, a line for each error.
pub fn read(path: &std::path::Path) -> Result<Policy, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|why| format!("the policy {} cannot be read: {why}", path.display()))?;
    understood(&text, path)
}

fn understood(text: &str, path: &std::path::Path) -> Result<Policy, String> {
    Policy::read(text).map_err(|errors| format!("the policy {} is refused: {errors}", path.display()))
}

/// The policy, and each that takes its place.
pub fn follow(path: PathBuf) -> Policies {
    futures::stream::unfold((path, None::<String>), |(path, mut known)| async {
        loop {
            let text = std::fs::read_to_string(&path);
            match text {
                Ok(text) if known.as_ref() != Some(&text) => {
                    let policy = understood(&text, &path);
                    return Some((policy, (path, Some(text))));
                }
                Ok(_) => {}
                Err(why) if known.is_none() => {
                    known = Some(String::new());
                    return Some((
                        Err(format!("the policy {} cannot be read: {why}", path.display())),
                        (path, known),
                    ));
                }
                // It is being replaced, or gone: what was read holds.
                Err(_) => {}
            }
            tokio::time::sleep(LOOK).await;
        }
    })
    .boxed()
}
