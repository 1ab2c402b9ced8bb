//! What is said on stderr and printed on stdout.

use std::io::{self, Write};

use crate::exit::{Code, Failure};
use crate::secrets::Secrets;

/// Says things to people, without passwords.
#[derive(Clone, Default)]
pub(crate) struct Console {
    secrets: Secrets,
}

impl Console {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets }
    }

    /// One line on stderr.
    pub(crate) fn say(&self, text: &str) {
        // Not `eprintln!`: it panics when stderr is gone, and then the child would be left alone.
        let _ = writeln!(io::stderr(), "lockstep: {}", self.secrets.mask(text));
    }

    pub(crate) fn failed(&self, failure: &Failure) {
        self.say(&failure.message);
        if let Some(hint) = &failure.hint {
            let _ = writeln!(io::stderr(), "  {}", self.secrets.mask(hint));
        }
    }

    pub(crate) fn mask(&self, text: &str) -> String {
        self.secrets.mask(text)
    }
}

/// Prints to stdout. A reader that has gone away (`| head`) has what it wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::CANNOT_PRINT, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
