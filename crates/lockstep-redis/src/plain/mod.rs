//! The lock that everybody writes by hand: `SET key value NX PX ttl`, and a delete that compares.
//!
//! The key is the name, the value is the claim in 32 hexadecimal digits. Whoever keeps to that rule, in
//! whatever language, is in mutual exclusion with us: hand-written code, redis-py, node-redlock, redsync.
//! There is no token, no queue and nothing else at the server: who waits is known to its own handle alone,
//! and hears of every change of the key ([decision 11](../../../../docs/decisions/0011-the-plain-redis-lock.md)).
//!
//! What is where: `node` asks one server and knows nothing of lock stores, `waiters` remembers who is to be
//! told, `view` shows keys, `store` is the lock store.

pub(crate) mod node;
mod store;
pub(crate) mod view;
mod waiters;

pub(crate) use store::open;
pub(crate) use waiters::Waiters;
