//! Acquisitions as text: `testdata/acquisition`, read as [`lockstep_testkit::scripts`] says.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::time::Duration;

use lockstep_core::time::Moment;
use lockstep_core::{Drift, Effect, ErrorKind, StoreError, Token};
use lockstep_lock::acquisition::{Acquisition, Event, Step, Terms};
use lockstep_lock::store::Answer;
use lockstep_testkit::scripts::{Words, replay_all};

#[test]
fn the_machine_says_what_the_scripts_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/acquisition");
    replay_all(&folder, || {
        let mut machine = None;
        move |words| {
            if words.verb == "terms" {
                machine = Some(Acquisition::new(terms(words)));
                return None;
            }
            let machine = machine.as_mut().expect("a script starts with its terms");
            Some(show(&machine.step(words.at(), event(words), u64::MAX)))
        }
    });
}

fn terms(words: &Words<'_>) -> Terms {
    Terms {
        ttl: words.ms("ttl"),
        drift: Drift::default(),
        deadline: words.find("deadline").map(|ms| Moment::ZERO + Duration::from_millis(ms)),
        push: words.get("poll").is_none(),
    }
}

fn event(words: &Words<'_>) -> Event {
    let token = words.find("token").map(Token::new);
    match words.verb {
        "start" => Event::Start,
        "granted" => Event::Answered(Ok(Answer::Granted { token })),
        "queued" => Event::Answered(Ok(Answer::Queued {
            ahead: words.number("ahead"),
            holder_left: words.ms("left"),
            behind: words.find("behind").map(Token::new),
        })),
        "busy" => Event::Answered(Ok(Answer::Busy)),
        "differs" => Event::Answered(Ok(Answer::Differs { of: words.number("of") as u32 })),
        "broken" => Event::Answered(Ok(Answer::Broken { reason: "maintenance".into() })),
        "no-answer" => Event::Answered(Err(error(ErrorKind::Unavailable))),
        "denied" => Event::Answered(Err(error(ErrorKind::Denied))),
        "pushed" => Event::Pushed(token),
        "hinted" => Event::Hinted,
        "woke" => Event::Woke,
        verb => panic!("no event is called {verb}"),
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
