//! What only PostgreSQL can get wrong. Needs servers:
//!
//! - `LOCKSTEP_TEST_POSTGRES`: a URL with a role that may create roles and schemas;
//! - `LOCKSTEP_TEST_PGBOUNCER`: the same database through a transaction pooler.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]
#![expect(unreachable_pub, reason = "a test has no outside")]

#[path = "postgres/beside.rs"]
mod beside;
#[path = "postgres/connections.rs"]
mod connections;
#[path = "postgres/crash.rs"]
mod crash;
#[path = "postgres/hosts.rs"]
mod hosts;
#[path = "postgres/layout.rs"]
mod layout;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/reference.rs"]
mod reference;
#[path = "postgres/support.rs"]
mod support;
#[path = "postgres/tx.rs"]
mod tx;
#[path = "postgres/verbs.rs"]
mod verbs;
