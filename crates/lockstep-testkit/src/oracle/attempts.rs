//! A history, sorted into acquisitions.

use std::collections::BTreeMap;

use super::log::{Event, What};

/// All acquisitions, by lock.
pub(super) struct Attempts<'a> {
    by_key: BTreeMap<&'a str, Vec<Story<'a>>>,
}

/// What is known of one acquisition. Times are in nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Story<'a> {
    client: &'a str,
    number: u64,
    pub(super) asked: Option<u64>,
    pub(super) queued: Option<u64>,
    pub(super) granted: Option<u64>,
    pub(super) token: Option<u64>,
    pub(super) gave_up: bool,
    released: Option<u64>,
    ended: Option<u64>,
    trusted: Option<u64>,
}

impl<'a> Attempts<'a> {
    pub(super) fn of(events: &'a [Event]) -> Self {
        let mut all: BTreeMap<(&str, &str, u64), Story<'a>> = BTreeMap::new();
        for event in events {
            let name = (event.key.as_str(), event.client.as_str(), event.attempt);
            let story = all.entry(name).or_insert_with(|| Story::new(event));
            story.add(event);
        }
        let mut by_key: BTreeMap<&str, Vec<Story<'a>>> = BTreeMap::new();
        for ((key, ..), story) in all {
            by_key.entry(key).or_default().push(story);
        }
        for stories in by_key.values_mut() {
            stories.sort_by_key(|story| story.granted.unwrap_or(u64::MAX));
        }
        Self { by_key }
    }

    /// The locks, each with its acquisitions in the order of their grants; those without are last.
    pub(super) fn by_key(&self) -> impl Iterator<Item = (&'a str, &[Story<'a>])> {
        self.by_key.iter().map(|(key, stories)| (*key, stories.as_slice()))
    }

    pub(super) fn grants(&self) -> usize {
        self.by_key.values().flatten().filter(|story| story.granted.is_some()).count()
    }
}

impl<'a> Story<'a> {
    fn new(event: &'a Event) -> Self {
        Self {
            client: &event.client,
            number: event.attempt,
            asked: None,
            queued: None,
            granted: None,
            token: None,
            gave_up: false,
            released: None,
            ended: None,
            trusted: None,
        }
    }

    fn add(&mut self, event: &Event) {
        let at = event.at_ns;
        match event.what {
            What::Asked => self.asked = Some(at),
            What::Queued => self.queued = Some(at),
            What::Granted { token } => (self.granted, self.token) = (Some(at), token),
            What::Trusted { until_ns } => self.trusted = self.trusted.max(Some(until_ns)),
            What::ReleaseCalled => self.released = Some(at),
            What::TrustEnded { until_ns } => self.ended = Some(until_ns),
            What::GaveUp => self.gave_up = true,
        }
    }

    /// From hearing of the grant to the earlier of the release call and the end of trust. Who
    /// left no word is judged by its last look: it may have trusted longer, never shorter.
    pub(super) fn held(&self) -> Option<(u64, u64)> {
        let end = self.released.into_iter().chain(self.ended).min().or(self.trusted);
        self.granted.map(|start| (start, end.unwrap_or(start)))
    }

    pub(super) fn name(&self) -> String {
        format!("{}#{}", self.client, self.number)
    }
}

/// Hand-written histories for the tests of the judges.
#[cfg(test)]
pub(super) mod build {
    use super::*;

    /// An event of the lock `k`; every client asks once.
    pub(crate) fn event(at_ns: u64, client: &str, what: What) -> Event {
        Event { at_ns, client: client.to_owned(), attempt: 0, key: "k".to_owned(), what }
    }

    /// A client that holds the lock from `start` to `end`.
    pub(crate) fn held(client: &str, start: u64, end: u64, token: u64) -> Vec<Event> {
        vec![
            event(start.saturating_sub(1), client, What::Asked),
            event(start, client, What::Granted { token: Some(token) }),
            event(start, client, What::Trusted { until_ns: end + 1_000 }),
            event(end, client, What::ReleaseCalled),
        ]
    }
}
