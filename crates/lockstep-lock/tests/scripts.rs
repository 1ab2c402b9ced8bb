//! Acquisitions as text: each file in `testdata/acquisition` is a conversation with the machine,
//! a line `> event` and under it what the machine wants done. `UPDATE=1` writes what it says now.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{Drift, Effect, ErrorKind, StoreError, Token};
use lockstep_lock::acquisition::{Acquisition, Event, Step, Terms};
use lockstep_lock::store::Answer;

#[test]
fn the_machine_says_what_the_scripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/acquisition");
    let mut scripts: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(scripts.len() >= 8, "the scripts are gone");
    for path in scripts {
        let script = fs::read_to_string(&path).unwrap();
        let said = replay(&script);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &said).unwrap();
            continue;
        }
        assert_eq!(script, said, "{}: run with UPDATE=1 if the change is wanted", path.display());
    }
}

/// The script again, with the machine's words under each event.
fn replay(script: &str) -> String {
    let mut said = String::new();
    let mut machine = None;
    for line in script.lines() {
        let Some(event) = line.strip_prefix("> ") else {
            if line.is_empty() || line.starts_with('#') {
                writeln!(said, "{line}").unwrap();
            }
            continue;
        };
        writeln!(said, "{line}").unwrap();
        let words = Words::parse(event);
        if words.verb == "terms" {
            machine = Some(Acquisition::new(words.terms()));
            continue;
        }
        let machine = machine.as_mut().expect("a script starts with its terms");
        let step = machine.step(words.at(), words.event(), u64::MAX);
        writeln!(said, "{}", show(&step)).unwrap();
    }
    said
}

struct Words<'a> {
    verb: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn parse(line: &'a str) -> Self {
        let mut words = line.split(' ');
        let verb = words.next().unwrap();
        Self { verb, pairs: words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect() }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).map(|text| text.parse().unwrap())
    }

    fn at(&self) -> Moment {
        Moment::ZERO + Duration::from_millis(self.number("at").unwrap())
    }

    fn terms(&self) -> Terms {
        Terms {
            ttl: Duration::from_millis(self.number("ttl").unwrap()),
            drift: Drift::default(),
            deadline: self.number("deadline").map(|ms| Moment::ZERO + Duration::from_millis(ms)),
            push: self.get("poll").is_none(),
        }
    }

    fn event(&self) -> Event {
        let token = self.number("token").map(Token::new);
        match self.verb {
            "start" => Event::Start,
            "granted" => Event::Answered(Ok(Answer::Granted { token })),
            "queued" => Event::Answered(Ok(Answer::Queued {
                ahead: self.number("ahead").unwrap(),
                holder_left: Duration::from_millis(self.number("left").unwrap()),
                behind: self.number("behind").map(Token::new),
            })),
            "busy" => Event::Answered(Ok(Answer::Busy)),
            "differs" => {
                Event::Answered(Ok(Answer::Differs { of: self.number("of").unwrap() as u32 }))
            }
            "broken" => Event::Answered(Ok(Answer::Broken { reason: "maintenance".into() })),
            "no-answer" => Event::Answered(Err(error(ErrorKind::Unavailable))),
            "denied" => Event::Answered(Err(error(ErrorKind::Denied))),
            "pushed" => Event::Pushed(token),
            "hinted" => Event::Hinted,
            "woke" => Event::Woke,
            verb => panic!("no event is called {verb}"),
        }
    }
}

fn error(kind: ErrorKind) -> StoreError {
    StoreError::new("script", kind, Effect::Unknown, "no")
}

fn show(step: &Step) -> String {
    let ms = |moment: Moment| moment.since(Moment::ZERO).as_millis();
    match step {
        Step::Ask => "ask".into(),
        Step::Wait(until) => format!("wait until={}", ms(*until)),
        Step::Held { token, lease } => {
            let token = token.map_or("-".into(), |token| token.to_string());
            format!("held token={token} trusted-until={}", ms(lease.trusted_until()))
        }
        Step::Busy => "busy".into(),
        Step::Differs(of) => format!("differs of={of}"),
        Step::TimedOut { ahead } => format!("timed-out ahead={ahead:?}"),
        Step::Broken(reason) => format!("broken reason={reason}"),
        Step::Failed(error) => format!("failed {:?}", error.kind()),
    }
}
