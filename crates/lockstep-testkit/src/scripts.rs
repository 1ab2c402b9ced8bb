//! Pure machines as text: each file of a folder is a conversation, a line `> event name=value …` and under
//! it what the machine says to that. `UPDATE=1` writes what it says now.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lockstep_core::time::Moment;

/// A line of a script: a verb and what is said with it.
pub struct Words<'a> {
    /// What happens.
    pub verb: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn parse(line: &'a str) -> Self {
        let (verb, pairs) = line.split_once(' ').unwrap_or((line, ""));
        let pair = |word: &'a str| word.split_once('=').unwrap_or((word, ""));
        Self { verb, pairs: pairs.split(' ').map(pair).collect() }
    }

    /// What is said under this name.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The same, a number.
    pub fn find(&self, name: &str) -> Option<u64> {
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{name}={text}"));
        self.get(name).map(number)
    }

    /// The same, which must be there.
    pub fn number(&self, name: &str) -> u64 {
        self.find(name).unwrap_or_else(|| panic!("{}: no {name}=", self.verb))
    }

    /// A time in milliseconds, which must be there.
    pub fn ms(&self, name: &str) -> Duration {
        Duration::from_millis(self.number(name))
    }

    /// When it happens.
    pub fn at(&self) -> Moment {
        Moment::ZERO + self.ms("at")
    }
}

/// Replays every script of a folder, each with a machine of its own; `None` is no answer.
///
/// # Panics
///
/// If one of them answers something else than its script, or if there are hardly any scripts.
pub fn replay_all<M>(folder: &Path, mut machine: impl FnMut() -> M)
where
    M: FnMut(&Words<'_>) -> Option<String>,
{
    let entries = fs::read_dir(folder).expect("the scripts are there");
    let mut scripts: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 8, "the scripts are gone");
    for path in scripts {
        let script = fs::read_to_string(&path).expect("a script is text");
        let said = replay(&script, machine());
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &said).expect("a script can be written");
            continue;
        }
        assert_eq!(script, said, "{}: run with UPDATE=1 if the change is wanted", path.display());
    }
}

/// The script again, with the machine's words under each event.
fn replay(script: &str, mut machine: impl FnMut(&Words<'_>) -> Option<String>) -> String {
    let mut said = String::new();
    let mut say = |line: &str| writeln!(said, "{line}").expect("a string takes everything");
    for line in script.lines() {
        if let Some(event) = line.strip_prefix("> ") {
            say(line);
            if let Some(answer) = machine(&Words::parse(event)) {
                say(&answer);
            }
        } else if line.is_empty() || line.starts_with('#') {
            say(line);
        }
    }
    said
}
