//! What a run came to, as text and as a matrix of facts × stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use lockstep_lock::StoreFacts;
use serde::{Deserialize, Serialize};

use super::case::{Case, Fact};
use super::env::Signals;

/// If this names a folder, every report is left there as `<what>-<store>.json`, so that a
/// [`Matrix`] of all stores can be printed when all have run.
pub const REPORTS_ENV: &str = "LOCKSTEP_REPORTS";
/// If set, the first failure ends the process: for whoever only wants to know whether there is one.
const FAIL_FAST_ENV: &str = "LOCKSTEP_FAIL_FAST";

/// What became of one case or story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not, and why.
    Failed(String),
    /// It was not run, because the store does not claim it, and says so.
    NotClaimed(String),
}

/// One run of one case or story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What its handles heard.
    pub signals: Signals,
    /// What it backs.
    pub backs: Vec<Fact>,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

impl Entry {
    pub(crate) fn new(
        name: &str,
        signals: Signals,
        backs: &[Fact],
        outcome: Outcome,
        took: Duration,
    ) -> Self {
        Self { name: name.to_owned(), signals, backs: backs.to_vec(), outcome, took }
    }

    pub(crate) fn not_claimed(case: &Case, signals: &Signals) -> Self {
        let outcome = Outcome::NotClaimed("the store does not claim it".to_owned());
        Self::new(case.name, *signals, case.backs, outcome, Duration::ZERO)
    }
}

/// What a run on one store came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    what: String,
    store: String,
    claims: BTreeMap<Fact, String>,
    entries: Vec<Entry>,
    missing: Vec<Fact>,
    /// Facts that are not claimed and should be, or the other way round.
    unexpected: Vec<Fact>,
}

impl Report {
    pub(crate) fn new(what: &str, store: &str, facts: Option<StoreFacts>) -> Self {
        let claim = |fact: Fact| Some((fact, fact.claimed_as(facts.as_ref()?)?));
        Self {
            what: what.to_owned(),
            store: store.to_owned(),
            claims: Fact::ALL.into_iter().filter_map(claim).collect(),
            entries: Vec::new(),
            missing: Vec::new(),
            unexpected: Vec::new(),
        }
    }

    /// Takes an entry in and says so: whoever watches sees where a hanging run stands.
    pub(crate) fn add(&mut self, entry: Entry) {
        let Entry { name, signals, outcome, took, .. } = &entry;
        let store = &self.store;
        match outcome {
            Outcome::Passed => println!("{store}: ok      {name}{signals} ({took:.1?})"),
            Outcome::Failed(why) => {
                println!("{store}: FAILED  {name}{signals} ({took:.1?}): {why}");
                if std::env::var_os(FAIL_FAST_ENV).is_some() {
                    std::process::exit(101);
                }
            }
            Outcome::NotClaimed(why) => println!("{store}: -       {name}{signals}: {why}"),
        }
        self.entries.push(entry);
    }

    /// A claim that nothing has tried is no better than a claim that failed.
    pub(crate) fn look_for_facts_without_cases(&mut self) {
        let backed: BTreeSet<Fact> = self
            .entries
            .iter()
            .filter(|entry| !matches!(entry.outcome, Outcome::NotClaimed(_)))
            .flat_map(|entry| entry.backs.iter().copied())
            .collect();
        self.missing = self.claims.keys().copied().filter(|fact| !backed.contains(fact)).collect();
    }

    /// What is refused must have been announced: a fact that is no longer claimed is no longer tried.
    pub(crate) fn look_for_unexpected_refusals(&mut self, expected: &[Fact]) {
        let differs = |fact: &Fact| self.claims.contains_key(fact) == expected.contains(fact);
        self.unexpected = Fact::ALL.into_iter().filter(differs).collect();
    }

    /// The store it was run on.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Every run, in the order in which they ended.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Everything that is wrong, in words.
    pub fn problems(&self) -> Vec<String> {
        let failed = self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Failed(why) => Some(format!("{}{}: {why}", entry.name, entry.signals)),
            _ => None,
        });
        let missing = self.missing.iter();
        let missing = missing.map(|fact| format!("`{fact}` is claimed, and nothing backs it"));
        let unexpected = self.unexpected.iter().map(|fact| match self.claims.contains_key(fact) {
            true => format!("`{fact}` is claimed, and the test says that it is not"),
            false => format!("`{fact}` is not claimed, and the test does not expect that"),
        });
        failed.chain(missing).chain(unexpected).collect()
    }

    /// Prints the report and fails the test if anything is wrong.
    ///
    /// # Panics
    /// If anything is wrong.
    pub fn assert_passed(&self) {
        println!("{self}");
        let problems = self.problems();
        assert!(problems.is_empty(), "{}:\n{}", self.store, problems.join("\n"));
        assert!(!self.entries.is_empty(), "{}: nothing was run, so nothing is proved", self.store);
    }

    pub(crate) fn save_if_asked(&self) {
        if let Some(folder) = std::env::var_os(REPORTS_ENV) {
            let name = format!("{}-{}.json", self.what, self.store.replace(['/', ' '], "-"));
            let text = serde_json::to_string_pretty(self).expect("a report is always JSON");
            let written = std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(Path::new(&folder).join(name), text));
            written.unwrap_or_else(|error| panic!("{REPORTS_ENV}: {error}"));
        }
    }

    /// What stands in the row of a name, and whether that is well.
    fn cell_of_name(&self, name: &str) -> String {
        let mine: Vec<&Entry> = self.entries.iter().filter(|entry| entry.name == name).collect();
        let failed = mine.iter().any(|entry| matches!(entry.outcome, Outcome::Failed(_)));
        let passed = mine.iter().any(|entry| entry.outcome == Outcome::Passed);
        match (failed, passed) {
            (true, _) => "FAILED".to_owned(),
            (false, true) => "ok".to_owned(),
            (false, false) => "-".to_owned(),
        }
    }

    fn cell_of_fact(&self, fact: Fact) -> String {
        let Some(claim) = self.claims.get(&fact) else {
            let expected = !self.unexpected.contains(&fact);
            return if expected { "not claimed" } else { "NOT CLAIMED ANY MORE" }.to_owned();
        };
        let mine = || self.entries.iter().filter(|entry| entry.backs.contains(&fact));
        let ran = mine().filter(|entry| !matches!(entry.outcome, Outcome::NotClaimed(_))).count();
        let failed = mine().filter(|entry| matches!(entry.outcome, Outcome::Failed(_))).count();
        match (ran, failed) {
            (0, _) => format!("{claim}: NOTHING BACKS IT"),
            (_, 0) => format!("{claim} ({ran} runs)"),
            _ => format!("{claim}: {failed} of {ran} FAILED"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Matrix(vec![self.clone()]).fmt(f)
    }
}

/// Reports side by side: facts (or stories) × stores.
#[derive(Clone, Debug, Default)]
pub struct Matrix(pub Vec<Report>);

impl Matrix {
    /// The reports on `what` (`case` or `story`) that runs have left in a folder; see
    /// [`REPORTS_ENV`].
    ///
    /// # Errors
    /// The folder cannot be read, or has something else in it.
    pub fn read(folder: &Path, what: &str) -> Result<Self> {
        let mut reports = Vec::new();
        for file in std::fs::read_dir(folder).context("no reports")? {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with(&format!("{what}-")) && name.ends_with(".json") {
                let text = std::fs::read_to_string(&path)?;
                let report = serde_json::from_str(&text);
                reports.push(report.with_context(|| format!("not a report: {name}"))?);
            }
        }
        reports.sort_by(|one: &Report, other: &Report| one.store.cmp(&other.store));
        Ok(Self(reports))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let reports = &self.0;
        let row = |head: String, cell: &dyn Fn(&Report) -> String| {
            std::iter::once(head).chain(reports.iter().map(cell)).collect()
        };
        let stores = row(String::new(), &|report| report.store.clone());
        let mut rows: Vec<Vec<String>> = vec![stores];
        for fact in Fact::ALL.into_iter().filter(|_| reports.iter().any(|r| !r.claims.is_empty())) {
            rows.push(row(fact.to_string(), &|report| report.cell_of_fact(fact)));
        }
        let entries = reports.iter().flat_map(|report| &report.entries);
        for name in entries.map(|entry| &entry.name).collect::<BTreeSet<_>>() {
            rows.push(row(name.clone(), &|report| report.cell_of_name(name)));
        }
        rows
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..=self.0.len()).filter_map(width).collect();
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            writeln!(f, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        let mut report = Report::new("case", "paper", None);
        report.claims.insert(Fact::Fair, "yes".to_owned());
        let backs = [Fact::Fair];
        let entry = Entry::new("a_case", Signals::Silent, &backs, outcome, Duration::ZERO);
        report.entries.push(entry);
        report.look_for_facts_without_cases();
        report
    }

    #[test]
    fn a_failure_is_a_problem_and_shows_in_both_rows() {
        let report = report(Outcome::Failed("no".to_owned()));
        assert_eq!(report.problems(), ["a_case (no signals): no"]);
        let text = report.to_string();
        assert!(text.contains("1 of 1 FAILED") && text.contains("| FAILED "), "{text}");
    }

    #[test]
    fn a_claim_that_nothing_tries_is_a_problem() {
        let report = report(Outcome::NotClaimed("it says so".to_owned()));
        assert_eq!(report.problems(), ["`fair` is claimed, and nothing backs it"]);
        assert!(report.to_string().contains("NOTHING BACKS IT"));
    }

    #[test]
    fn a_refusal_that_nobody_expects_is_a_problem_and_so_is_a_claim() {
        let mut report = report(Outcome::Passed);
        report.claims = Fact::ALL.into_iter().map(|fact| (fact, "yes".to_owned())).collect();
        report.look_for_unexpected_refusals(&[]);
        assert_eq!(report.problems(), [""; 0]);
        report.claims.remove(&Fact::Shared);
        report.look_for_unexpected_refusals(&[]);
        let refused = ["`shared` is not claimed, and the test does not expect that"];
        assert_eq!(report.problems(), refused);
        report.look_for_unexpected_refusals(&[Fact::Shared, Fact::Push]);
        assert_eq!(report.problems(), ["`push` is claimed, and the test says that it is not"]);
    }

    #[test]
    fn reports_of_several_stores_stand_side_by_side() {
        let folder = tempfile::tempdir().unwrap();
        for store in ["one", "two"] {
            let mut report = report(Outcome::Passed);
            report.store = store.to_owned();
            let text = serde_json::to_string(&report).unwrap();
            std::fs::write(folder.path().join(format!("case-{store}.json")), text).unwrap();
        }
        let matrix = Matrix::read(folder.path(), "case").unwrap();
        let text = matrix.to_string();
        assert!(text.lines().next().unwrap().contains("| one "), "{text}");
        assert!(text.contains("| yes (1 runs) | yes (1 runs) |"), "{text}");
        assert!(matrix.0.iter().all(|report| report.problems().is_empty()));
    }
}
