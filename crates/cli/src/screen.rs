//! A part of the terminal where text is drawn over and over.

use console::{Term, measure_text_width, truncate_str};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::escaped_lines;

pub struct Screen(ProgressBar);

/// In letters and lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

impl Screen {
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        let style =
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        Self(bar)
    }

    /// How large it is now.
    pub fn size(&self) -> Size {
        let (height, width) = Term::stdout().size();
        Size { width: width.into(), height: height.into() }
    }

    /// Draws the text in the place of what was drawn before. A line that does not fit is cut: where it went on in the next one,
    /// not all of it could be removed again.
    pub fn draw(&self, text: &str) {
        let width = self.size().width;
        let text = escaped_lines(text, true);
        let lines = text.trim_end().lines().map(|line| truncate_str(line, width, "…"));
        self.0.set_message(lines.collect::<Vec<_>>().join("\n"));
    }

    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Breaks text between words, so that lines have so many letters at most; all but the first are indented.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let start = text.len() - text.trim_start().len();
    let (mut lines, mut line) = (Vec::new(), " ".repeat(start));
    let mut is_new = true;
    for word in text.split_whitespace() {
        if !is_new && measure_text_width(&line) + 1 + measure_text_width(word) > width {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            is_new = true;
        }
        if !is_new {
            line.push(' ');
        }
        line.push_str(word);
        is_new = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// Breaks a line before words that do not fit into so many letters any more. Other than [`wrap`] it keeps columns apart.
pub fn fold(line: &str, width: usize) -> Vec<String> {
    let (mut lines, mut current) = (Vec::new(), String::new());
    for piece in line.split_inclusive(' ') {
        let is_full = measure_text_width(&current) + measure_text_width(piece.trim_end()) > width;
        if is_full && !current.trim().is_empty() {
            lines.push(std::mem::take(&mut current).trim_end().to_string());
        }
        if current.is_empty() && !lines.is_empty() && piece.trim().is_empty() {
            continue;
        }
        current.push_str(piece);
    }
    lines.push(current.trim_end().to_string());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_broken_between_words() {
        assert_eq!(wrap("  one two three four", 11, 4), "  one two\n    three\n    four");
        assert_eq!(wrap("  one", 80, 4), "  one");
        assert_eq!(fold("1/2   db.example.com   active", 20), ["1/2   db.example.com", "active"]);
        assert_eq!(fold("", 20), [""]);
        assert_eq!(wrap("alongwordthatdoesnotfit x", 5, 2), "alongwordthatdoesnotfit\n  x");
    }
}
