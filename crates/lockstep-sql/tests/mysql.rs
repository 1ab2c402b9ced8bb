//! What only MariaDB and MySQL can get wrong. Needs `LOCKSTEP_TEST_MARIADB`: a URL with a user that
//! may create tables and procedures. What needs a server's administrator starts its own server.

#![expect(clippy::unwrap_used, reason = "what is unexpected here fails the test")]
#![expect(unreachable_pub, reason = "a test has no outside")]

#[path = "mysql/connections.rs"]
mod connections;
#[path = "mysql/crash.rs"]
mod crash;
#[path = "mysql/layout.rs"]
mod layout;
#[path = "mysql/push.rs"]
mod push;
#[path = "mysql/reference.rs"]
mod reference;
#[path = "mysql/support.rs"]
mod support;
#[path = "mysql/tx.rs"]
mod tx;
#[path = "mysql/verbs.rs"]
mod verbs;
