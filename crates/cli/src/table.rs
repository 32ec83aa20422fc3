//! Text in columns, as kubectl prints it.

use console::measure_text_width;

/// Between two columns.
const GAP: &str = "   ";
/// A cell that is cut is at least so long.
const SHORTEST: usize = 12;

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

    /// Makes lines fit into so many letters: leaves out columns, in this order and no more than it takes, then shortens the widest of
    /// the others but `kept`.
    pub fn fit(&mut self, width: usize, spare: &[&str], kept: &str) {
        for name in spare {
            if self.width() <= width {
                return;
            }
            if let Some(at) = self.head.iter().position(|head| head == name) {
                self.head.remove(at);
                self.rows.iter_mut().filter(|row| row.len() > at).for_each(|row| drop(row.remove(at)));
            }
        }
        while self.width() > width {
            let widths = self.widths();
            let others = widths
                .iter()
                .enumerate()
                .filter(|(at, _)| self.head.get(*at).is_none_or(|head| *head != kept));
            let Some((at, widest)) = others.max_by_key(|(_, width)| **width) else { return };
            let shorter = widest.saturating_sub(self.width() - width).max(SHORTEST);
            if shorter >= *widest {
                return;
            }
            for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(at)) {
                *cell = shortened(cell, shorter);
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|head| head.len()).collect();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(measure_text_width(shown(cell)));
            }
        }
        widths
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
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
            text.push_str(padded.join(GAP).trim_end());
            text.push('\n');
        }
        text
    }
}

/// The end of a name tells as much as its beginning.
fn shortened(cell: &str, length: usize) -> String {
    let letters: Vec<char> = cell.chars().collect();
    if letters.len() <= length {
        return cell.to_string();
    }
    let end = length / 2;
    let start = length - end - 1;
    letters[..start].iter().chain(&['…']).chain(&letters[letters.len() - end..]).collect()
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

    #[test]
    fn a_narrow_terminal_gets_the_columns_that_matter_most() {
        let table = || {
            let mut table = Table::new(&["POD", "NODE", "WAITING ON", "AGE"]);
            table.row(vec![
                "web-56k57hslgh-7fg7s".into(),
                "node-1".into(),
                "budget web: 0 allowed".into(),
                "5m".into(),
            ]);
            table
        };
        let fitted = |width| {
            let mut table = table();
            table.fit(width, &["AGE", "NODE"], "WAITING ON");
            table.render()
        };
        assert_eq!(fitted(80), table().render());
        assert_eq!(
            fitted(54),
            "POD                    NODE     WAITING ON\nweb-56k57hslgh-7fg7s   node-1   budget web: 0 allowed\n"
        );
        assert_eq!(
            fitted(45),
            "POD                    WAITING ON\nweb-56k57hslgh-7fg7s   budget web: 0 allowed\n"
        );
        assert_eq!(fitted(40), "POD                WAITING ON\nweb-56k…gh-7fg7s   budget web: 0 allowed\n");
    }
}
