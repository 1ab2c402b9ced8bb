//! Cases through [`Locks`](lockstep_lock::Locks): what users see, whatever the signals do.

mod all;
mod cancel;
mod circles;
mod elections;
mod ends;
mod errors;
mod faults;
mod guards;
mod handover;
mod operators;
mod reentry;
mod scope;
mod shares;
mod waiting;
mod wakes;

use super::case::Case;

pub(super) fn cases() -> impl Iterator<Item = &'static Case> {
    let files = [
        waiting::CASES,
        all::CASES,
        shares::CASES,
        circles::CASES,
        elections::CASES,
        wakes::CASES,
        guards::CASES,
        cancel::CASES,
        faults::CASES,
        reentry::CASES,
        handover::CASES,
        operators::CASES,
        ends::CASES,
        errors::CASES,
        scope::CASES,
    ];
    files.into_iter().flatten()
}
