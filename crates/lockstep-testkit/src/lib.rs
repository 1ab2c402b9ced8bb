//! What proves Lockstep: real servers, faults, suites, stories and oracles. Seen by tests only.

pub mod oracle;
pub mod proxy;
pub mod reference;
pub mod scripts;
pub mod servers;
pub mod stories;
pub mod suite;
pub mod wire;
pub mod wrap;
