//! The scripts, and how they are called: by their digest, with the text only when the server
//! does not know it.

use std::sync::LazyLock;

use lockstep_core::StoreError;
use redis::{ServerErrorKind, Value};

use crate::error;
use crate::link::Link;
use crate::words::{Call, Words, write_word};

/// One script, in the first two words of a call.
pub(crate) struct Script {
    in_full: Vec<u8>,
    by_digest: Vec<u8>,
}

/// A call, and how its script is named.
struct Said<'a>(&'a [u8], &'a Call);

impl Words for Said<'_> {
    fn write(&self, into: &mut Vec<u8>) {
        self.1.write_after(self.0, into);
    }
}

macro_rules! scripts {
    ($($name:ident: $file:literal;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!($file)));)+
    };
}

scripts! {
    ACQUIRE: "scripts/acquire.lua";
    RELEASE: "scripts/release.lua";
    DOWNGRADE: "scripts/downgrade.lua";
    BREAK: "scripts/break.lua";
    RENEW: "scripts/renew.lua";
    INSPECT: "scripts/inspect.lua";
}

/// What scripts share, and the lines that stand for it; the last stands within another.
const PARTS: [(&str, &str); 4] = [
    ("-- include row.lua\n", include_str!("scripts/row.lua")),
    ("-- include shared.lua\n", include_str!("scripts/shared.lua")),
    ("-- include heal.lua\n", include_str!("scripts/heal.lua")),
    ("-- include keep.lua\n", include_str!("scripts/keep.lua")),
];

impl Script {
    pub(crate) fn new(text: &str) -> Self {
        let include = |text: String, (line, part): (&str, &str)| text.replace(line, part);
        let text = PARTS.into_iter().fold(text.to_owned(), include);
        let words = |command: &str, script: &str| {
            let mut words = vec![];
            write_word(command.as_bytes(), &mut words);
            write_word(script.as_bytes(), &mut words);
            words
        };
        let by_digest = words("EVALSHA", redis::Script::new(&text).get_hash());
        Self { in_full: words("EVAL", &text), by_digest }
    }

    /// Runs it; `key` is named if it turns out not to be ours.
    pub(crate) async fn run(
        &self,
        link: &Link,
        call: &Call,
        key: &str,
    ) -> Result<Value, StoreError> {
        match self.answer(link, call).await? {
            Value::ServerError(refusal) => Err(error::refused(&refusal, key)),
            answer => Ok(answer),
        }
    }

    /// The same with the server's refusal as an answer.
    pub(crate) async fn answer(&self, link: &Link, call: &Call) -> Result<Value, StoreError> {
        let mut answer = link.call(&Said(&self.by_digest, call)).await?;
        if let Value::ServerError(refusal) = &answer
            && refusal.kind() == Some(ServerErrorKind::NoScript)
        {
            // Nothing ran, so this is not a retry. The text goes with the call instead of before
            // it: between the two, the server might forget again.
            answer = link.call(&Said(&self.in_full, call)).await?;
        }
        Ok(answer)
    }
}
