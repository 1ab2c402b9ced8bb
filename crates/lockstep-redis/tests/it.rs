//! The store against a real server, named by `LOCKSTEP_TEST_REDIS`: what is Redis's own, and a smoke
//! of the verbs.

#![expect(clippy::unwrap_used, reason = "a test says by panicking what went wrong")]

#[path = "it/fake.rs"]
mod fake;
#[path = "it/fence.rs"]
mod fence;
#[path = "it/layout.rs"]
mod layout;
#[path = "it/link.rs"]
mod link;
#[path = "it/plain.rs"]
mod plain;
#[path = "it/plain_delete.rs"]
mod plain_delete;
#[path = "it/reference.rs"]
mod reference;
#[path = "it/shared.rs"]
mod shared;
#[path = "it/support.rs"]
mod support;
#[path = "it/tls.rs"]
mod tls;
#[path = "it/unfit.rs"]
mod unfit;
#[path = "it/verbs.rs"]
mod verbs;
