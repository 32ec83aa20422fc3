//! Whether the manager is alive, and ready.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use usher_controllers::pulse::Pulse;
use usher_webhook::ServingCertificate;

/// A loop that is silent for so long is stuck. Its longest step, over 150,000 requests, takes a fraction of that.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// Another replica acts, or a gate is off: ready to step in.
    StandingBy,
    /// It acts, and is still reading what there is.
    Reading,
    /// It acts.
    Acting,
}

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
    pulse: Pulse,
    /// What admission is served with.
    pub certificate: Arc<ServingCertificate>,
}

impl Health {
    pub fn stands_by(&self) {
        *self.state.lock() = State::StandingBy;
    }

    pub fn acts(&self) {
        *self.state.lock() = State::Reading;
    }

    /// The watches have told what there is.
    pub fn synced(&self) {
        *self.state.lock() = State::Acting;
    }

    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Whether the process is alive; else why it should be started anew.
    pub fn alive(&self) -> Result<&'static str, String> {
        match self.pulse.silence() {
            Some(silence) if silence > LONGEST_SILENCE => {
                Err(format!("the controller has been silent for {} s", silence.as_secs()))
            }
            _ => Ok("ok"),
        }
    }

    /// Whether it does its part; else what is missing.
    pub fn ready(&self) -> Result<&'static str, String> {
        if !self.certificate.is_present() {
            return Err("there is no certificate yet to serve admission with".to_string());
        }
        match *self.state.lock() {
            State::Starting => Err("starting".to_string()),
            State::StandingBy => Ok("ok: standing by"),
            State::Reading => Err("the watches have not told yet what there is".to_string()),
            State::Acting => Ok("ok: acting"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_webhook::certificates::Certificates;
    use usher_webhook::rotation::Lifetimes;

    #[test]
    fn ready_means_standing_by_or_knowing_what_there_is() {
        let health = Health::default();
        health.stands_by();
        assert!(health.ready().unwrap_err().contains("certificate"));
        let names = ["localhost".to_string()];
        let made =
            Certificates::create(&names, &Lifetimes::default(), jiff::Timestamp::now()).unwrap().serving;
        health.certificate.replace(&made.certificate, &made.key).unwrap();
        health.stands_by();
        assert_eq!(health.ready(), Ok("ok: standing by"));
        health.acts();
        assert!(health.ready().unwrap_err().contains("watches"));
        health.synced();
        assert_eq!(health.ready(), Ok("ok: acting"));
    }
}
