use std::fmt;
use std::time::Duration;

/// What a store, as it is configured, can promise. Shown, not smoothed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// The store's name.
    pub store: &'static str,
    /// Whether grants carry tokens, and what those are worth.
    pub fencing: Fencing,
    /// Who can share a lock through it.
    pub scope: Scope,
    /// Whether waiters are served in the order they came.
    pub fair: bool,
    /// Whether a lock can be shared, by readers or by who takes some of its permits.
    pub shared: bool,
    /// Whether it can tell who waits for what, so that a circle of waiters is found and refused.
    pub deadlocks: bool,
    /// Whether a waiter is told at once when the lock is its own, or free to be asked for; otherwise it
    /// asks at intervals.
    pub push: bool,
    /// Whether a lock passes on as soon as the connection of its holder's handle is lost, instead of
    /// when its lease ends. Only where it was asked for: the holder has no early notice of it.
    pub ends_with_connection: bool,
    /// Whether a lock can be handed to another handle: see [`Guard::leak`](crate::Guard::leak).
    pub hands_over: bool,
    /// Which clock judges leases.
    pub clock: &'static str,
    /// The shortest ttl it takes.
    pub ttl_min: Duration,
    /// The longest ttl it takes.
    pub ttl_max: Duration,
    /// What can make two clients hold the same lock, in words.
    pub two_holders_if: &'static str,
    /// What is worth knowing about this very server: an evicting memory policy, a pooler.
    pub warnings: Vec<String>,
    /// Which store of that name it is.
    pub origin: Origin,
}

/// Where tokens come from: those of two origins cannot be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Known to the database itself, so that a tx there can tell that it has the lock's own row
    /// at hand; `None` where no tx can.
    pub id: Option<u128>,
    /// The tenant.
    pub prefix: String,
}

/// What a store's tokens are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fencing {
    /// There are none.
    None,
    /// They grow as long as the server's clock does not step back, also across a failover.
    ClockBound,
    /// They grow, whatever happens to clocks, for as long as the store keeps its data.
    Strong,
}

/// Who can share a lock through a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The tasks of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Every machine that reaches the server.
    Network,
}

/// What a program cannot do without; see [`Locks::require`](crate::Locks::require).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Tokens worth at least this much.
    Fencing(Fencing),
    /// Sharing at least this wide.
    Scope(Scope),
    /// Waiters served in order.
    Fair,
    /// Waiters told at once.
    Push,
    /// Locks that readers and permits share.
    Shared,
    /// Circles of waiters found and refused.
    Deadlocks,
    /// Locks that can be handed to another handle.
    HandOver,
}

impl StoreFacts {
    /// Whether the need is met.
    pub fn meets(&self, need: Need) -> bool {
        match need {
            Need::Fencing(least) => self.fencing >= least,
            Need::Scope(least) => self.scope >= least,
            Need::Fair => self.fair,
            Need::Push => self.push,
            Need::Shared => self.shared,
            Need::Deadlocks => self.deadlocks,
            Need::HandOver => self.hands_over,
        }
    }
}

impl fmt::Display for Fencing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::ClockBound => "clock-bound",
            Self::Strong => "strong",
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "one process",
            Self::Machine => "one machine",
            Self::Network => "network",
        })
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fencing(least) => write!(f, "{least} fencing tokens"),
            Self::Scope(least) => write!(f, "sharing across: {least}"),
            Self::Fair => f.write_str("fair waiting"),
            Self::Push => f.write_str("pushed wake-ups"),
            Self::Shared => f.write_str("locks that are shared"),
            Self::Deadlocks => f.write_str("finding circles of waiters"),
            Self::HandOver => f.write_str("handing a lock to another handle"),
        }
    }
}
