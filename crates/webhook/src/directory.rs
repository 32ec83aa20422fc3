//! Existing certificates from a folder with `tls.crt` and `tls.key`, as cert-manager's Secrets have when mounted.
//!
//! Whoever makes them has them trusted too (cert-manager's injector does); nothing is written to the cluster.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::{ServingCertificate, Unusable};

/// How often the files are looked at. They are small, and the kubelet takes about a minute to change them.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why the files cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file cannot be read.
    #[error("{}: {why}; the folder must have tls.crt and tls.key", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: std::io::Error,
    },
    /// They make no certificate with its key. In the middle of a change this passes.
    #[error("{}: {why}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        why: Unusable,
    },
}

/// Serves with the certificate in a folder, whenever it changes.
pub struct Directory {
    folder: PathBuf,
    serving: Arc<ServingCertificate>,
    last: Option<(String, String)>,
}

impl Directory {
    /// Nothing is read yet: see [`Directory::reload`].
    pub fn new(folder: impl Into<PathBuf>, serving: Arc<ServingCertificate>) -> Self {
        Self { folder: folder.into(), serving, last: None }
    }

    /// Reads the files and serves with them if they are others than before. Tells whether they were.
    ///
    /// # Errors
    /// See [`DirectoryError`]; what was served before is served on.
    pub fn reload(&mut self) -> Result<bool, DirectoryError> {
        let read = |file: &str| {
            let path = self.folder.join(file);
            std::fs::read_to_string(&path).map_err(|why| DirectoryError::Read { path, why })
        };
        let found = (read("tls.crt")?, read("tls.key")?);
        if self.last.as_ref() == Some(&found) {
            return Ok(false);
        }
        let replaced = self.serving.replace(&found.0, &found.1);
        replaced.map_err(|why| DirectoryError::Unusable { folder: self.folder.clone(), why })?;
        self.last = Some(found);
        Ok(true)
    }

    /// Looks again and again until `shutdown`.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        loop {
            match self.reload() {
                Ok(true) => {
                    tracing::info!(folder = %self.folder.display(), "serving with another certificate")
                }
                Ok(false) => {}
                Err(why) => tracing::warn!(%why, "the webhook's certificate cannot be taken over"),
            }
            tokio::select! {
                () = &mut shutdown => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::Certificates;
    use crate::rotation::Lifetimes;

    fn write(folder: &std::path::Path, certificate: &str, key: &str) {
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
    }

    #[test]
    fn changed_files_are_taken_over_and_broken_ones_are_not() {
        let folder = std::env::temp_dir().join(format!("usher-webhook-directory-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let serving = Arc::new(ServingCertificate::default());
        let mut directory = Directory::new(&folder, serving.clone());
        assert!(matches!(directory.reload(), Err(DirectoryError::Read { .. })));
        assert!(!serving.is_present());

        let make = || {
            let names = ["127.0.0.1".to_owned()];
            Certificates::create(&names, &Lifetimes::default(), jiff::Timestamp::now()).unwrap().serving
        };
        let (first, second) = (make(), make());
        write(&folder, &first.certificate, &first.key);
        assert!(directory.reload().unwrap());
        assert!(serving.is_present());
        assert!(!directory.reload().unwrap(), "nothing changed");

        write(&folder, &second.certificate, &first.key);
        assert!(matches!(directory.reload(), Err(DirectoryError::Unusable { .. })), "half of a change");
        write(&folder, &second.certificate, &second.key);
        assert!(directory.reload().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
