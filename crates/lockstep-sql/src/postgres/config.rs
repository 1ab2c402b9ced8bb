//! From a URL to what a connection needs.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lockstep_core::StoreError;
use tokio::time::timeout;
use tokio_postgres::config::{self, Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{self, STORE};
use super::hosts::Hosts;
use super::tls;
use crate::parameters::{self, Parameters, SslMode};

/// How long one operation may take, from asking the pool for a connection to the answer.
pub(super) const OPERATION: Duration = Duration::from_secs(2);

/// What our sessions set, where a session is ours. The server gives up a little before we do, so
/// that its clear answer arrives. The functions need `read committed`: each of their statements
/// must see what was committed while the one before waited. Every statement is a walk down an
/// index: planning it again each time costs more than running it, and a plan that was made while
/// a table was tiny must not scan it when it has grown.
const SESSION: &str = "-c statement_timeout=1800 \
    -c default_transaction_isolation=read\\ committed \
    -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

const KNOWN: &str = "prefix, schema, pool, migrate, on_disconnect, sslmode, sslrootcert, password_file, \
    application_name, host, port";

/// What drives a connection and hears what the server says unasked.
pub(super) type Line = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

pub(super) struct Settings {
    /// What every host is dialled with. Holds the password; its `Debug` does not show it.
    driver: Config,
    hosts: Hosts,
    tls: MakeRustlsConnect,
    /// What every key starts with: the prefix and a slash, which no prefix contains.
    pub(super) tenant: String,
    /// Quoted, as it stands in SQL.
    pub(super) schema: String,
    pub(super) pool: usize,
    /// Whether opening a lane may create missing tables.
    pub(super) migrate: bool,
    /// Whether what is held ends with the connection that listens.
    pub(super) bound: bool,
}

impl Settings {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, parameters) = parameters::split(url);
        // The driver would also take `host=… user=…`. Its own complaint could quote a piece of the
        // password.
        let given = base.parse().ok().filter(|_| base.starts_with("postgres"));
        let given: Config = given.ok_or_else(|| {
            config(
                "not a PostgreSQL URL; expected postgres://user:password@host:5432/database, with \
                 %40 for @, %2F for / and %3F for ? inside a name or password",
            )
        })?;
        let mut settings = Draft::new(&given);
        for pair in parameters::pairs(STORE, parameters) {
            let (name, value) = pair?;
            settings.set(name, &value)?;
        }
        settings.finish(&given)
    }

    /// A connection that belongs to no pool. `session` sets what a session of ours needs; it is left
    /// out behind a pooler that refuses settings it does not know.
    pub(super) async fn connect(&self, session: bool) -> Result<(Client, Line), StoreError> {
        timeout(OPERATION, self.dial(session))
            .await
            .map_err(|_| error::no_connection())?
            .map_err(error::connecting)
    }

    /// The same for who sets a limit of his own.
    pub(super) async fn dial(&self, session: bool) -> Result<(Client, Line), Error> {
        let mut driver = self.driver.clone();
        if session {
            driver.options(SESSION);
        }
        self.hosts.dial(&driver, &self.tls).await
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hosts", &self.hosts)
            .field("database", &self.driver.get_dbname())
            .field("user", &self.driver.get_user())
            .field("tenant", &self.tenant)
            .field("schema", &self.schema)
            .field("pool", &self.pool)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
}

/// The parameters as they are read, each still to be combined with the others.
struct Draft {
    common: Parameters,
    hosts: Vec<Host>,
    ports: Vec<u16>,
    schema: String,
    bound: bool,
    application_name: String,
}

impl Draft {
    fn new(given: &Config) -> Self {
        Self {
            common: Parameters::new(STORE),
            hosts: given.get_hosts().to_vec(),
            ports: given.get_ports().to_vec(),
            schema: "public".to_owned(),
            bound: false,
            application_name: "lockstep".to_owned(),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        if self.common.set(name, value)? {
            return Ok(());
        }
        match name {
            "schema" => {
                let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                if value.is_empty() || value.len() > 63 || !value.bytes().all(allowed) {
                    return Err(config("a schema has 1 to 63 letters, digits and underscores"));
                }
                self.schema = value.to_owned();
            }
            "on_disconnect" => {
                self.bound = match value {
                    "keep" => false,
                    "release" => true,
                    _ => return Err(config("on_disconnect is keep or release")),
                };
            }
            "application_name" => self.application_name = value.to_owned(),
            "host" if value.starts_with('/') => self.hosts.push(Host::Unix(value.into())),
            "host" => self.hosts.push(Host::Tcp(value.to_owned())),
            "port" => match value.parse() {
                Ok(port) => self.ports.push(port),
                Err(_) => return Err(config("port is a number up to 65535")),
            },
            _ => return Err(self.common.unknown(name, KNOWN)),
        }
        Ok(())
    }

    fn finish(self, given: &Config) -> Result<Settings, StoreError> {
        let hosts = Hosts::new(self.hosts, &self.ports)?;
        // Hosts cannot be taken out of what was given, so the rest is put into what has none.
        let mut driver = Config::new();
        if let Some(user) = given.get_user() {
            driver.user(user);
        }
        if let Some(database) = given.get_dbname() {
            driver.dbname(database);
        }
        let password = given.get_password().filter(|given| !given.is_empty()).map(<[u8]>::to_vec);
        if let Some(password) = self.common.password_or(password)? {
            driver.password(password);
        }
        let mut mode = self.common.sslmode;
        if hosts.are_local() {
            // As in libpq: a socket of this machine needs no encryption and offers none.
            mode = SslMode::Disable;
        }
        self.common.check_root_certificate()?;
        let tls = tls::connector(mode, self.common.sslrootcert.as_deref().map(Path::new))?;
        driver
            .ssl_mode(match mode {
                SslMode::Disable => config::SslMode::Disable,
                SslMode::Prefer => config::SslMode::Prefer,
                SslMode::Require | SslMode::VerifyFull => config::SslMode::Require,
            })
            .application_name(self.application_name)
            .connect_timeout(OPERATION)
            // A peer that has gone silent is given up after about ten seconds, not two hours.
            .tcp_user_timeout(Duration::from_secs(5))
            .keepalives(true)
            .keepalives_idle(Duration::from_secs(5))
            .keepalives_interval(Duration::from_secs(2))
            .keepalives_retries(3);
        if hosts.len() > 1 {
            driver.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Settings {
            driver,
            hosts,
            tls,
            tenant: self.common.tenant(),
            schema: format!("\"{}\"", self.schema),
            pool: self.common.pool,
            migrate: self.common.migrate,
            bound: self.bound,
        })
    }
}

fn config(message: impl Into<String>) -> StoreError {
    StoreError::config(STORE, message)
}

#[cfg(test)]
mod tests {
    use lockstep_core::ErrorKind;

    use super::*;

    const CANARY: &str = "c4nary";

    fn refused(url: &str) -> String {
        let error = Settings::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = format!("{error} {error:?}");
        assert!(!text.contains(CANARY), "{text}");
        text
    }

    #[test]
    fn unknown_parameters_name_the_known_ones() {
        let text = refused("postgres://u:c4nary@h/d?prefx=a");
        assert!(text.contains("`prefx`") && text.contains("password_file"), "{text}");
    }

    #[test]
    fn no_error_repeats_the_password() {
        refused("postgres://u:c4nary?x@h:port/d");
        refused("postgres://u:c4nary?c4nary=1");
        refused("postgres://u:c4nary#@h:99999/d");
        refused("postgres://u:p@h/d?c4nary");
        refused("postgres://u:c4nary@h/d?sslmode=c4nary");
        refused("postgres://u:c4nary@/d");
        refused("postgres://u:c4nary@h:1/d?port=2");
        refused("postgres://u:p@c4nary@h/d");
        refused("host=h user=u password=c4nary");
    }

    #[test]
    fn debug_hides_the_password() {
        let url = "postgres://u:c4nary@h/d?application_name=x";
        let store = crate::postgres::Postgres::from_url(url).unwrap();
        let text = format!("{store:?}");
        assert!(text.contains("\"u\"") && !text.contains(CANARY), "{text}");
        let text = format!("{:?}", Settings::parse(url).unwrap().driver);
        assert!(!text.contains(CANARY), "{text}");
    }

    #[test]
    fn the_password_may_come_from_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from file\n").unwrap();
        let url = format!("postgres://u@h/d?password_file={}", file.path().display());
        let settings = Settings::parse(&url).unwrap();
        assert_eq!(settings.driver.get_password(), Some(&b"from file"[..]));
        assert!(refused("postgres://u@h/d?password_file=/nowhere").contains("/nowhere"));
        let both = url.replace("u@", "u:p@");
        assert!(refused(&both).contains("exclude each other"), "{}", refused(&both));
    }

    #[test]
    fn prefixes_keep_keys_apart() {
        let tenant = |url: &str| Settings::parse(url).unwrap().tenant;
        assert_eq!(tenant("postgres://h/d"), "/");
        assert_eq!(tenant("postgres://h/d?prefix=a-B_9"), "a-B_9/");
        refused("postgres://h/d?prefix=a%2Fb");
        refused(&format!("postgres://h/d?prefix={}", "a".repeat(65)));
    }

    #[test]
    fn several_hosts_are_asked_for_the_one_that_takes_writes() {
        let settings = Settings::parse("postgres://h1:1,h2:2/d").unwrap();
        assert_eq!(settings.driver.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let settings = Settings::parse("postgres://u@/d?host=/run/postgresql&sslmode=require");
        assert_eq!(settings.unwrap().driver.get_ssl_mode(), config::SslMode::Disable);
    }
}
