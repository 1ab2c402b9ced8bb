//! From the rows of a server's `view.sql` to the locks that they describe.

use std::time::Duration;

use lockstep_core::{ClaimId, Key, Label, Owner, Token};
use lockstep_lock::Share;
use lockstep_lock::store::{HolderView, LockView, WaiterView};

/// One row of `view.sql`; claim and owner are 0 where it has none.
pub(crate) struct Seen {
    pub(crate) kind: i64,
    pub(crate) key: String,
    pub(crate) claim: u128,
    pub(crate) owner: u128,
    pub(crate) label: String,
    pub(crate) weight: i64,
    pub(crate) total: i64,
    pub(crate) token: i64,
    pub(crate) since_ms: i64,
    pub(crate) left_us: i64,
    pub(crate) broken: Option<String>,
    pub(crate) waiting: i64,
}

/// The locks that the rows describe; those that nobody has are left out. An error says what nobody
/// of us has written.
pub(crate) fn locks(rows: Vec<Seen>, tenant: &str) -> Result<Vec<LockView>, String> {
    let mut locks: Vec<LockView> = vec![];
    for row in rows {
        match (row.kind, locks.last_mut()) {
            (0, _) => locks.push(row.lock(tenant)?),
            (1, Some(lock)) => lock.holders.push(row.holder()?),
            (2, Some(lock)) => lock.waiters.push(row.waiter()?),
            (kind, _) => return Err(format!("a row of kind {kind}")),
        }
    }
    locks.retain(|lock| !lock.holders.is_empty() || lock.waiting > 0);
    Ok(locks)
}

impl Seen {
    fn lock(self, tenant: &str) -> Result<LockView, String> {
        let name = self.key.strip_prefix(tenant).unwrap_or(&self.key);
        let key = Key::new(name).map_err(|error| format!("a lock's name: {error}"))?;
        let waiting = number("waiting", self.waiting)?;
        Ok(LockView { key, holders: vec![], waiting, waiters: vec![] })
    }

    fn holder(self) -> Result<HolderView, String> {
        Ok(HolderView {
            share: self.share()?,
            claim: ClaimId::from_u128(self.claim),
            owner: Owner::from_u128(self.owner),
            label: Label::new(self.label),
            token: Some(Token::new(number("token", self.token)?)),
            since_ms: number("since_ms", self.since_ms)?,
            left: Duration::from_micros(number("left_us", self.left_us)?),
            broken: self.broken,
        })
    }

    fn waiter(self) -> Result<WaiterView, String> {
        Ok(WaiterView {
            share: self.share()?,
            claim: ClaimId::from_u128(self.claim),
            owner: Owner::from_u128(self.owner),
            label: Label::new(self.label),
            since_ms: number("since_ms", self.since_ms)?,
        })
    }

    fn share(&self) -> Result<Share, String> {
        let share = u32::try_from(self.weight).ok().zip(u32::try_from(self.total).ok());
        share
            .and_then(|(weight, total)| Share::from_numbers(weight, total))
            .ok_or_else(|| format!("a share of {}/{}", self.weight, self.total))
    }
}

fn number(column: &str, number: i64) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("{column} is {number}"))
}
