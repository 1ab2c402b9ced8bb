//! The fault proxy against tiny servers and, for MySQL, a real one: every fault, every switch, every
//! protocol.
//!
//! That something did *not* arrive is never shown by waiting: a later message arrives in its place,
//! or the stream ends without it.

// The exemption for tests does not reach the helpers of an integration test.
#![allow(clippy::unwrap_used)]

#[path = "proxy/mysql.rs"]
mod mysql;
#[path = "proxy/postgres.rs"]
mod postgres;
#[path = "proxy/resp.rs"]
mod resp;
#[path = "proxy/servers.rs"]
mod servers;
#[path = "proxy/switches.rs"]
mod switches;
