//! What is still right to do while effects are carried out, one after another: what is not done decides about what comes after it.

/// On what an effect depends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Depends<T> {
    /// It is tried as long as everything else on this was done, and whatever comes after it depends on it in turn.
    On(T),
    /// The same, but nothing depends on it.
    Beside(T),
    /// It is about the effect before it, and is tried if that was done.
    OnPrevious,
    OnNothing,
}

/// A decision, as far as it is carried out. The subjects are what effects are about, such as pods.
#[derive(Debug)]
pub struct CarryOut<T> {
    failed: Vec<T>,
    is_previous_done: bool,
}

impl<T> Default for CarryOut<T> {
    fn default() -> Self {
        Self { failed: Vec::new(), is_previous_done: true }
    }
}

impl<T: PartialEq> CarryOut<T> {
    /// Whether the next effect is still right to do. If it is, it has to be told what came of it.
    pub fn may_try(&mut self, next: &Depends<T>) -> bool {
        let may = match next {
            Depends::On(subject) | Depends::Beside(subject) => !self.failed.contains(subject),
            Depends::OnPrevious => self.is_previous_done,
            Depends::OnNothing => true,
        };
        self.is_previous_done &= may;
        may
    }

    pub fn tried(&mut self, effect: Depends<T>, is_done: bool) {
        self.is_previous_done = is_done;
        if let Depends::On(subject) = effect
            && !is_done
        {
            self.failed.push(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::samples::{pod, request};
    use super::super::{Effect, complete};
    use super::Depends::{Beside, On, OnNothing, OnPrevious};
    use super::*;

    #[test]
    fn what_is_done_to_a_pod_depends_on_its_reports_and_a_mark_stops_nothing() {
        let pod = pod("a", "ReplicaSet", "web", "n", json!({}));
        let request = request("a", "x.io", json!({}));
        let on = || Some(pod.uid.clone());
        for (effect, wanted) in [
            (complete(&request, String::new()), On(on())),
            (Effect::DeletePod { pod: pod.clone(), version: None }, On(on())),
            (Effect::DropHandOver { pod: pod.clone() }, On(on())),
            (Effect::Prefer { pod: pod.clone(), cost: None, before: None }, Beside(on())),
            (Effect::HoldNodes(Arc::default()), On(None)),
        ] {
            assert_eq!(effect.depends(), wanted, "{effect:?}");
        }
    }

    /// Which effects are tried, when these fail.
    fn tried(effects: &[Depends<&str>], fail: &[usize]) -> Vec<usize> {
        let mut carry_out = CarryOut::default();
        let mut tried = Vec::new();
        for (place, effect) in effects.iter().enumerate() {
            if carry_out.may_try(effect) {
                tried.push(place);
                carry_out.tried(effect.clone(), !fail.contains(&place));
            }
        }
        tried
    }

    #[test]
    fn what_is_not_done_is_followed_by_nothing_that_depends_on_it() {
        let reports = [On("a"), On("b"), On("a"), On("b")];
        let marks = [Beside("a"), On("a"), Beside("a")];
        let moves = [On("a"), OnPrevious, On("a"), OnPrevious, On("b"), OnPrevious];
        let files = [OnNothing, OnPrevious, OnNothing, OnPrevious];
        for (effects, fail, wanted) in [
            (&reports[..], &[][..], &[0, 1, 2, 3][..]),
            (&reports, &[0], &[0, 1, 3]),
            (&reports, &[0, 1], &[0, 1]),
            (&reports, &[2], &[0, 1, 2, 3]),
            // A mark stops nothing, and is not set where something else was not done.
            (&marks, &[0], &[0, 1, 2]),
            (&marks, &[1], &[0, 1]),
            // What is told is about the effect before it, also where that was not even tried.
            (&moves, &[0], &[0, 4, 5]),
            (&moves, &[2], &[0, 1, 2, 4, 5]),
            (&moves, &[1], &[0, 1, 2, 3, 4, 5]),
            (&files, &[0], &[0, 2, 3]),
            (&[OnPrevious], &[], &[0]),
        ] {
            assert_eq!(tried(effects, fail), wanted, "{effects:?}, of which fail {fail:?}");
        }
    }
}
