//! The scripts, and how they are called: by their digest, with the text only when the server
//! does not know it.

use std::sync::LazyLock;

use lockstep_core::StoreError;
use redis::{Arg, Cmd, ServerErrorKind, Value};

use crate::error;
use crate::link::Link;

/// One script.
pub(crate) struct Script {
    text: String,
    digest: String,
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
        Self { digest: redis::Script::new(&text).get_hash().to_owned(), text }
    }

    /// A call with these keys; its arguments are still to be added.
    pub(crate) fn on(&self, keys: &[String]) -> Cmd {
        let mut call = Cmd::with_capacity(10 + 3 * keys.len(), 384);
        call.arg("EVALSHA").arg(&self.digest).arg(keys.len()).arg(keys);
        call
    }

    /// Runs a call made by [`on`](Self::on); `key` is named if it turns out not to be ours.
    pub(crate) async fn run(
        &self,
        link: &Link,
        call: &Cmd,
        key: &str,
    ) -> Result<Value, StoreError> {
        match self.answer(link, call).await? {
            Value::ServerError(refusal) => Err(error::refused(&refusal, key)),
            answer => Ok(answer),
        }
    }

    /// The same with the server's refusal as an answer.
    pub(crate) async fn answer(&self, link: &Link, call: &Cmd) -> Result<Value, StoreError> {
        let mut answer = link.call(call).await?;
        if let Value::ServerError(refusal) = &answer
            && refusal.kind() == Some(ServerErrorKind::NoScript)
        {
            // Nothing ran, so this is not a retry. The text goes with the call instead of before
            // it: between the two, the server might forget again.
            answer = link.call(&self.in_full(call)).await?;
        }
        Ok(answer)
    }

    /// The same call with the text; the server remembers it from then on.
    fn in_full(&self, call: &Cmd) -> Cmd {
        let mut full = redis::cmd("EVAL");
        full.arg(&self.text);
        for argument in call.args_iter().skip(2) {
            if let Arg::Simple(bytes) = argument {
                full.arg(bytes);
            }
        }
        full
    }
}
