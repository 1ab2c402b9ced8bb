//! Rows of ratios, with their goals.

use anyhow::Result;

use crate::measure::{Options, Rate};
use crate::noise::Reading;

/// A pass with more than this much of others' work in it is repeated.
const DISTURBED: f64 = 0.08;
const REPEATS: usize = 3;

pub(crate) struct Table {
    rows: usize,
    missed: Vec<String>,
}

/// What a row must reach.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    Shown,
}

impl Table {
    pub(crate) fn new() -> Self {
        println!(
            "{:<44} {:>10} {:>10} {:>9}  {:>6} {:<15} {:>6}",
            "row, per second", "reference", "candidate", "its µs", "ratio", "[min..max]", "goal"
        );
        Self { rows: 0, missed: vec![] }
    }

    /// Measures both sides in each pass and prints the median of their ratios.
    pub(crate) fn row(
        &mut self,
        options: &Options,
        name: &str,
        goal: Goal,
        mut reference: impl FnMut() -> Result<Rate>,
        mut candidate: impl FnMut() -> Result<Rate>,
    ) -> Result<()> {
        self.row_of_both(options, name, goal, |pass| {
            // A server does not stay what it was at the start of a row, so each side goes first in turn.
            let ours = if pass % 2 == 0 { None } else { Some(candidate()?) };
            let raw = reference()?;
            Ok((raw, ours.map_or_else(&mut candidate, Ok)?))
        })
    }

    /// The same for what measures both sides itself, in the pass of this number.
    pub(crate) fn row_of_both(
        &mut self,
        options: &Options,
        name: &str,
        goal: Goal,
        mut both: impl FnMut(usize) -> Result<(Rate, Rate)>,
    ) -> Result<()> {
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        let mut passes = vec![];
        let mut disturbed = 0;
        while passes.len() < options.passes {
            let before = Reading::now();
            let pass = both(passes.len())?;
            if Reading::now().disturbed_since(&before) > DISTURBED && disturbed < REPEATS {
                disturbed += 1;
            } else {
                passes.push(pass);
            }
        }
        self.print(name, goal, passes, disturbed);
        Ok(())
    }

    fn print(&mut self, name: &str, goal: Goal, mut passes: Vec<(Rate, Rate)>, disturbed: usize) {
        let ratio = |(raw, ours): &(Rate, Rate)| ours.per_second / raw.per_second;
        passes.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let middle = &passes[passes.len() / 2];
        let (least, most) = (ratio(&passes[0]), ratio(&passes[passes.len() - 1]));
        let (aim, reached) = match goal {
            Goal::AtLeast(aim) => (format!("{aim:.2}"), ratio(middle) >= aim),
            Goal::Shown => ("–".into(), true),
        };
        let repeated = if disturbed > 0 { format!(" ({disturbed} repeated)") } else { "".into() };
        println!(
            "{name:<44} {:>10.0} {:>10.0} {:>9.0}  {:>6.2} [{least:>5.2}..{most:>5.2}]  {aim:>6} {}{repeated}",
            middle.0.per_second,
            middle.1.per_second,
            middle.1.each_us(),
            ratio(middle),
            if reached { "" } else { "MISSED" },
        );
        if name.contains("on one lock") {
            let evenness = passes.iter().map(|(_, ours)| ours.evenness).fold(1.0, f64::min);
            println!("{:<44} least served / most served {evenness:.2}", "");
            if matches!(goal, Goal::AtLeast(_)) && evenness < 0.9 {
                self.missed.push(format!("{name}: fairness {evenness:.2}"));
            }
        }
        self.rows += 1;
        if !reached {
            self.missed.push(format!("{name}: {:.2}, wanted {aim}", ratio(middle)));
        }
    }

    /// A fact that is not a ratio of two rates.
    pub(crate) fn fact(&mut self, name: &str, text: &str, reached: bool) {
        println!("{name:<44} {text} {}", if reached { "" } else { "MISSED" });
        self.rows += 1;
        if !reached {
            self.missed.push(format!("{name}: {text}"));
        }
    }

    /// Says what was missed; `true` if nothing was and something was measured.
    pub(crate) fn end(self) -> bool {
        for missed in &self.missed {
            println!("missed: {missed}");
        }
        println!("{} rows, {} missed", self.rows, self.missed.len());
        self.missed.is_empty() && self.rows > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Whether a row of this name is met by passes with these ratios and this least fairness.
    fn met(name: &str, goal: Goal, ratios: [f64; 3], evenness: f64) -> bool {
        let options = Options { only: None, time: Duration::ZERO, passes: ratios.len() };
        let rate = |per_second, evenness| Rate { per_second, evenness, workers: 1 };
        let mut table = Table::new();
        let pass = |pass: usize| {
            let evenness = if pass == 0 { evenness } else { 1.0 };
            Ok((rate(100.0, 1.0), rate(100.0 * ratios[pass], evenness)))
        };
        table.row_of_both(&options, name, goal, pass).expect("nothing fails");
        table.end()
    }

    #[test]
    fn the_median_decides() {
        let goal = Goal::AtLeast(0.95);
        assert!(met("free", goal, [2.0, 0.95, 0.1], 0.0));
        assert!(!met("free", goal, [0.1, 0.94, 2.0], 1.0));
        assert!(met("free", Goal::Shown, [0.1; 3], 0.0));
    }

    #[test]
    fn the_least_fair_pass_decides_where_many_share_a_lock() {
        assert!(met("8 on one lock", Goal::AtLeast(0.4), [0.5; 3], 0.9));
        assert!(!met("8 on one lock", Goal::AtLeast(0.4), [0.5; 3], 0.89));
        assert!(met("8 on one lock", Goal::Shown, [0.5; 3], 0.0));
    }

    #[test]
    fn nothing_measured_is_nothing_reached() {
        assert!(!Table::new().end());
    }
}
