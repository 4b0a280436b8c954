//! Aligned columns.

use unicode_width::UnicodeWidthStr as _;

use super::{Paint, plain};

/// Rows of cells below a heading, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this heading.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self {
            rows: vec![heading.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|c| plain(&c).into_owned()).collect());
    }

    /// The table as text, without a newline at the end.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines = Vec::with_capacity(self.rows.len());
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line += cell;
                let padding = width.saturating_sub(cell.width()) + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
            let line = line.trim_end();
            lines.push(match number {
                0 => paint.bold(line),
                _ => line.to_owned(),
            });
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::ColorChoice;
    use super::*;

    #[test]
    fn columns_align_by_what_the_eye_sees() {
        let mut table = Table::new(&["NAME", "HOST"]);
        table.row(["日本".to_owned(), "a".to_owned()]);
        table.row(["x\n".to_owned(), "b".to_owned()]);
        let text = table.render(Paint::new(ColorChoice::Never));
        assert_eq!(text, "NAME  HOST\n日本  a\nx\\n   b");
    }
}
