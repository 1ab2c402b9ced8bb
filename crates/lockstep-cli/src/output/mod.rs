//! How things look: tables, moments, JSON, and names that other people have chosen.

mod table;
mod text;
mod time;
mod view;

pub(crate) use table::Table;
pub(crate) use text::{json, safe};
pub(crate) use time::{age, utc, wall_ms};
pub(crate) use view::{and_others, held_by, holder_json, lock_json, waiter_json};
