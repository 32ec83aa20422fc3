//! systemd-logind over D-Bus: it tells of a shutdown before it happens, and waits for those who ask it to.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Manager {
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<zbus::OwnedFd>;
    #[zbus(signal)]
    fn prepare_for_shutdown(&self, start: bool) -> zbus::Result<()>;
    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;
    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Systemd {
    fn kill_unit(&self, name: &str, whom: &str, signal: i32) -> zbus::Result<()>;
}

/// By which logind reads its files anew. It has no call for that.
const SIGHUP: i32 = 1;

#[derive(Debug, thiserror::Error)]
#[error(
    "systemd-logind cannot be used: {0}; shutdowns of the node are not delayed. See that D-Bus is reachable, or switch it off with --delay-shutdown=false"
)]
pub struct LogindError(#[from] zbus::Error);

/// The shutdown does not go on while this is held, up to logind's limit.
pub struct Inhibitor {
    _held: zbus::OwnedFd,
}

/// A connection to logind.
pub struct Logind(ManagerProxy<'static>);

impl Logind {
    /// # Errors
    /// The bus, or logind on it, cannot be reached.
    pub async fn connect(address: &str) -> Result<Self, LogindError> {
        let connection = zbus::connection::Builder::address(address).build().await?;
        let proxy = ManagerProxy::builder(&connection)
            .cache_properties(zbus::proxy::CacheProperties::No)
            .build()
            .await?;
        proxy.preparing_for_shutdown().await?;
        Ok(Self(proxy))
    }

    /// # Errors
    /// logind refuses: it is shutting down already.
    pub async fn inhibit(&self) -> Result<Inhibitor, LogindError> {
        let why = "Pods leave the node before it shuts down";
        Ok(Inhibitor { _held: self.0.inhibit("shutdown", "usher node-agent", why, "delay").await? })
    }

    /// How long a shutdown is delayed at most.
    ///
    /// # Errors
    /// logind does not answer.
    pub async fn longest_delay(&self) -> Result<Duration, LogindError> {
        Ok(Duration::from_micros(self.0.inhibit_delay_max_usec().await?))
    }

    /// Its files are read anew, a moment later.
    ///
    /// # Errors
    /// systemd does not answer, or refuses.
    pub async fn reload(&self) -> Result<(), LogindError> {
        let systemd = SystemdProxy::new(self.0.inner().connection()).await?;
        Ok(systemd.kill_unit("systemd-logind.service", "all", SIGHUP).await?)
    }

    /// # Errors
    /// logind does not answer.
    pub async fn is_shutting_down(&self) -> Result<bool, LogindError> {
        Ok(self.0.preparing_for_shutdown().await?)
    }

    /// `true` when a shutdown begins, `false` when it was cancelled. It ends with the connection.
    ///
    /// # Errors
    /// logind does not answer.
    pub async fn shutdowns(&self) -> Result<BoxStream<'static, bool>, LogindError> {
        let signals = self.0.receive_prepare_for_shutdown().await?;
        Ok(signals.filter_map(|it| async move { it.args().ok().map(|it| it.start) }).boxed())
    }
}
