//! From a URL to a connection's settings. A password never gets out of here in any text.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use lockstep_core::StoreError;
use lockstep_net::Trust;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::STORE;
use crate::keys::{DEFAULT_PREFIX, Layout};
use crate::plain::Waiters;

const PARAMETERS: &str = "layout, prefix, on_disconnect, password_file, ca_file";

/// The longest prefix of the plain layout.
const MAX_PLAIN_PREFIX: usize = 128;

/// A Redis server as a lock store.
///
/// ```
/// use lockstep_redis::Redis;
///
/// let store = Redis::from_url("redis://:secret@127.0.0.1:6379/2?prefix=shop").unwrap();
/// assert_eq!(format!("{store:?}"), "Redis(redis://127.0.0.1:6379/2?prefix=shop)");
///
/// let error = Redis::from_url("redis://127.0.0.1?prefx=shop").unwrap_err();
/// assert!(error.to_string().contains("prefix"));
/// ```
#[derive(Clone)]
pub struct Redis {
    pub(crate) config: Arc<Config>,
    /// Who waits for plain locks.
    pub(crate) waiters: Arc<Waiters>,
}

pub(crate) struct Config {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Trust>,
    pub(crate) user: Option<String>,
    password: Password,
    pub(crate) db: u16,
    pub(crate) prefix: String,
    /// Whether what is held ends with the connection that listens.
    pub(crate) bound: bool,
    pub(crate) form: Form,
}

/// What locks look like at the server.
pub(crate) enum Form {
    /// Lockstep's own layout: a queue, tokens, shares.
    Lockstep(Layout),
    /// One string per lock, as everybody writes it by hand: see [`plain`](crate::plain).
    Plain,
}

enum Password {
    None,
    Given(String),
    File(PathBuf),
}

impl Redis {
    /// The store that a URL names:
    /// `redis://[user][:password]@host[:port][/db]`, or `rediss://…` for TLS, with
    ///
    /// - `?layout=plain` for the lock that everybody writes by hand, `SET key value NX PX ttl`: no tokens, no
    ///   queue, but in mutual exclusion with such code, redis-py, node-redlock and redsync (default
    ///   `lockstep`),
    /// - `?prefix=` before every key, to separate tenants of one server (default `lockstep`; in the plain
    ///   layout none, and any text will do),
    /// - `?on_disconnect=release` to let locks pass on within a second when the connection of their
    ///   holder's handle is lost, instead of when their leases end (default `keep`). A process that dies is
    ///   replaced at once; but a connection can be lost while the work goes on, and the holder only hears
    ///   of it at its next renewal,
    /// - `?password_file=` instead of a password, read again at each connection,
    /// - `?ca_file=` with the certificates (PEM) of a private authority, which is then the only one
    ///   trusted; without it the public ones are.
    ///
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// Of kind [`Config`](lockstep_core::ErrorKind::Config), for everything that can never work.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = Config::from_url(url)?;
        // What the URL points at should be wrong now rather than at the first connection.
        config.password()?;
        Ok(Self { config: Arc::new(config), waiters: Arc::default() })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.config)
    }
}

impl fmt::Display for Config {
    /// The URL without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_none() { "redis" } else { "rediss" };
        let layout = if matches!(self.form, Form::Plain) { "layout=plain&" } else { "" };
        write!(f, "{scheme}://{}/{}?{layout}prefix={}", self.address(), self.db, self.prefix)
    }
}

impl Config {
    pub(crate) fn from_url(url: &str) -> Result<Self, StoreError> {
        let encrypted = scheme(url)?;
        let url = parse(url)?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return refuse("the URL names no host: write redis://127.0.0.1:6379");
        };
        let db = match url.path().trim_start_matches('/') {
            "" => Ok(0),
            number => number.parse(),
        };
        let Ok(db) = db else {
            return refuse("the path of the URL must be a database number, like /0");
        };
        let user = Some(decode(url.username(), "user name")?).filter(|user| !user.is_empty());
        let mut password = match decode(url.password().unwrap_or_default(), "password")? {
            empty if empty.is_empty() => Password::None,
            given => Password::Given(given),
        };
        let mut prefix = None;
        let mut ca_file = None;
        let mut plain = false;
        let mut bound = false;
        for (name, value) in url.query_pairs() {
            match &*name {
                "layout" => match &*value {
                    "lockstep" => plain = false,
                    "plain" => plain = true,
                    _ => return refuse("?layout= is lockstep or plain"),
                },
                "prefix" => prefix = Some(value.into_owned()),
                "on_disconnect" => match &*value {
                    "keep" => bound = false,
                    "release" => bound = true,
                    _ => return refuse("?on_disconnect= is keep or release"),
                },
                "password_file" if matches!(password, Password::None) => {
                    password = Password::File(value.into_owned().into());
                }
                "password_file" => {
                    return refuse("a password in the URL and ?password_file= exclude each other");
                }
                "ca_file" if !encrypted => {
                    return refuse("?ca_file= needs a rediss:// URL; redis:// does not use TLS");
                }
                "ca_file" => ca_file = Some(value.into_owned()),
                other => {
                    return refuse(format!("unknown parameter ?{other}=; known are: {PARAMETERS}"));
                }
            }
        }
        if user.is_some() && matches!(password, Password::None) {
            return refuse("a user name needs a password: put it in the URL or ?password_file=");
        }
        let (prefix, form) = match plain {
            true => (plain_prefix(prefix.unwrap_or_default(), bound)?, Form::Plain),
            false => {
                let prefix = prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
                let Some(layout) = Layout::new(&prefix) else {
                    return refuse("?prefix= takes 1 to 64 of A-Z a-z 0-9 . _ -");
                };
                (prefix, Form::Lockstep(layout))
            }
        };
        let trusted = || lockstep_net::trust(ca_file.as_deref()).or_else(refuse);
        let tls = encrypted.then(trusted).transpose()?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = url.port().unwrap_or(6379);
        Ok(Self { host, port, tls, user, password, db, prefix, bound, form })
    }

    /// Host and port, for messages.
    pub(crate) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The password as it is now: its file may have been written anew since the last connection.
    pub(crate) fn password(&self) -> Result<Option<String>, StoreError> {
        match &self.password {
            Password::None => Ok(None),
            Password::Given(password) => Ok(Some(password.clone())),
            Password::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
                Err(why) => refuse(format!("password_file {}: {why}", path.display())),
            },
        }
    }
}

/// What may stand before a name in the plain layout: others have chosen their own already.
fn plain_prefix(prefix: String, bound: bool) -> Result<String, StoreError> {
    if bound {
        return refuse(
            "?layout=plain keeps a lock until its lease ends: leave out ?on_disconnect=release",
        );
    }
    if prefix.len() > MAX_PLAIN_PREFIX || prefix.chars().any(char::is_control) {
        return refuse(format!(
            "with ?layout=plain, ?prefix= takes at most {MAX_PLAIN_PREFIX} bytes without control characters"
        ));
    }
    Ok(prefix)
}

/// Whether the scheme asks for TLS; looked at first, because the URLs of clusters need not be URLs.
fn scheme(url: &str) -> Result<bool, StoreError> {
    match url.split_once("://").map_or("", |(scheme, _)| scheme) {
        "redis" => Ok(false),
        "rediss" => Ok(true),
        "redis-sentinel" | "redis+sentinel" | "rediss-sentinel" | "rediss+sentinel" => {
            refuse("Sentinel is not supported yet: use the primary's own redis:// URL")
        }
        "redis-cluster" | "redis+cluster" | "rediss-cluster" | "rediss+cluster" => {
            refuse("Redis Cluster is not supported yet: use the redis:// URL of a single server")
        }
        _ => refuse("a Redis URL starts with redis:// or rediss://"),
    }
}

fn parse(url: &str) -> Result<Url, StoreError> {
    let url = match Url::parse(url) {
        Ok(url) => url,
        // The parser's own words are used because they repeat nothing of the URL.
        Err(why) => {
            return refuse(format!(
                "the URL cannot be read ({why}); expected \
                 redis://[user][:password]@host[:port][/db], with special characters of user \
                 and password percent-encoded"
            ));
        }
    };
    // A password with a bare `/`, `?` or `#` ends the host too early; what follows must not be
    // repeated in a message about an unknown database or parameter.
    let after_host = [url.path(), url.query().unwrap_or_default()];
    if url.fragment().is_some() || after_host.iter().any(|text| text.contains('@')) {
        return refuse(
            "the URL has '#', or '@' after the host: percent-encode special characters of user \
             and password",
        );
    }
    Ok(url)
}

fn refuse<T>(message: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::config(STORE, message))
}

fn decode(text: &str, what: &str) -> Result<String, StoreError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => refuse(format!("the {what} in the URL is not UTF-8")),
    }
}
