//! A thin client for ZooKeeper, made for locks: requests are written back to back and answered in
//! order, a session is proved by answers and never by pings, and whoever asked hears whether a
//! request can have been carried out.

mod jute;
mod machine;
mod shell;
mod stream;
pub(crate) mod wire;

pub(crate) use shell::{Ears, Failure, News, Pending, Session, Setup};
pub(crate) use stream::{Server, Tls};
