//! Lockstep on SQL databases: locks in tables, judged by the database's own clock.
//!
//! One module per database, each with its own SQL; nothing is shared between them but the trait
//! they implement ([`lockstep_lock::store`]). Nobody above this crate sees a driver's type.
//! What users do in a tx of their own is in [`tx`].

pub mod postgres;
pub mod sqlite;
pub mod tx;
