//! Which locks were last seen in other hands or with waiters, so that asking for them does not begin
//! with a statement that will find nothing. A hint that is wrong costs a little time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Hints([AtomicBool; 1024]);

impl Hints {
    pub(super) fn new() -> Self {
        Self([const { AtomicBool::new(false) }; 1024])
    }

    pub(super) fn is_contended(&self, key: &str) -> bool {
        self.place(key).load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, key: &str, contended: bool) {
        self.place(key).store(contended, Ordering::Relaxed);
    }

    fn place(&self, key: &str) -> &AtomicBool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.0[hasher.finish() as usize % self.0.len()]
    }
}
