//! What people write about Redlock, with real servers: nodes that restart, die, stand still, forget, lose
//! replies and step their clocks. Every refusal has a twin without the guard, in which the oracle must see
//! two holders.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod redlock {
    mod clocks;
    pub(crate) mod cluster;
    mod nodes;
    mod replies;
    mod restarts;
}
