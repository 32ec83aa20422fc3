//! What others wrote, made harmless for terminals.
//!
//! Names, messages, roles and reasons are written by people with few rights, and read by an administrator. As kubectl does, an escape
//! character is shown as `^[`, so that nobody else moves the cursor, sets the title or paints over what was said. Strings of objects are
//! escaped when they are read ([`crate::reading`]), line breaks included, so that a message cannot pass for a line of ours. What is
//! written goes through [`Escaped`] as well, which lets through our own line breaks and colours and nothing else.

use std::borrow::Cow;
use std::io::Write;

/// The colours that are ours, as [`crate::Environment`] writes them.
pub const BOLD: &str = "\x1b[1m";
pub const ALARMING: &str = "\x1b[33m";
pub const PLAIN: &str = "\x1b[0m";

/// Whether a letter changes more than the place it is printed at: a control character, or one that turns the order of letters around.
pub fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// One line of text that a terminal only prints.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    text.chars().for_each(|letter| push(&mut safe, letter));
    Cow::Owned(safe)
}

fn push(text: &mut String, letter: char) {
    match letter {
        '\n' => text.push_str("\\n"),
        '\r' => text.push_str("\\r"),
        '\t' => text.push_str("\\t"),
        '\u{7f}' => text.push_str("^?"),
        '\0'..='\u{1f}' => {
            text.push('^');
            text.push(char::from(letter as u8 + b'@'));
        }
        unsafe_one if is_unsafe(unsafe_one) => text.push_str(&format!("\\u{:04x}", u32::from(unsafe_one))),
        other => text.push(other),
    }
}

/// The same of text with lines and, where there are any, colours of our own.
pub fn escaped_lines(text: &str, colours: bool) -> Cow<'_, str> {
    if !text.contains(|letter| letter != '\n' && is_unsafe(letter)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let ours = [BOLD, ALARMING, PLAIN].into_iter().find(|ours| colours && rest.starts_with(ours));
        if let Some(ours) = ours {
            safe.push_str(ours);
            rest = &rest[ours.len()..];
            continue;
        }
        match letter {
            '\n' => safe.push('\n'),
            other => push(&mut safe, other),
        }
        rest = &rest[letter.len_utf8()..];
    }
    Cow::Owned(safe)
}

/// Writes nothing that a terminal obeys, but line breaks and our colours.
pub struct Escaped<'a> {
    inner: &'a mut (dyn Write + Send),
    colours: bool,
}

impl<'a> Escaped<'a> {
    pub fn new(inner: &'a mut (dyn Write + Send), colours: bool) -> Self {
        Self { inner, colours }
    }
}

impl Write for Escaped<'_> {
    /// Text is written in whole strings, and so never cut within a letter.
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.inner.write_all(escaped_lines(&text, self.colours).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        for (text, shown) in [
            ("plain – ünïcode 漢字", "plain – ünïcode 漢字"),
            ("\x1b]0;owned\x07", "^[]0;owned^G"),
            ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
            ("\u{9b}31m\u{7f}\0", "\\u009b31m^?^@"),
            ("a\u{202e}b\u{2066}c\u{2028}d", "a\\u202eb\\u2066c\\u2028d"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn only_our_own_colours_and_line_breaks_get_through() {
        let mut out = Vec::new();
        write!(Escaped::new(&mut out, true), "\x1b[1mhead\x1b[0m\n\x1b[2J\x1b[31m\rx\n").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[1mhead\x1b[0m\n^[[2J^[[31m\\rx\n");
        let mut out = Vec::new();
        writeln!(Escaped::new(&mut out, false), "\x1b[1mhead\x1b[0m").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "^[[1mhead^[[0m\n");
    }
}
