//! How much of the machine others used while we measured.

/// A reading of the kernel's counters.
pub(crate) struct Reading {
    all: u64,
    others: u64,
}

impl Reading {
    /// Niced and stolen time, and everything; zero where the kernel does not tell.
    pub(crate) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|field| field.parse().ok())
            .collect();
        let at = |index: usize| fields.get(index).copied().unwrap_or(0);
        Self { all: fields.iter().take(8).sum(), others: at(1) + at(7) }
    }

    /// The part of the time since `earlier` that went to niced or stolen work.
    pub(crate) fn disturbed_since(&self, earlier: &Self) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        if all == 0 {
            return 0.0;
        }
        self.others.saturating_sub(earlier.others) as f64 / all as f64
    }
}
