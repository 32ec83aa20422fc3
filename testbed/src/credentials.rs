//! Certificates, tokens and kubeconfigs of one control plane. Made anew for each, and gone with it.

use crate::Error;
use crate::options::User;
use base64::Engine;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(crate) const ADMIN: &str = "admin";
pub(crate) const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
pub(crate) const SCHEDULER: &str = "system:kube-scheduler";
pub(crate) const KWOK: &str = "testbed:kwok";

/// Names a serving certificate is good for: all parts run on loopback, and the API server is `kubernetes` inside.
const SERVING_NAMES: [&str; 7] = [
    "127.0.0.1",
    // Its Service, as pods have it in their environment.
    "10.96.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// All files that let the parts, and the caller, trust each other.
pub(crate) struct Credentials {
    folder: PathBuf,
    pub(crate) ca_pem: String,
    tokens: BTreeMap<String, String>,
}

impl Credentials {
    /// Writes a CA, one certificate for serving and for being a client, the service account key, and the token file.
    pub(crate) fn create(folder: &Path, users: &[User]) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::io("cannot create", folder))?;
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::new(Vec::<String>::new())?;
        ca.distinguished_name.push(DnType::CommonName, "usher-testbed-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_pem = ca.self_signed(&ca_key)?.pem();
        let ca_key_pem = ca_key.serialize_pem();
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate()?;
        let mut leaf = CertificateParams::new(SERVING_NAMES.map(String::from).to_vec())?;
        leaf.distinguished_name.push(DnType::CommonName, "usher-testbed");
        leaf.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let leaf_pem = leaf.signed_by(&key, &issuer)?.pem();

        let mut all_users = vec![
            User::new(ADMIN).with_group("system:masters"),
            User::new(CONTROLLER_MANAGER),
            User::new(SCHEDULER),
            User::new(KWOK).with_group("system:masters"),
        ];
        all_users.extend_from_slice(users);
        let mut tokens = BTreeMap::new();
        let mut token_file = String::new();
        for user in &all_users {
            let token = user.token.clone().map_or_else(random_token, Ok)?;
            token_file.push_str(&format!("{token},{0},{0},\"{1}\"\n", user.name, user.groups.join(",")));
            tokens.insert(user.name.clone(), token);
        }

        let credentials = Self { folder: folder.to_path_buf(), ca_pem, tokens };
        write_private(&credentials.ca_file(), &credentials.ca_pem)?;
        write_private(&credentials.ca_key_file(), &ca_key_pem)?;
        write_private(&credentials.certificate_file(), &leaf_pem)?;
        write_private(&credentials.key_file(), &key.serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        write_private(&credentials.service_account_key_file(), &service_accounts.serialize_pem())?;
        write_private(&credentials.service_account_public_key_file(), &service_accounts.public_key_pem())?;
        write_private(&credentials.token_file(), &token_file)?;
        Ok(credentials)
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub(crate) fn ca_key_file(&self) -> PathBuf {
        self.folder.join("ca.key")
    }

    /// The certificate that all parts serve with, and show to etcd.
    pub(crate) fn certificate_file(&self) -> PathBuf {
        self.folder.join("testbed.crt")
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.folder.join("testbed.key")
    }

    pub(crate) fn service_account_key_file(&self) -> PathBuf {
        self.folder.join("service-account.key")
    }

    pub(crate) fn service_account_public_key_file(&self) -> PathBuf {
        self.folder.join("service-account.pub")
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.folder.join("tokens.csv")
    }

    pub(crate) fn token(&self, user: &str) -> Result<&str, Error> {
        self.tokens.get(user).map(String::as_str).ok_or_else(|| Error::UnknownUser(user.to_owned()))
    }

    /// Writes a kubeconfig of `user` to `path`.
    pub(crate) fn write_kubeconfig(&self, path: &Path, url: &str, user: &str) -> Result<(), Error> {
        let config = kubeconfig(url, &self.ca_pem, user, self.token(user)?);
        write_private(path, &format!("{config:#}\n"))
    }
}

/// A kubeconfig in JSON, which is YAML too.
fn kubeconfig(url: &str, ca_pem: &str, user: &str, token: &str) -> Value {
    let ca = base64::engine::general_purpose::STANDARD.encode(ca_pem);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": {"server": url, "certificate-authority-data": ca}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
        "current-context": "testbed",
    })
}

fn random_token() -> Result<String, Error> {
    let path = "/dev/urandom";
    let mut bytes = [0_u8; 16];
    let mut source = fs::File::open(path).map_err(Error::io("cannot read", path))?;
    source.read_exact(&mut bytes).map_err(Error::io("cannot read", path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Only the owner may read keys and tokens.
fn write_private(path: &Path, content: &str) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .map_err(Error::io("cannot write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_get_the_token_they_picked_or_one_of_their_own() {
        let folder = std::env::temp_dir().join(format!("testbed-credentials-{}", std::process::id()));
        let users =
            [User::new("picked").with_token("secret").with_group("a").with_group("b"), User::new("other")];
        let credentials = Credentials::create(&folder, &users).unwrap();
        assert_eq!(credentials.token("picked").unwrap(), "secret");
        assert_eq!(credentials.token("other").unwrap().len(), 32);
        assert_ne!(credentials.token("other").unwrap(), credentials.token(ADMIN).unwrap());
        assert!(matches!(credentials.token("stranger"), Err(Error::UnknownUser(_))));
        let file = fs::read_to_string(credentials.token_file()).unwrap();
        assert!(file.contains("secret,picked,picked,\"a,b\"\n"), "{file}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_kubeconfig_never_turns_verification_off() {
        let config = kubeconfig("https://127.0.0.1:1", "PEM", "viewer", "t");
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], "UEVN");
        assert!(!config.to_string().contains("insecure"));
    }
}
