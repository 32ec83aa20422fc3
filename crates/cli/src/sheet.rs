//! Text with names on the left and what there is to say of them on the right.

/// How wide the names are.
const INDENT: usize = 14;

#[derive(Debug, Default)]
pub struct Sheet {
    pub text: String,
}

impl Sheet {
    pub fn put(&mut self, name: &str, lines: &str) {
        for (at, line) in lines.lines().enumerate() {
            let name = if at == 0 { name } else { "" };
            self.text.push_str(format!("{name:<INDENT$}{line}").trim_end());
            self.text.push('\n');
        }
    }

    pub fn space(&mut self) {
        self.text.push('\n');
    }
}
