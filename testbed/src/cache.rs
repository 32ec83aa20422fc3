//! Where built binaries and running instances live: outside the work tree, and apart per content of what is built.

use crate::Error;
use crate::binaries::Set;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the folder of the cache.
pub(crate) const CACHE_VARIABLE: &str = "USHER_TESTBED_CACHE";

/// The folder of everything the testbed keeps: `$USHER_TESTBED_CACHE`, or `usher-testbed` in the user's cache folder.
pub(crate) fn root() -> Result<PathBuf, Error> {
    root_from(|variable| std::env::var_os(variable).filter(|value| !value.is_empty()))
}

fn root_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Error> {
    let root = if let Some(folder) = variable(CACHE_VARIABLE) {
        PathBuf::from(folder)
    } else if let Some(folder) = variable("XDG_CACHE_HOME") {
        Path::new(&folder).join("usher-testbed")
    } else if let Some(folder) = variable("HOME") {
        Path::new(&folder).join(".cache/usher-testbed")
    } else {
        return Err(Error::NoCacheFolder);
    };
    // Components run with another working folder, so that a relative path would point elsewhere.
    std::path::absolute(&root).map_err(Error::io("cannot resolve", root))
}

/// The folder that holds a folder per running instance.
pub(crate) fn instances_folder() -> Result<PathBuf, Error> {
    Ok(root()?.join("run"))
}

/// The environment of every build, part of the key because it changes what comes out.
pub(crate) const BUILD_ENVIRONMENT: [(&str, &str); 3] =
    [("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly -buildvcs=false"), ("GOWORK", "off")];

/// Names what is built: another pin, flag, Go release or platform gives another key, so that a cache is never stale.
pub(crate) fn key(go: &str, set: &Set) -> String {
    let mut hash = Fnv::new();
    hash.add(go);
    for (variable, value) in BUILD_ENVIRONMENT {
        hash.add(variable);
        hash.add(value);
    }
    for module in set.modules {
        for (name, content) in module.files {
            hash.add(module.name);
            hash.add(name);
            hash.add(content);
        }
    }
    for binary in set.binaries {
        hash.add(binary.package());
        hash.add(&binary.ldflags());
    }
    format!("{:032x}", hash.0)
}

/// FNV-1a with 128 bits: the same in every release of Rust, and there is nobody to defend against here.
struct Fnv(u128);

impl Fnv {
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

    fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds a text and its length, so that moving a byte from one text to the next gives another hash.
    fn add(&mut self, text: &str) {
        for byte in (text.len() as u64).to_be_bytes().iter().chain(text.as_bytes()) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }
}

/// Fails where `folder` has less room than `needed_mib`. Where free space cannot be told, the build is let go ahead.
pub(crate) fn require_space(folder: &Path, needed_mib: u64, variable: &'static str) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("cannot create", folder))?;
    match free_mib(folder) {
        Some(free_mib) if free_mib < needed_mib => {
            Err(Error::DiskFull { folder: folder.to_path_buf(), free_mib, needed_mib, variable })
        }
        _ => Ok(()),
    }
}

fn free_mib(folder: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(folder).stdin(Stdio::null()).output().ok()?;
    parse_df(&String::from_utf8(output.stdout).ok()?)
}

fn parse_df(output: &str) -> Option<u64> {
    let available: u64 = output.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(available / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::{CHARTS, CONTROL_PLANE};

    #[test]
    fn the_key_follows_what_is_built() {
        let key_of = |go| key(go, &CONTROL_PLANE);
        assert_eq!(key_of("go1.26.8 linux amd64"), key_of("go1.26.8 linux amd64"));
        assert_ne!(key_of("go1.26.8 linux amd64"), key_of("go1.26.9 linux amd64"));
        assert_eq!(key_of("x").len(), 32);
        assert_ne!(key_of("x"), key("x", &CHARTS));
    }

    #[test]
    fn the_hash_sees_where_one_text_ends() {
        let hash = |texts: [&str; 2]| {
            let mut hash = Fnv::new();
            texts.iter().for_each(|text| hash.add(text));
            hash.0
        };
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
    }

    #[test]
    fn the_cache_is_named_by_the_most_specific_variable() {
        let from = |pairs: &'static [(&str, &str)]| {
            root_from(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| OsString::from(pair.1)))
        };
        let all = &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), (CACHE_VARIABLE, "/c")];
        assert_eq!(from(all).unwrap(), Path::new("/c"));
        assert_eq!(from(&all[..2]).unwrap(), Path::new("/x/usher-testbed"));
        assert_eq!(from(&all[..1]).unwrap(), Path::new("/h/.cache/usher-testbed"));
        assert!(matches!(from(&[]), Err(Error::NoCacheFolder)));
    }

    #[test]
    fn a_full_disk_is_found_before_the_build() {
        let df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 1000000 1 2097152 1% /\n";
        assert_eq!(parse_df(df), Some(2048));
        let error = require_space(&std::env::temp_dir(), u64::MAX, CACHE_VARIABLE).unwrap_err();
        assert!(error.to_string().contains("not enough disk space"), "{error}");
    }
}
