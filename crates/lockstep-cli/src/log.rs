//! Tracing on stderr, for those who ask for it.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::console::Console;
use crate::exit::Failure;

/// What overrides the level that `-v` sets.
const FILTER: &str = "LOCKSTEP_LOG";

/// Quiet, unless `-v` is given or the filter is set.
pub(crate) fn start(verbose: u8, console: &Console) -> Result<(), Failure> {
    let filter = match std::env::var(FILTER) {
        Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter).map_err(|error| {
            let hint = format!("{FILTER} is a filter such as `debug` or `lockstep_lock=trace`");
            Failure::usage(format!("{FILTER}={filter:?}: {error}")).hint(hint)
        })?,
        _ => match verbose {
            0 => return Ok(()),
            1 => EnvFilter::new("info"),
            2 => EnvFilter::new("debug"),
            _ => EnvFilter::new("trace"),
        },
    };
    let writer = Masked(console.clone());
    let ansi = io::IsTerminal::is_terminal(&io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(ansi).init();
    Ok(())
}

/// Whether warnings are on stderr already.
pub(crate) fn is_on() -> bool {
    tracing::enabled!(target: "lockstep_lock", tracing::Level::WARN)
}

/// Stderr without passwords. An event arrives in one piece.
struct Masked(Console);

struct Line<'a>(&'a Console);

impl<'a> MakeWriter<'a> for Masked {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = self.0.mask(&String::from_utf8_lossy(bytes));
        io::stderr().write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
