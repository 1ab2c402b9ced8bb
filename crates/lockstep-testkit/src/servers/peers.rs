//! The network among the members of a cluster, which can be cut.
//!
//! A member has one address for all others, so who calls is told from whose socket it is.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::procfs;
use crate::proxy::{self, Protocol, Proxy};

/// A member is known as soon as it has started; it may call before.
const WHO_CALLS: Duration = Duration::from_millis(20);

/// `links[a][b]`: how member `a` reaches member `b`.
type Links = Arc<Vec<Vec<Proxy>>>;
type Pids = Arc<Mutex<Vec<Option<Pid>>>>;

/// A front for each member, and a link from each to each behind it.
pub(super) struct Peers {
    fronts: Vec<(u16, AbortHandle)>,
    links: Links,
    pids: Pids,
}

impl Peers {
    /// For members that listen on these ports.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, or if there is no port to listen on.
    pub(super) fn new(ports: &[u16]) -> Self {
        let link = |port: &u16| Proxy::start((Ipv4Addr::LOCALHOST, *port).into(), Protocol::Bytes);
        let links = ports.iter().map(|_| ports.iter().map(link).collect()).collect();
        let (links, pids) = (Arc::new(links), Arc::new(Mutex::new(vec![None; ports.len()])));
        let front = |to| front(to, Arc::clone(&links), Arc::clone(&pids));
        Self { fronts: (0..ports.len()).map(front).collect(), links, pids }
    }

    /// Where the others reach this member.
    pub(super) fn port(&self, member: usize) -> u16 {
        self.fronts[member].0
    }

    /// This process is that member.
    pub(super) fn is(&self, member: usize, pid: Pid) {
        self.pids.lock()[member] = Some(pid);
    }

    /// Nothing passes between this member and the others, and nobody is told.
    pub(super) fn cut_off(&self, member: usize) {
        self.around(member).for_each(Proxy::partition);
    }

    /// Ends [`cut_off`](Self::cut_off).
    pub(super) fn heal(&self, member: usize) {
        self.around(member).for_each(Proxy::heal);
    }

    fn around(&self, member: usize) -> impl Iterator<Item = &Proxy> {
        (0..self.links.len())
            .filter(move |other| *other != member)
            .flat_map(move |other| [&self.links[member][other], &self.links[other][member]])
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("pids", &self.pids).finish_non_exhaustive()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.fronts.iter().for_each(|(_, task)| task.abort());
    }
}

fn front(to: usize, links: Links, pids: Pids) -> (u16, AbortHandle) {
    let (listener, addr) = proxy::listen();
    let task = tokio::spawn(async move {
        while let Ok((stream, caller)) = listener.accept().await {
            let (links, pids) = (Arc::clone(&links), Arc::clone(&pids));
            tokio::spawn(async move { pass_on(stream, caller, to, &links, &pids).await });
        }
    });
    (addr.port(), task.abort_handle())
}

/// Ends with either side.
async fn pass_on(mut stream: TcpStream, caller: SocketAddr, to: usize, links: &Links, pids: &Pids) {
    let from = loop {
        let known = pids.lock().clone();
        let calls = |pid: &Option<Pid>| pid.is_some_and(|pid| procfs::calls(pid, caller.port()));
        match known.iter().position(calls) {
            Some(member) => break member,
            None => tokio::time::sleep(WHO_CALLS).await,
        }
    };
    if let Ok(mut link) = TcpStream::connect(links[from][to].addr()).await {
        let _ = copy_bidirectional(&mut stream, &mut link).await;
    }
}
