//! The figures of a benchmark, each with its aim.

use anyhow::{Result, bail};

#[derive(Debug, Default)]
pub struct Report {
    missed: usize,
}

impl Report {
    /// Prints a figure and whether it meets its aim.
    pub fn line(&mut self, what: &str, figure: String, aim: &str, met: bool) {
        let verdict = if met { "met" } else { "MISSED" };
        println!("{what:<62} {figure:>20}   aim {aim:<12} {verdict}");
        self.missed += usize::from(!met);
    }

    /// # Errors
    /// An aim was missed.
    pub fn verdict(&self) -> Result<()> {
        if self.missed > 0 {
            bail!("{} of the aims missed", self.missed);
        }
        Ok(())
    }
}
