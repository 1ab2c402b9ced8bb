//! The hosts of a URL, and which of them is dialled when.
//!
//! One that is frozen or cut off refuses nothing, and who waited for it would never come to the
//! next. So the next one is dialled soon in any case, and the first to serve is taken.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use lockstep_core::StoreError;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::Line;
use super::error::{self, STORE};

/// How long a host that says nothing keeps the next one waiting. Most that serve are through with
/// it; and of the time of an operation enough is left, even if the first few are silent.
const HEAD_START: Duration = Duration::from_millis(250);

/// If the others say nothing for this long, one that has failed may say why, before whoever waits for an
/// operation has given up and knows nothing. All have been dialled by then.
const GIVE_UP: Duration = Duration::from_millis(1750);

/// None has served yet.
const NONE: usize = usize::MAX;

pub(super) struct Hosts {
    all: Vec<(Host, u16)>,
    /// The place of the one that served last, or [`NONE`]. It is dialled first, so that a dead one ahead of
    /// it costs its head start once and not with every connection.
    served: AtomicUsize,
}

impl Hosts {
    /// As in libpq: a port for each host, one for all, or the usual one.
    pub(super) fn new(hosts: Vec<Host>, ports: &[u16]) -> Result<Self, StoreError> {
        if hosts.is_empty() {
            return Err(StoreError::config(STORE, "the URL names no host"));
        }
        // What is behind an @ that should have been escaped may be the end of a password.
        if hosts.iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
            let message =
                "no host has an @ in its name; write %40 for one in a user's name or password";
            return Err(StoreError::config(STORE, message));
        }
        if ports.len() > 1 && ports.len() != hosts.len() {
            let message = "there are not as many ports as hosts: write HOST:PORT,HOST:PORT, and ?port= only \
                           beside ?host=";
            return Err(StoreError::config(STORE, message));
        }
        let for_all = ports.first().copied().unwrap_or(5432);
        let port = |at: usize| ports.get(at).copied().unwrap_or(for_all);
        let all = hosts.into_iter().enumerate().map(|(at, host)| (host, port(at))).collect();
        Ok(Self { all, served: AtomicUsize::new(NONE) })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether all of them are sockets of this machine.
    pub(super) fn are_local(&self) -> bool {
        self.all.iter().all(|(host, _)| !matches!(host, Host::Tcp(_)))
    }

    /// A connection to one that serves, opened with what `driver` says.
    pub(super) async fn dial(
        &self,
        driver: &Config,
        tls: &MakeRustlsConnect,
    ) -> Result<(Client, Line), Error> {
        let served = self.served.load(Ordering::Relaxed);
        let dial = |at| self.dial_one(at, driver, tls);
        // Of a URL that has never served, what a person must settle is told rather than the silence of others. Of
        // one that has, the others may be back in a moment, and whoever waits shall go on waiting.
        let telling = |error: &Error| error::is_lasting(error) == (served == NONE);
        let (at, answer) = first_to_serve(order(self.len(), served), dial, telling).await?;
        // One that refuses our settings has answered, and serves nobody: it must not come before those that do.
        if answer.is_ok() {
            self.served.store(at, Ordering::Relaxed);
        }
        answer
    }

    /// A pooler that refuses settings decides for all: the caller leaves them out and dials again.
    async fn dial_one(
        &self,
        at: usize,
        driver: &Config,
        tls: &MakeRustlsConnect,
    ) -> Result<(usize, Result<(Client, Line), Error>), Error> {
        let (mut driver, (host, port)) = (driver.clone(), &self.all[at]);
        match host {
            Host::Tcp(name) => driver.host(name),
            Host::Unix(folder) => driver.host_path(folder),
        };
        match driver.port(*port).connect(tls.clone()).await {
            Err(error) if !error::is_about_settings(&error) => Err(error),
            answer => Ok((at, answer)),
        }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

fn order(count: usize, served: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if served != NONE {
        order[..=served].rotate_right(1);
    }
    order
}

/// Dials one after the other as they are in `order`: the next as soon as one has failed, and after
/// its head start in any case. The first to serve is taken. If none does, the error is the last one, but rather
/// a `telling` one, which is also told if others are silent for long.
async fn first_to_serve<T, E, F>(
    order: Vec<usize>,
    dial: impl Fn(usize) -> F,
    telling: impl Fn(&E) -> bool,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    // However many there are: the last one has its time as well.
    let head_start = HEAD_START.min(GIVE_UP / u32::try_from(order.len()).unwrap_or(u32::MAX));
    let (mut waiting, mut dialled) = (order.into_iter(), FuturesUnordered::new());
    let (start, mut failed) = (Instant::now(), None);
    loop {
        dialled.extend(waiting.next().map(&dial));
        let tells = failed.as_ref().is_some_and(&telling);
        let patience = match waiting.len() {
            1.. => head_start,
            0 if tells => GIVE_UP.saturating_sub(start.elapsed()),
            0 => Duration::MAX,
        };
        match timeout(patience, dialled.next()).await {
            Ok(Some(Ok(line))) => return Ok(line),
            Ok(Some(Err(_))) if tells => {}
            Ok(Some(Err(error))) => failed = Some(error),
            Err(_) if waiting.len() > 0 => {}
            Ok(None) | Err(_) => return Err(failed.expect("there is a host, and it has failed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use tokio::time::sleep;

    use super::super::config::OPERATION;
    use super::*;

    /// What a host does.
    #[derive(Clone, Copy, PartialEq)]
    enum Manner {
        Silent,
        Refuses,
        SaysWhyNot,
        ServesAfter(Duration),
    }

    use Manner::{Refuses, SaysWhyNot, ServesAfter, Silent};

    const AT_ONCE: Manner = ServesAfter(Duration::ZERO);

    /// Who served, after how long, and who was dialled.
    async fn dialled(hosts: &[Manner]) -> (Result<usize, usize>, Duration, Vec<usize>) {
        let (start, dialled) = (Instant::now(), RefCell::new(vec![]));
        let dial = async |at: usize| {
            dialled.borrow_mut().push(at);
            match hosts[at] {
                Silent => pending().await,
                Refuses | SaysWhyNot => Err(at),
                ServesAfter(delay) => {
                    sleep(delay).await;
                    Ok(at)
                }
            }
        };
        let telling = |at: &usize| hosts[*at] == SaysWhyNot;
        let served = first_to_serve(order(hosts.len(), NONE), dial, telling).await;
        (served, start.elapsed(), dialled.into_inner())
    }

    #[test]
    fn the_one_that_served_last_is_dialled_first() {
        assert_eq!(order(1, 0), [0]);
        assert_eq!(order(4, NONE), [0, 1, 2, 3]);
        assert_eq!(order(4, 2), [2, 0, 1, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_host_costs_its_head_start_and_one_that_refuses_nothing() {
        let nothing = Duration::ZERO;
        assert_eq!(dialled(&[AT_ONCE, AT_ONCE]).await, (Ok(0), nothing, vec![0]));
        assert_eq!(dialled(&[Refuses, AT_ONCE]).await, (Ok(1), nothing, vec![0, 1]));
        assert_eq!(dialled(&[Silent, AT_ONCE]).await, (Ok(1), HEAD_START, vec![0, 1]));
        let hosts = [Silent, Silent, Refuses, AT_ONCE];
        assert_eq!(dialled(&hosts).await, (Ok(3), HEAD_START * 2, vec![0, 1, 2, 3]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_host_is_not_given_up_for_the_next() {
        let slow = HEAD_START * 3;
        for next in [Silent, Refuses] {
            assert_eq!(dialled(&[ServesAfter(slow), next]).await, (Ok(0), slow, vec![0, 1]));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn if_none_serves_the_last_says_why_or_rather_one_that_tells() {
        let nothing = Duration::ZERO;
        assert_eq!(dialled(&[Refuses, Refuses]).await, (Err(1), nothing, vec![0, 1]));
        assert_eq!(dialled(&[SaysWhyNot, Refuses]).await, (Err(0), nothing, vec![0, 1]));
        assert_eq!(dialled(&[Silent, SaysWhyNot]).await, (Err(1), GIVE_UP, vec![0, 1]));
        assert_eq!(dialled(&[SaysWhyNot, Silent]).await, (Err(0), GIVE_UP, vec![0, 1]));
        // Whoever has waited for the whole of an operation knows as much as this one would tell.
        let silent = timeout(OPERATION, dialled(&[Refuses, Silent])).await;
        assert!(silent.is_err(), "{silent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_of_many_has_its_time_as_well() {
        for first in [Refuses, SaysWhyNot, Silent] {
            let mut hosts = [Silent; 10];
            (hosts[0], hosts[9]) = (first, ServesAfter(Duration::from_millis(150)));
            let (served, after, _) = dialled(&hosts).await;
            assert!(served == Ok(9) && after < OPERATION, "{served:?} after {after:?}");
        }
    }

    #[test]
    fn there_is_a_port_for_each_host_or_one_for_all() {
        let ports = |ports: &[u16]| {
            let hosts = ["h1", "h2"].map(|name| Host::Tcp(name.to_owned()));
            let hosts = Hosts::new(hosts.to_vec(), ports).ok()?;
            Some(hosts.all.into_iter().map(|(_, port)| port).collect::<Vec<_>>())
        };
        assert_eq!(ports(&[]), Some(vec![5432, 5432]));
        assert_eq!(ports(&[1]), Some(vec![1, 1]));
        assert_eq!(ports(&[1, 2]), Some(vec![1, 2]));
        assert_eq!(ports(&[1, 2, 3]), None);
    }
}
