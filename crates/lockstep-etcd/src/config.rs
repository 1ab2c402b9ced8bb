//! From a URL to a connection's settings. A password never gets out of here in any text.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lockstep_core::StoreError;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use url::Url;

use crate::error::STORE;
use crate::hub::Hub;
use crate::layout::Layout;

const PARAMETERS: &str = "prefix, tls, ca_file, cert_file, key_file, password_file";
const DEFAULT_PORT: u16 = 2379;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// etcd ends connections that are pinged more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_LIMIT: Duration = Duration::from_secs(3);

/// An etcd server or cluster as a lock store. Clones are the same client.
///
/// ```
/// use lockstep_etcd::Etcd;
///
/// let store = Etcd::from_url("etcd://me:secret@10.0.0.1:2379,10.0.0.2:2379/?prefix=shop/").unwrap();
/// assert_eq!(format!("{store:?}"), "Etcd(etcd://10.0.0.1:2379,10.0.0.2:2379/?prefix=shop/)");
///
/// let error = Etcd::from_url("etcd://127.0.0.1?prefx=shop").unwrap_err();
/// assert!(error.to_string().contains("prefix"));
/// ```
#[derive(Clone)]
pub struct Etcd {
    pub(crate) config: Arc<Config>,
    /// The thread that all lanes of this client share, while there are any.
    pub(crate) hub: Arc<Mutex<Weak<Hub>>>,
}

pub(crate) struct Config {
    hosts: Vec<String>,
    tls: Option<Tls>,
    user: Option<String>,
    password: Password,
    pub(crate) layout: Layout,
}

#[derive(Default)]
struct Tls {
    /// The certificates, PEM, that replace the public roots.
    roots: Option<Vec<u8>>,
    /// Our own certificate and its key, PEM.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

enum Password {
    None,
    Given(String),
    File(PathBuf),
}

impl Etcd {
    /// The store that a URL names: `etcd://[user:password@]host[:port][,host[:port]…]`, with
    ///
    /// - `?prefix=` before every key, to separate tenants (default: nothing, so that the lock `NAME`
    ///   is the lock of `etcdctl lock NAME`; it is put before the name as it is, so end it with `/`
    ///   if you want one),
    /// - `?tls=true` for TLS, with the public authorities,
    /// - `?ca_file=` with the certificates (PEM) of a private authority, which is then the only one
    ///   trusted,
    /// - `?cert_file=` and `?key_file=` with a certificate (PEM) of our own, and its key,
    /// - `?password_file=` instead of a password, read again at each connection.
    ///
    /// Name all members of a cluster: whichever is reached serves, and another one when it fails.
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// Of kind [`Config`](lockstep_core::ErrorKind::Config), for everything that can never work.
    pub fn from_url(url: &str) -> Result<Self, StoreError> {
        let config = Config::from_url(url)?;
        // What the URL points at should be wrong now rather than at the first connection.
        for number in 0..config.hosts.len() {
            config.endpoint(number)?;
        }
        Ok(Self { config: Arc::new(config), hub: Arc::default() })
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etcd({})", self.config)
    }
}

impl fmt::Display for Config {
    /// The URL without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/?prefix={}", self.hosts.join(","), self.layout.prefix())?;
        if self.tls.is_some() { f.write_str("&tls=true") } else { Ok(()) }
    }
}

impl Config {
    fn from_url(url: &str) -> Result<Self, StoreError> {
        let Some(rest) = url.strip_prefix("etcd://") else {
            return refuse("an etcd URL starts with etcd://");
        };
        // A list of hosts is no URL: it is taken out, and the rest read as usual.
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(end);
        // A bare `/`, `?` or `#` in a password ends the hosts too early; nothing of what follows may be
        // repeated in a message.
        if path_and_query.contains(['@', '#']) {
            return refuse(
                "the URL has '#', or '@' after the hosts: percent-encode special characters of user \
                 and password",
            );
        }
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let hosts: Vec<String> = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        let at = if login.is_empty() { "" } else { "@" };
        let Ok(url) = Url::parse(&format!("etcd://{login}{at}host{path_and_query}")) else {
            return refuse(
                "the URL cannot be read; expected etcd://[user:password@]host[:port][,host[:port]…], \
                 with special characters of user and password percent-encoded",
            );
        };
        if !matches!(url.path(), "" | "/") {
            return refuse("the URL has a path; what goes before the names is ?prefix=");
        }
        let user = Some(decode(url.username(), "user name")?).filter(|user| !user.is_empty());
        let mut password = match decode(url.password().unwrap_or_default(), "password")? {
            empty if empty.is_empty() => Password::None,
            given => Password::Given(given),
        };
        let (mut prefix, mut tls, mut cert, mut key) = (String::new(), None, None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => prefix = value.into_owned(),
                "tls" => match &*value {
                    "true" => drop(tls.get_or_insert_with(Tls::default)),
                    "false" => {}
                    _ => return refuse("?tls= is true or false"),
                },
                "ca_file" => tls.get_or_insert_with(Tls::default).roots = Some(pem(&name, &value)?),
                "cert_file" => cert = Some(pem(&name, &value)?),
                "key_file" => key = Some(pem(&name, &value)?),
                "password_file" if matches!(password, Password::None) => {
                    password = Password::File(value.into_owned().into());
                }
                "password_file" => {
                    return refuse("a password in the URL and ?password_file= exclude each other");
                }
                other => {
                    return refuse(format!("unknown parameter ?{other}=; known are: {PARAMETERS}"));
                }
            }
        }
        match (cert, key) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                tls.get_or_insert_with(Tls::default).identity = Some((cert, key));
            }
            _ => return refuse("?cert_file= and ?key_file= need each other"),
        }
        if user.is_some() == matches!(password, Password::None) {
            return refuse("a user needs a password and a password needs a user");
        }
        if prefix.len() > 200 || prefix.chars().any(char::is_control) {
            return refuse("?prefix= takes at most 200 bytes and no control characters");
        }
        Ok(Self { hosts, tls, user, password, layout: Layout::new(prefix) })
    }

    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub(crate) fn endpoint(&self, number: usize) -> Result<Endpoint, StoreError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let uri = format!("{scheme}://{}", self.hosts[number % self.hosts.len()]);
        let unusable = |why: tonic::transport::Error| {
            let why = std::error::Error::source(&why).map_or(why.to_string(), ToString::to_string);
            StoreError::config(STORE, format!("unusable settings: {why}"))
        };
        let mut endpoint = Endpoint::from_shared(uri)
            .map_err(unusable)?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            // A silent peer is noticed also by who only listens.
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            let mut settings = match &tls.roots {
                Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
                None => ClientTlsConfig::new().with_webpki_roots(),
            };
            if let Some((cert, key)) = &tls.identity {
                settings = settings.identity(Identity::from_pem(cert, key));
            }
            endpoint = endpoint.tls_config(settings).map_err(unusable)?;
        }
        Ok(endpoint)
    }

    /// User and password as they are now.
    pub(crate) fn login(&self) -> Result<Option<(String, String)>, StoreError> {
        let Some(user) = self.user.clone() else { return Ok(None) };
        let password = match &self.password {
            Password::None => String::new(),
            Password::Given(password) => password.clone(),
            Password::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => text.trim_end_matches(['\r', '\n']).to_owned(),
                Err(why) => return refuse(format!("password_file {}: {why}", path.display())),
            },
        };
        Ok(Some((user, password)))
    }
}

/// One host with its port.
fn host(text: &str) -> Result<String, StoreError> {
    // A scheme whose hosts the parser knows how to read, so that `[::1]` is one as well.
    let url = Url::parse(&format!("http://{text}/")).ok();
    let host = url.as_ref().filter(|url| url.username().is_empty()).and_then(Url::host_str);
    let (Some(host), Some(url)) = (host, &url) else {
        return refuse("the URL must name hosts: write etcd://10.0.0.1:2379,10.0.0.2:2379");
    };
    // The parser leaves out what it takes for the default port of its own scheme.
    let port = url.port().unwrap_or(if text.ends_with(":80") { 80 } else { DEFAULT_PORT });
    Ok(format!("{host}:{port}"))
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

fn pem(parameter: &str, path: &str) -> Result<Vec<u8>, StoreError> {
    match std::fs::read(path) {
        Ok(pem) if !pem.windows(11).any(|line| line == b"-----BEGIN ") => {
            refuse(format!("{parameter} {path}: there is no PEM in it"))
        }
        Ok(pem) => Ok(pem),
        Err(why) => refuse(format!("{parameter} {path}: {why}")),
    }
}
