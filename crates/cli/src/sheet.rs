//! Text with names on the left and what there is to say of them on the right.

use crate::Environment;
use crate::screen::fold;

/// How wide the names are.
const INDENT: usize = 14;
/// Lines are not broken into pieces shorter than this.
const NARROWEST: usize = 30;

#[derive(Debug, Default)]
pub struct Sheet {
    pub text: String,
    /// How many letters fit into a line, if that is known.
    width: Option<usize>,
}

impl Sheet {
    pub fn new(environment: &Environment) -> Self {
        Self { text: String::new(), width: environment.width }
    }

    pub fn headline(&mut self, line: &str) {
        for line in fold(line, self.width.unwrap_or(usize::MAX)) {
            self.text.push_str(&line);
            self.space();
        }
        self.space();
    }

    pub fn put(&mut self, name: &str, lines: &str) {
        let width = self.room().unwrap_or(usize::MAX);
        for (at, line) in lines.lines().flat_map(|line| fold(line, width)).enumerate() {
            let name = if at == 0 { name } else { "" };
            self.text.push_str(format!("{name:<INDENT$}{line}").trim_end());
            self.text.push('\n');
        }
    }

    /// How many letters fit behind a name, if that is known.
    pub fn room(&self) -> Option<usize> {
        self.width.map(|width| width.saturating_sub(INDENT).max(NARROWEST))
    }

    pub fn space(&mut self) {
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_go_on_below_what_is_said() {
        let mut sheet = Sheet { width: Some(44), ..Sheet::default() };
        sheet.put("Waiting on", "disruption budget web does not allow it");
        assert_eq!(sheet.text, "Waiting on    disruption budget web does not\n              allow it\n");
    }
}
