use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

/// In this order if several are there. TSTP before CONT: who stops and continues us wants us to run.
const HEARD: [Signal; 10] = [
    Signal::CHILD,
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// The signals that this process is sent.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// From now on signals are heard instead of ending this process. What was ignored when it
    /// started stays ignored, by the command as well: that is what `nohup` is.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        // But not this one: whoever ignores it is not told how its children end.
        let heard = |signal: &Signal| *signal == Signal::CHILD || !is_in(ignored, *signal);
        let listen =
            |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        HEARD.into_iter().filter(heard).map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Resolves when this one is heard, and takes it; at once if it is ignored. Cancel safe.
    pub(crate) async fn hear(&mut self, signal: Signal) {
        if let Some((_, stream)) = self.0.iter_mut().find(|(heard, _)| *heard == signal) {
            stream.recv().await;
        }
    }

    /// The next signal that asks this process to end. Ctrl-Z works meanwhile.
    pub(crate) async fn next_to_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal @ (Signal::TERM | Signal::INT | Signal::HUP | Signal::QUIT) => {
                    return signal;
                }
                Signal::TSTP => stop_myself(),
                _ => {}
            }
        }
    }
}

/// As Ctrl-Z does, if nobody listened to it. Returns when this process is continued.
pub(crate) fn stop_myself() {
    let _ = kill_process(getpid(), Signal::STOP);
}

pub(crate) fn name_of(signal: Signal) -> &'static str {
    match signal {
        Signal::TERM => "SIGTERM",
        Signal::INT => "SIGINT",
        Signal::HUP => "SIGHUP",
        Signal::QUIT => "SIGQUIT",
        _ => "a signal",
    }
}

/// The signals that whoever started this process wants ignored, one bit each. Linux only;
/// elsewhere none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_ignored(&status)
}

fn parse_ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let mask =
            parse_ignored("Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n");
        assert!(is_in(mask, Signal::HUP) && is_in(mask, Signal::PIPE));
        assert!(!is_in(mask, Signal::INT));
        assert_eq!(parse_ignored(""), 0);
    }
}
