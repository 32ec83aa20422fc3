//! The figures of a run, each with the aim it is judged by.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::size::Size;

/// What the value of a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Aim {
    AtMost(f64),
    AtLeast(f64),
}

/// The runs in which an aim is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Judged {
    /// For counts: they are the same on every machine and in every build.
    Always,
    /// For ratios of two measurements in one run: they are the same on every machine, but baselines such as kubectl are always optimised.
    InReleaseBuilds,
    /// For times, rates and amounts of memory: their aims belong to one size and a release build.
    AtFullSize,
}

/// What became of an aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Met,
    Missed,
    /// The figure has no aim, or none at the size of this run.
    NotJudged,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotJudged => "not judged",
        })
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    name: String,
    value: f64,
    unit: String,
    aim: Option<Aim>,
    judged: Judged,
}

impl Figure {
    /// The ratio of two measurements in this run.
    pub fn ratio(name: impl Into<String>, value: f64) -> Self {
        Self { judged: Judged::InReleaseBuilds, ..Self::measured(name, value, "times") }
    }

    /// A number of things, or an average of such numbers.
    pub fn count(name: impl Into<String>, value: f64) -> Self {
        Self { judged: Judged::Always, ..Self::measured(name, value, "") }
    }

    /// A time, a rate or an amount of memory on this machine.
    pub fn measured(name: impl Into<String>, value: f64, unit: &str) -> Self {
        Self { name: name.into(), value, unit: unit.to_owned(), aim: None, judged: Judged::AtFullSize }
    }

    #[must_use]
    pub fn at_most(self, most: f64) -> Self {
        Self { aim: Some(Aim::AtMost(most)), ..self }
    }

    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        Self { aim: Some(Aim::AtLeast(least)), ..self }
    }

    /// Judges a ratio or count only at full size, because it depends on the size.
    #[must_use]
    pub fn at_full_size(self) -> Self {
        Self { judged: Judged::AtFullSize, ..self }
    }

    pub fn verdict(&self, size: Size) -> Verdict {
        let is_judged = match self.judged {
            Judged::Always => true,
            Judged::InReleaseBuilds => is_optimised(),
            Judged::AtFullSize => is_optimised() && size.is_full(),
        };
        let is_met = match self.aim.filter(|_| is_judged) {
            None => return Verdict::NotJudged,
            Some(Aim::AtMost(most)) => self.value <= most,
            Some(Aim::AtLeast(least)) => self.value >= least,
        };
        if is_met { Verdict::Met } else { Verdict::Missed }
    }

    /// One line of a table.
    pub fn line(&self, size: Size) -> String {
        let value = format!("{} {}", number(self.value), self.unit);
        let aim = match self.aim {
            None => String::new(),
            Some(Aim::AtMost(most)) => format!("aim <= {}", number(most)),
            Some(Aim::AtLeast(least)) => format!("aim >= {}", number(least)),
        };
        format!("{:<66} {:>14}   {aim:<14} {}", self.name, value.trim_end(), self.verdict(size))
    }
}

/// Whether this program is a release build. Times of another one mean nothing.
pub fn is_optimised() -> bool {
    // No profile of ours has debug assertions, so that only the folder of the build tells them apart.
    std::env::current_exe().is_ok_and(|program| !program.iter().any(|folder| folder == "debug"))
}

/// Three significant digits are more than two runs have in common.
fn number(value: f64) -> String {
    match value.abs() {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.01.. => format!("{value:.3}"),
        _ => format!("{value:.5}"),
    }
}

/// Collects the figures of one group and prints each as soon as it is measured.
#[derive(Debug)]
pub struct Report {
    size: Size,
    /// Figures are also handed to the process that started this one.
    hands_over: bool,
    figures: Vec<Figure>,
}

/// Marks a line of the output that hands over a figure.
const HANDED_OVER: &str = "figure-as-json: ";

impl Report {
    pub fn new(size: Size, hands_over: bool) -> Self {
        Self { size, hands_over, figures: Vec::new() }
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn add(&mut self, figure: Figure) {
        println!("{}", figure.line(self.size));
        if self.hands_over
            && let Ok(json) = serde_json::to_string(&figure)
        {
            println!("{HANDED_OVER}{json}");
        }
        self.figures.push(figure);
    }

    pub fn into_figures(self) -> Vec<Figure> {
        self.figures
    }
}

/// The figure that a line of another process hands over, if it does.
pub fn handed_over(line: &str) -> Option<Figure> {
    serde_json::from_str(line.strip_prefix(HANDED_OVER)?).ok()
}
