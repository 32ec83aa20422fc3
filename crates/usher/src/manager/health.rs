//! Whether the manager is alive, and ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use usher_controllers::Controller;
use usher_controllers::pulse::Pulse;
use usher_webhook::ServingCertificate;

/// A loop that is silent for so long is stuck. Its longest step, over 150,000 requests, takes a fraction of that.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    /// Nothing is known yet.
    #[default]
    Starting,
    /// Another replica acts, or a gate is off: ready to step in.
    StandingBy,
    /// It acts, but these are still reading what there is.
    Acting(BTreeSet<Controller>),
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

    /// These have begun to read what there is.
    pub fn acts(&self, controllers: impl IntoIterator<Item = Controller>) {
        *self.state.lock() = State::Acting(controllers.into_iter().collect());
    }

    /// The watches have told this one what there is.
    pub fn synced(&self, controller: Controller) {
        if let State::Acting(reading) = &mut *self.state.lock() {
            reading.remove(&controller);
        }
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
        match &*self.state.lock() {
            State::Starting => Err("starting".to_string()),
            State::StandingBy => Ok("ok: standing by"),
            State::Acting(reading) if reading.is_empty() => Ok("ok: acting"),
            State::Acting(reading) => {
                let names: Vec<String> = reading.iter().map(ToString::to_string).collect();
                Err(format!("waiting for the watches to sync: {}", names.join(", ")))
            }
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
        // Both have to know, whoever is first.
        let both = [Controller::EvictionRequests, Controller::NodeMaintenances];
        for [first, second] in [both, [both[1], both[0]]] {
            health.acts(both);
            assert!(health.ready().unwrap_err().contains("watches"));
            health.synced(first);
            assert!(health.ready().unwrap_err().ends_with(&second.to_string()));
            health.synced(second);
            assert_eq!(health.ready(), Ok("ok: acting"));
        }
        health.acts([Controller::NodeMaintenances]);
        health.synced(Controller::NodeMaintenances);
        assert_eq!(health.ready(), Ok("ok: acting"), "the gate of the other is off");
        health.stands_by();
        health.synced(Controller::EvictionRequests);
        assert_eq!(health.ready(), Ok("ok: standing by"), "a run that has ended says nothing any more");
    }
}
