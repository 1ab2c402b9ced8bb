//! From a URL to where the servers are and how to speak to them. A password never gets out of here in
//! any text.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockstep_core::StoreError;
use percent_encoding::percent_decode_str;
use tokio::sync::OnceCell;

use crate::client::wire::Acl;
use crate::client::{Server, Setup, Tls};
use crate::engine::Engine;
use crate::error::STORE;
use crate::names::{Layout, Names};

const PARAMETERS: &str = "prefix, layout, password_file, ca_file";
const DEFAULT_PREFIX: &str = "lockstep";

/// A ZooKeeper server or ensemble as a lock store.
///
/// ```
/// use lockstep_zookeeper::ZooKeeper;
///
/// let store = ZooKeeper::from_url("zookeeper://ann:secret@10.0.0.1,10.0.0.2:2182/shop").unwrap();
/// assert_eq!(
///     format!("{store:?}"),
///     "ZooKeeper(zookeeper://10.0.0.1:2181,10.0.0.2:2182/shop?prefix=lockstep)"
/// );
///
/// let error = ZooKeeper::from_url("zookeeper://10.0.0.1?prefx=shop").unwrap_err();
/// assert!(error.to_string().contains("prefix"));
/// ```
#[derive(Clone)]
pub struct ZooKeeper {
    pub(crate) config: Arc<Config>,
    /// Both lanes of a handle speak through it: a session is theirs together.
    pub(crate) engine: Arc<OnceCell<Arc<Engine>>>,
}

pub(crate) struct Config {
    servers: Arc<[Server]>,
    tls: Tls,
    user: Option<String>,
    password: Password,
    pub(crate) chroot: String,
    prefix: String,
    pub(crate) names: Names,
}

#[derive(Clone)]
enum Password {
    None,
    Given(String),
    File(PathBuf),
}

impl ZooKeeper {
    /// The store that a URL names:
    /// `zookeeper://[user:password@]host[:port][,host[:port]…][/chroot]`, or `zookeepers://…` for TLS, with
    ///
    /// - `?prefix=` for the directory below the chroot that holds the locks (default `lockstep`),
    /// - `?layout=` for the form of the nodes, which every program on the same path must share:
    ///   `mutex` (default) is that of Curator's `InterProcessMutex` and `LeaderSelector`, `readwrite` that
    ///   of its `InterProcessReadWriteLock`, `latch` that of its `LeaderLatch`; `basic` is one node for
    ///   which everybody waits at once, without order,
    /// - `?password_file=` instead of a password, read again at each connection,
    /// - `?ca_file=` with the certificates (PEM) of a private authority, which is then the only one
    ///   trusted; without it the public ones are.
    ///
    /// The chroot must be there; what is below it is made as it is needed, and goes by itself. Nodes
    /// are open to everybody, or with a user name to that user alone. Nothing is connected yet.
    ///
    /// # Errors
    /// Of kind [`Config`](lockstep_core::ErrorKind::Config), for everything that can never work.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        Ok(Self { config: Arc::new(Config::from_url(url)?), engine: Arc::default() })
    }
}

impl fmt::Debug for ZooKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZooKeeper({})", self.config)
    }
}

impl fmt::Display for Config {
    /// The URL without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "zookeepers" } else { "zookeeper" };
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{}{}?prefix={}", servers.join(","), self.chroot, self.prefix)
    }
}

impl Config {
    fn from_url(url: &str) -> Result<Self, StoreError> {
        let (secure, rest) = match url.split_once("://") {
            Some(("zookeeper", rest)) => (false, rest),
            Some(("zookeepers", rest)) => (true, rest),
            _ => return refuse("a ZooKeeper URL starts with zookeeper:// or zookeepers://"),
        };
        if rest.contains('#') {
            return refuse(
                "the URL has '#': percent-encode special characters of user and password",
            );
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, chroot) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if chroot.contains('@') || query.contains('@') {
            return refuse(
                "the URL has '@' after the servers: percent-encode special characters of user and password",
            );
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let servers = hosts.split(',').map(server).collect::<Result<Vec<Server>, _>>()?;
        let (user, mut password) = match login {
            None => (None, Password::None),
            Some(login) => match login.split_once(':') {
                Some((user, word)) => (Some(decode(user)?), Password::Given(decode(word)?)),
                None => (Some(decode(login)?), Password::None),
            },
        };
        let (mut prefix, mut layout, mut ca) = (DEFAULT_PREFIX.to_owned(), Layout::default(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value)?;
            match name {
                "prefix" => prefix = value,
                "layout" => match Layout::parse(&value) {
                    Some(known) => layout = known,
                    None => return refuse("?layout= is mutex, readwrite, latch or basic"),
                },
                "password_file" if matches!(password, Password::None) => {
                    password = Password::File(value.into());
                }
                "password_file" => {
                    return refuse("a password in the URL and ?password_file= exclude each other");
                }
                "ca_file" if !secure => {
                    return refuse(
                        "?ca_file= needs a zookeepers:// URL; zookeeper:// does not use TLS",
                    );
                }
                "ca_file" => ca = Some(value),
                other => {
                    return refuse(format!("unknown parameter ?{other}=; known are: {PARAMETERS}"));
                }
            }
        }
        match (&user, &password) {
            (Some(_), Password::None) => {
                return refuse(
                    "a user name needs a password: put it in the URL or ?password_file=",
                );
            }
            (None, Password::File(_)) => {
                return refuse("?password_file= needs a user name in the URL");
            }
            _ => {}
        }
        if user.as_ref().is_some_and(|user| user.is_empty() || user.contains(':')) {
            return refuse("a user name has at least one character and no ':'");
        }
        let sound = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !(1..=64).contains(&prefix.len())
            || !prefix.chars().all(sound)
            || prefix.starts_with('.')
        {
            return refuse(
                "?prefix= takes 1 to 64 of A-Z a-z 0-9 . _ -, and does not start with a dot",
            );
        }
        let chroot = decode(chroot.trim_end_matches('/'))?;
        if chroot.split('/').skip(1).any(|part| part.is_empty() || part == "." || part == "..") {
            return refuse("the path of the URL is a ZooKeeper path, like /shop/locks");
        }
        let trusted = || lockstep_net::trust(ca.as_deref()).or_else(refuse);
        let tls = secure.then(trusted).transpose()?;
        let names = Names { layout, root: format!("{chroot}/{prefix}") };
        Ok(Self { servers: servers.into(), tls, user, password, chroot, prefix, names })
    }

    /// How to start a session that lives for `timeout` without us.
    pub(crate) fn setup(&self, timeout: Duration) -> Setup {
        let (user, password) = (self.user.clone(), self.password.clone());
        let login = move || -> io::Result<Option<String>> {
            let Some(user) = &user else { return Ok(None) };
            let word = match &password {
                Password::None => return Ok(None),
                Password::Given(word) => word.clone(),
                Password::File(path) => {
                    let text = std::fs::read_to_string(path).map_err(|why| {
                        io::Error::other(format!("password_file {}: {why}", path.display()))
                    })?;
                    text.trim_end_matches(['\r', '\n']).to_owned()
                }
            };
            Ok(Some(format!("{user}:{word}")))
        };
        let servers = Arc::clone(&self.servers);
        Setup { servers, tls: self.tls.clone(), login: Arc::new(login), timeout }
    }

    pub(crate) fn acl(&self) -> Acl {
        if self.user.is_some() { Acl::Creator } else { Acl::Open }
    }
}

fn server(text: &str) -> Result<Server, StoreError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => match text.split_once(']') {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => return refuse("an IPv6 address is written in brackets, like [::1]:2181"),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port.map(str::parse) {
        None => 2181,
        Some(Ok(port)) => port,
        Some(Err(_)) => return refuse("a server is host:port, and several are parted by commas"),
    };
    if host.is_empty() {
        return refuse("the URL names no host: write zookeeper://127.0.0.1:2181");
    }
    Ok(Server { host: host.to_owned(), port })
}

fn refuse<T>(message: impl Into<String>) -> Result<T, StoreError> {
    Err(StoreError::config(STORE, message))
}

fn decode(text: &str) -> Result<String, StoreError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => refuse("a part of the URL is not UTF-8"),
    }
}
