//! Going through the keys of a server.

use std::collections::BTreeSet;

use lockstep_core::{Key, StoreError};
use redis::Value;

use crate::error;
use crate::link::Link;

/// The names that `named` reads from the keys that match; `further` goes with the command.
pub(crate) async fn names(
    link: &Link,
    pattern: &str,
    further: &[&str],
    named: impl Fn(&[u8]) -> Option<Key>,
) -> Result<BTreeSet<Key>, StoreError> {
    let mut names = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000).arg(further);
        let (next, keys) = match link.call(&scan).await? {
            Value::ServerError(refusal) => return Err(error::refused(&refusal, pattern)),
            Value::Array(page) => match <[Value; 2]>::try_from(page) {
                Ok([Value::BulkString(next), Value::Array(keys)]) => (next, keys),
                other => return Err(error::baffled(pattern, other)),
            },
            other => return Err(error::baffled(pattern, other)),
        };
        names.extend(keys.iter().filter_map(|key| match key {
            Value::BulkString(key) => named(key),
            _ => None,
        }));
        if next == b"0" {
            return Ok(names);
        }
        cursor = next;
    }
}
