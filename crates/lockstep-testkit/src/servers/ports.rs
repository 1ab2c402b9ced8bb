//! Loopback ports that nobody else uses.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;

use anyhow::{Context, Result};

const START_ATTEMPTS: usize = 8;

/// Somebody else took the port between our look at it and the server's.
#[derive(Debug)]
pub(super) struct PortTaken;

impl fmt::Display for PortTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the port was taken by somebody else")
    }
}

impl std::error::Error for PortTaken {}

/// Tries one free port after the other until no one else is faster.
pub(super) fn on_a_free_port<T>(start: impl Fn(u16) -> Result<T>) -> Result<T> {
    for _ in 1..START_ATTEMPTS {
        match start(free_port()?) {
            Err(error) if error.is::<PortTaken>() => {}
            other => return other,
        }
    }
    start(free_port()?)
}

/// A loopback port that nobody listens on right now.
///
/// It lies below the range from which the kernel gives ports to outgoing connections. Otherwise,
/// while a server is down between `kill` and `restart`, one of its own clients could be given its
/// port (or even connect to itself), and the server could not come back.
pub fn free_port() -> Result<u16> {
    const LOWEST: u16 = 10_240;
    let range = LOWEST..first_outgoing_port().max(LOWEST + 1_024);
    let random = || RandomState::new().build_hasher().finish();
    (0..1_000)
        .map(|_| range.start + (random() % range.len() as u64) as u16)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port on 127.0.0.1")
}

fn first_outgoing_port() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok())
        .unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_free_port_can_be_bound_and_is_never_given_to_a_client() {
        let ports: HashSet<u16> = (0..20).map(|_| free_port().unwrap()).collect();
        assert!(ports.len() > 10, "hardly random: {ports:?}");
        for port in ports {
            assert!(port < first_outgoing_port());
            TcpListener::bind(("127.0.0.1", port)).unwrap();
        }
    }

    #[test]
    fn a_lost_race_for_a_port_is_run_again() {
        let attempts = std::cell::Cell::new(0);
        let port = on_a_free_port(|port| {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 3 { Err(PortTaken.into()) } else { Ok(port) }
        });
        assert!(port.is_ok());
        assert_eq!(attempts.get(), 3);
    }
}
