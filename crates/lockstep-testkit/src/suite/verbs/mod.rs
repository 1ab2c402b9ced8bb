//! Cases that ask the store directly, one verb at a time.

mod breaks;
mod grants;
mod leases;
mod names;
mod queue;
mod releases;
mod shares;
mod views;

use super::case::Case;

pub(super) fn cases() -> impl Iterator<Item = &'static Case> {
    let files = [
        grants::CASES,
        queue::CASES,
        releases::CASES,
        shares::CASES,
        leases::CASES,
        breaks::CASES,
        views::CASES,
        names::CASES,
    ];
    files.into_iter().flatten()
}
