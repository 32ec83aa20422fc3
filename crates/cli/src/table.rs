//! Text in columns, as kubectl prints it.

/// A head and rows of as many cells; empty cells are shown as `-`.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn render(&self) -> String {
        self.render_at(&mut Vec::new())
    }

    /// With columns at least as wide as they were before; they are kept for the next time.
    pub fn render_at(&self, widths: &mut Vec<usize>) -> String {
        let head: Vec<String> = self.head.iter().map(ToString::to_string).collect();
        let rows: Vec<&Vec<String>> =
            std::iter::once(&head).filter(|head| !head.is_empty()).chain(&self.rows).collect();
        for row in &rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(*row) {
                *width = (*width).max(shown(cell).chars().count());
            }
        }
        let mut text = String::new();
        for row in rows {
            let padded: Vec<String> =
                row.iter().zip(&*widths).map(|(cell, width)| format!("{:<width$}", shown(cell))).collect();
            text.push_str(padded.join("   ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { "-" } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let mut table = Table::new(&["POD", "NODE"]);
        table.row(vec!["web-1".into(), String::new()]);
        let mut widths = Vec::new();
        assert_eq!(table.render_at(&mut widths), "POD     NODE\nweb-1   -\n");
        let mut more = Table::default();
        more.row(vec!["a".into(), "n1".into()]);
        assert_eq!(more.render_at(&mut widths), "a       n1\n");
    }
}
