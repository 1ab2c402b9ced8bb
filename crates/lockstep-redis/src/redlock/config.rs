//! From a URL with several hosts to the settings of each node.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::{Drift, StoreError};
use lockstep_lock::queue::{TTL_MAX, TTL_MIN};
use url::form_urlencoded;

use super::nodes::Shared;
use super::standing::{Guards, Rules};
use crate::config::Config;
use crate::error;

/// This store's name in errors and facts.
pub(super) const STORE: &str = "redlock";

const PARAMETERS: &str = "max_ttl, node_timeout, prefix, tls, password_file, ca_file";
/// More nodes make nothing safer and everything slower.
const MOST_NODES: usize = 9;
const MAX_TTL: Duration = Duration::from_secs(60);
/// Far below the usual ttl, and enough for nodes on another continent.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);
const EXAMPLE: &str = "redlock://a.example:6379,b.example:6379,c.example:6379";

/// Several Redis servers that know nothing of each other as one lock store.
///
/// ```
/// use lockstep_redis::Redlock;
///
/// let store = Redlock::from_url("redlock://:secret@a:6379,b:6379,c:6379?max_ttl=30s").unwrap();
/// assert_eq!(format!("{store:?}"), "Redlock(a:6379, b:6379, c:6379)");
///
/// let error = Redlock::from_url("redlock://a:6379,b:6379,a:6379").unwrap_err();
/// assert!(error.to_string().contains("twice"));
/// ```
#[derive(Clone)]
pub struct Redlock {
    pub(super) config: Arc<Settings>,
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Settings {
    pub(super) nodes: Vec<Arc<Config>>,
    pub(super) prefix: String,
    pub(super) node_timeout: Duration,
    pub(super) rules: Rules,
}

impl Redlock {
    /// The nodes that a URL names: `redlock://[user][:password]@host[:port],host[:port],…[/db]`; user,
    /// password and database are the same on all. Three or five of them, on machines that do not fail
    /// together. With
    ///
    /// - `?max_ttl=` the longest ttl that any client of these nodes uses, such as `30s` (default `60s`). All must
    ///   name the same: a node that was restarted does not vote until it has run for so long,
    /// - `?node_timeout=` how long a node is waited for, if the others are not a quorum (default `250ms`, and
    ///   no more than a third of the ttl),
    /// - `?prefix=` before every key (default none, so that the key is the name, as other programs write it),
    /// - `?tls=true`, `?password_file=` and `?ca_file=` as for `rediss://`.
    ///
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// Of kind [`Config`](lockstep_core::ErrorKind::Config), for everything that can never work.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = Settings::from_url(url)?;
        // What the URL points at should be wrong now rather than at the first connection.
        for node in &config.nodes {
            node.password().map_err(named)?;
        }
        Ok(Self::with(config))
    }

    /// The same with guards down, for tests that show what they are good for.
    #[doc(hidden)]
    #[must_use]
    pub fn with_guards(self, guards: Guards) -> Self {
        let Settings { nodes, prefix, node_timeout, rules } = &*self.config;
        let rules = Rules { guards, ..*rules };
        let (nodes, prefix) = (nodes.clone(), prefix.clone());
        Self::with(Settings { nodes, prefix, node_timeout: *node_timeout, rules })
    }

    fn with(config: Settings) -> Self {
        let shared = Shared::new(config.nodes.len(), config.rules);
        Self { config: Arc::new(config), shared: Arc::new(shared) }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redlock({})", self.config)
    }
}

impl fmt::Display for Settings {
    /// The nodes, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes.iter().map(|node| node.address()).collect();
        f.write_str(&nodes.join(", "))
    }
}

impl Settings {
    fn from_url(url: &str) -> Result<Self, StoreError> {
        let Some(rest) = url.strip_prefix("redlock://") else {
            return refuse("the URL starts with redlock://");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password with a bare `?` or `#` ends the hosts too early; what follows must not be repeated.
        if query.contains('@') || url.contains('#') {
            return refuse(
                "the URL has '#', or '@' after the hosts: percent-encode special characters of user and \
                 password",
            );
        }
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (format!("{login}@"), rest),
            None => (String::new(), rest),
        };
        let (hosts, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (mut max_ttl, mut node_timeout) = (MAX_TTL, NODE_TIMEOUT);
        let mut scheme = "redis";
        let mut passed_on = form_urlencoded::Serializer::new(String::new());
        passed_on.append_pair("layout", "plain");
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "max_ttl" => max_ttl = duration("max_ttl", &value, TTL_MIN..=TTL_MAX)?,
                "node_timeout" => {
                    let range = Duration::from_millis(1)..=Duration::from_secs(10);
                    node_timeout = duration("node_timeout", &value, range)?;
                }
                "tls" if value == "true" => scheme = "rediss",
                "tls" if value == "false" => scheme = "redis",
                "tls" => return refuse("?tls= is true or false"),
                "prefix" | "password_file" | "ca_file" => {
                    passed_on.append_pair(&name, &value);
                }
                other => {
                    return refuse(format!("unknown parameter ?{other}=; known are: {PARAMETERS}"));
                }
            }
        }
        let query = passed_on.finish();
        let mut nodes = vec![];
        let mut seen = BTreeSet::new();
        for host in hosts.split(',') {
            if host.is_empty() {
                return refuse(format!("a host between the commas is empty: write {EXAMPLE}"));
            }
            let config = Config::from_url(&format!("{scheme}://{login}{host}/{db}?{query}"));
            let config = config.map_err(named)?;
            if !seen.insert(config.address()) {
                return refuse(format!(
                    "{} is named twice: each node has one vote, and must be a server of its own",
                    config.address()
                ));
            }
            nodes.push(Arc::new(config));
        }
        if nodes.len() > MOST_NODES {
            return refuse(format!("more than {MOST_NODES} nodes: three or five are enough"));
        }
        let prefix = nodes[0].prefix.clone();
        let rules = Rules { max_ttl, drift: Drift::default(), guards: Guards::UP };
        Ok(Self { nodes, prefix, node_timeout, rules })
    }
}

fn duration(
    name: &str,
    text: &str,
    range: std::ops::RangeInclusive<Duration>,
) -> Result<Duration, StoreError> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let read = unit.zip(digits.parse::<u64>().ok());
    let read = read.and_then(|(unit, number)| number.checked_mul(unit)).map(Duration::from_millis);
    match read.filter(|duration| range.contains(duration)) {
        Some(duration) => Ok(duration),
        None => refuse(format!(
            "?{name}= takes a duration such as 500ms, 30s or 2m, from {:?} to {:?}",
            range.start(),
            range.end()
        )),
    }
}

fn refuse<T>(message: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::config(STORE, message))
}

/// A node's error as one of this store.
fn named(error: StoreError) -> StoreError {
    StoreError::new(STORE, error.kind(), error.effect(), error::words(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        match Redlock::from_url(url) {
            Err(error) => error.to_string(),
            Ok(store) => panic!("{store:?}"),
        }
    }

    #[test]
    fn every_node_has_the_settings_of_the_url() {
        let url =
            "redlock://me:s3cret@a,b:7000,[::1]:7001/2?prefix=shop:&max_ttl=30s&node_timeout=80ms";
        let store = Redlock::from_url(url).unwrap();
        assert_eq!(format!("{store:?}"), "Redlock(a:6379, b:7000, [::1]:7001)");
        let Settings { nodes, prefix, node_timeout, rules } = &*store.config;
        assert_eq!((nodes.len(), prefix.as_str()), (3, "shop:"));
        assert_eq!(
            (*node_timeout, rules.max_ttl),
            (Duration::from_millis(80), Duration::from_secs(30))
        );
        assert!(nodes.iter().all(|node| node.to_string().contains("/2?layout=plain")));
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        for (url, says) in [
            ("redlock://", "empty"),
            ("redlock://a,,b", "empty"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a?max_ttl=60", "30s"),
            ("redlock://a?max_ttl=2d", "30s"),
            ("redlock://a?max_ttl=1ms", "20ms"),
            ("redlock://a?layout=plain", "known are"),
            ("redlock://a?tls=yes", "true or false"),
            ("redlock://a/x", "database number"),
            ("redlock://a,b,c,d,e,f,g,h,i,j", "three or five"),
        ] {
            let told = refused(url);
            assert!(told.starts_with("redlock: ") && told.contains(says), "{url}: {told}");
        }
    }

    #[test]
    fn a_password_is_never_repeated() {
        for url in ["redlock://u:s3c?ret@a,b", "redlock://u:s3c#ret@a,b", "redlock://u:ret@a,a"] {
            assert!(!refused(url).contains("ret"), "{}", refused(url));
        }
        let store = Redlock::from_url("redlock://:s3cret@a,b,c").unwrap();
        assert!(!format!("{store:?}").contains("s3cret"));
    }
}
