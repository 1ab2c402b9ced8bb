use std::fmt;

/// Rows in columns. The first row is the heading.
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
    right: [bool; N],
}

impl<const N: usize> Table<N> {
    /// Columns whose heading starts with `>` are numbers, and stand at the right.
    pub(crate) fn new(heading: [&str; N]) -> Self {
        let right = heading.map(|title| title.starts_with('>'));
        Self { rows: vec![heading.map(|title| title.trim_start_matches('>').to_owned())], right }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(widths).zip(self.right) {
                if right {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:<width$}  "));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", ">TOKEN", "HOLDER"]);
        table.push(["jöb".into(), "7".into(), "a".into()]);
        table.push(["a longer name".into(), "1000000".into(), "bb".into()]);
        let expected = "\
NAME             TOKEN  HOLDER
jöb                  7  a
a longer name  1000000  bb
";
        assert_eq!(table.to_string(), expected);
    }
}
