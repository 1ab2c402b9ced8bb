//! Lockstep on SQL databases: locks in tables, judged by the database's own clock.
//!
//! One module per database, each with its own SQL; they implement one trait
//! ([`lockstep_lock::store`]). The two servers also share what their URLs and answers have in common.
//! Nobody above this crate sees a driver's type.
//! What users do in a tx of their own is in [`tx`].

mod answer;
pub mod mysql;
mod parameters;
pub mod postgres;
pub mod sqlite;
pub mod tx;
mod view;
