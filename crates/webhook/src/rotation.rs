//! When certificates change, decided purely from what is held and the time.
//!
//! A certificate authority is replaced in three steps, so that no API server ever meets a certificate it does not trust:
//! 1. the next authority is made and trusted beside the present one, but signs nothing;
//! 2. after the overlap it takes over and signs a new serving certificate; the old authority stays trusted, as a replica may
//!    not have reloaded yet;
//! 3. after another overlap the old one is dropped.
//!
//! What has expired already is trusted by nobody, so then there is nothing to overlap and all is made anew.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// From when until when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The first moment.
    pub not_before: Timestamp,
    /// The last moment.
    pub not_after: Timestamp,
}

/// The dates of all that is held, which is all that the decision needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dates {
    /// The authority that signs.
    pub authority: Validity,
    /// The one that will, and since when it is trusted.
    pub next: Option<(Validity, Timestamp)>,
    /// Until when the one before stays trusted.
    pub previous_until: Option<Timestamp>,
    /// The serving certificate.
    pub serving: Validity,
    /// Whether it is for the names that are served now.
    pub names_match: bool,
}

/// How long things last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetimes {
    /// Life of an authority.
    pub authority: SignedDuration,
    /// How long before its end its successor is introduced. Longer than the life of a serving certificate, so that none
    /// outlives the authority that signed it.
    pub replace_authority: SignedDuration,
    /// Life of a serving certificate.
    pub serving: SignedDuration,
    /// How long before its end it is renewed.
    pub renew_serving: SignedDuration,
    /// How long two authorities are trusted together before and after the change. Longer than any replica or API server needs
    /// to learn of it.
    pub overlap: SignedDuration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        let days = |days: i64| SignedDuration::from_hours(24 * days);
        Self {
            authority: days(730),
            replace_authority: days(120),
            serving: days(90),
            renew_serving: days(30),
            overlap: days(1),
        }
    }
}

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Make everything: there is nothing yet, or nothing that is still valid.
    Create,
    /// Make the next authority and trust it.
    IntroduceAuthority,
    /// Let the next authority take over and sign.
    Promote,
    /// Sign another serving certificate.
    RenewServing,
    /// Trust the authority before the present one no longer.
    DropPrevious,
    /// Nothing, until then.
    Wait(Timestamp),
}

/// The next thing to do. Doing it and asking again comes to [`Step::Wait`] soon.
pub fn next_step(held: Option<&Dates>, lifetimes: &Lifetimes, now: Timestamp) -> Step {
    let Some(held) = held else { return Step::Create };
    let next_usable = held.next.filter(|(validity, _)| now < validity.not_after);
    let promote_at =
        next_usable.map(|(_, since)| after(since, lifetimes.overlap).min(held.authority.not_after));
    let introduce_at = before(held.authority.not_after, lifetimes.replace_authority);
    let renew_at = before(held.serving.not_after, lifetimes.renew_serving);

    if promote_at.is_some_and(|at| at <= now) {
        Step::Promote
    } else if held.authority.not_after <= now {
        Step::Create
    } else if next_usable.is_none() && introduce_at <= now {
        Step::IntroduceAuthority
    } else if !held.names_match || renew_at <= now {
        Step::RenewServing
    } else if held.previous_until.is_some_and(|until| until <= now) {
        Step::DropPrevious
    } else {
        let introduce_at = if next_usable.is_none() { Some(introduce_at) } else { None };
        let upcoming = [promote_at, introduce_at, Some(renew_at), held.previous_until];
        Step::Wait(upcoming.into_iter().flatten().min().unwrap_or(now))
    }
}

/// `at + duration`, as far as time goes.
pub(crate) fn after(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn before(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(day * DAY).unwrap()
    }

    fn valid(from: i64, to: i64) -> Validity {
        Validity { not_before: day(from), not_after: day(to) }
    }

    /// An authority of days 0 to 730 and a serving certificate of days 0 to 90.
    fn fresh() -> Dates {
        Dates {
            authority: valid(0, 730),
            next: None,
            previous_until: None,
            serving: valid(0, 90),
            names_match: true,
        }
    }

    #[test]
    fn the_step_depends_on_the_dates_and_the_time() {
        let late = Dates { serving: valid(600, 690), ..fresh() };
        let introduced =
            Dates { next: Some((valid(610, 1340), day(610))), serving: valid(600, 690), ..fresh() };
        let promoted = Dates {
            authority: valid(610, 1340),
            next: None,
            previous_until: Some(day(612)),
            serving: valid(611, 701),
            names_match: true,
        };
        let cases: [(&str, Option<Dates>, i64, Step); 15] = [
            ("nothing is there", None, 0, Step::Create),
            ("all is fresh", Some(fresh()), 1, Step::Wait(day(60))),
            ("the serving certificate nears its end", Some(fresh()), 60, Step::RenewServing),
            ("it has expired", Some(fresh()), 91, Step::RenewServing),
            ("other names", Some(Dates { names_match: false, ..fresh() }), 1, Step::RenewServing),
            ("long before the authority ends", Some(late.clone()), 609, Step::Wait(day(610))),
            ("the authority nears its end", Some(late.clone()), 610, Step::IntroduceAuthority),
            ("both expired", Some(late), 730, Step::Create),
            (
                "the next authority is not trusted for long enough",
                Some(introduced.clone()),
                610,
                Step::Wait(day(611)),
            ),
            ("it is", Some(introduced.clone()), 611, Step::Promote),
            ("the present one expired while nobody looked", Some(introduced.clone()), 900, Step::Promote),
            ("and the next one too", Some(introduced), 1340, Step::Create),
            ("the previous one is still needed", Some(promoted.clone()), 611, Step::Wait(day(612))),
            ("it is no longer", Some(promoted.clone()), 612, Step::DropPrevious),
            (
                "and then there is peace",
                Some(Dates { previous_until: None, ..promoted }),
                612,
                Step::Wait(day(671)),
            ),
        ];
        for (what, held, now, wanted) in cases {
            assert_eq!(next_step(held.as_ref(), &Lifetimes::default(), day(now)), wanted, "{what}");
        }
    }

    #[test]
    fn no_serving_certificate_outlives_its_authority() {
        let lifetimes = Lifetimes::default();
        assert!(lifetimes.serving + lifetimes.overlap < lifetimes.replace_authority);
        assert!(lifetimes.renew_serving < lifetimes.serving);
        assert!(lifetimes.replace_authority + lifetimes.overlap < lifetimes.authority);
    }
}
