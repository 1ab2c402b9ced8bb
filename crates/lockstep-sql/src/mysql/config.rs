//! From a URL to what a connection needs.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockstep_core::StoreError;
use mysql_async::{Conn, DriverError, Error, Opts, OptsBuilder, SslOpts};
use percent_encoding::percent_decode_str;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio::time::timeout;
use url::Url;

use super::error::{self, STORE};
use crate::parameters::{self, Parameters, SslMode};

/// How long one operation may take, from asking the pool for a connection to the answer.
pub(super) const OPERATION: Duration = Duration::from_secs(2);

/// What our sessions set. The server gives up before we do, so that its clear answer arrives; and it
/// does not end a connection because nobody took a lock for a minute.
const SESSION: &str = "SET SESSION autocommit = 1, innodb_lock_wait_timeout = 1, \
    wait_timeout = 28800, \
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'";
/// MariaDB can end any statement in time; MySQL takes this for a comment.
const LIMIT: &str = " /*M! , max_statement_time = 1.8 */";

const KNOWN: &str = "prefix, pool, migrate, sslmode, sslrootcert, password_file";

/// The largest packet that we send is a batch of renewals, far below this. Saying so here saves
/// the driver a question at every connection.
const PACKET_MAX: usize = 4 << 20;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Verbs, each of which ends soon.
    Verbs,
    /// Sleeping, or a migration.
    Long,
}

pub(super) struct Settings {
    /// Holds the password, and is not shown for that.
    driver: Opts,
    sslmode: SslMode,
    sslrootcert: Option<PathBuf>,
    /// The server has no TLS to offer, and `prefer` does without.
    plain: AtomicBool,
    /// What every key starts with.
    pub(super) tenant: String,
    pub(super) pool: usize,
    /// Whether opening a lane may create missing tables.
    pub(super) migrate: bool,
}

impl Settings {
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (base, rest) = parameters::split(url);
        let mut common = Parameters::new(STORE);
        for pair in parameters::pairs(STORE, rest) {
            let (name, value) = pair?;
            if !common.set(name, &value)? {
                return Err(common.unknown(name, KNOWN));
            }
        }
        common.check_root_certificate()?;

        // No piece of the URL is repeated: it may be a piece of the password.
        let malformed = || {
            common.config(
                "not a MySQL URL; expected mysql://user:password@host:3306/database, with %40 for \
                 @, %2F for / and %3F for ? inside a name or password",
            )
        };
        let url = Url::parse(base).map_err(|_| malformed())?;
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(|text| text.into_owned()).map_err(|_| malformed())
        };
        if !matches!(url.scheme(), "mysql" | "mariadb") || url.fragment().is_some() {
            return Err(malformed());
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| common.config("the URL names no host"))?;
        let database = decoded(url.path().trim_start_matches('/'))?;
        if database.is_empty() || database.contains('/') {
            return Err(common.config("the URL names no database: mysql://host:3306/database"));
        }
        let user = Some(decoded(url.username())?).filter(|user| !user.is_empty());
        let password = common.password_or(
            url.password().filter(|given| !given.is_empty()).map(decoded).transpose()?,
        )?;
        let driver = OptsBuilder::default()
            // An IPv6 address stands in brackets in a URL only.
            .ip_or_hostname(host.trim_matches(['[', ']']))
            .tcp_port(url.port().unwrap_or(3306))
            .user(user)
            .pass(password)
            .db_name(Some(database))
            .prefer_socket(false)
            .tcp_keepalive(Some(Duration::from_secs(5)))
            .max_allowed_packet(Some(PACKET_MAX))
            .wait_timeout(Some(28_800))
            .into();
        Ok(Self {
            driver,
            sslmode: common.sslmode,
            sslrootcert: common.sslrootcert.as_ref().map(PathBuf::from),
            plain: AtomicBool::new(common.sslmode == SslMode::Disable),
            tenant: common.tenant(),
            pool: common.pool,
            migrate: common.migrate,
        })
    }

    /// A connection with our settings.
    pub(super) async fn connect(&self, purpose: Purpose) -> Result<Conn, StoreError> {
        timeout(OPERATION, self.try_connect(purpose))
            .await
            .map_err(|_| error::no_connection())?
            .map_err(error::connecting)
    }

    async fn try_connect(&self, purpose: Purpose) -> Result<Conn, Error> {
        if !self.plain.load(Ordering::Relaxed) {
            match Conn::new(self.options(purpose, Some(self.encrypted()))).await {
                Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                    if self.sslmode == SslMode::Prefer =>
                {
                    self.plain.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        Conn::new(self.options(purpose, None)).await
    }

    fn options(&self, purpose: Purpose, tls: Option<SslOpts>) -> Opts {
        let session = match purpose {
            Purpose::Verbs => format!("{SESSION}{LIMIT}"),
            Purpose::Long => SESSION.to_owned(),
        };
        OptsBuilder::from_opts(self.driver.clone()).ssl_opts(tls).setup(vec![session]).into()
    }

    fn encrypted(&self) -> SslOpts {
        // The driver takes the provider of the process, and panics if there is none and more than
        // one is compiled in.
        if CryptoProvider::get_default().is_none() {
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let anyone = self.sslmode != SslMode::VerifyFull;
        let tls = SslOpts::default()
            .with_danger_accept_invalid_certs(anyone)
            .with_danger_skip_domain_validation(anyone);
        match &self.sslrootcert {
            Some(file) => {
                tls.with_root_certs(vec![file.clone().into()]).with_disable_built_in_roots(true)
            }
            None => tls,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("host", &self.driver.ip_or_hostname())
            .field("port", &self.driver.tcp_port())
            .field("database", &self.driver.db_name())
            .field("user", &self.driver.user())
            .field("sslmode", &self.sslmode)
            .field("tenant", &self.tenant)
            .field("pool", &self.pool)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
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
    fn no_error_repeats_the_password() {
        refused("mysql://u:c4nary?x@h:port/d");
        refused("mysql://u:c4nary?c4nary=1");
        refused("mysql://u:c4nary#@h:99999/d");
        refused("mysql://u:p@h/d?c4nary");
        refused("mysql://u:c4nary@h/d?sslmode=c4nary");
        refused("mysql://u:c4nary@/d");
        refused("mysql://u:c4nary@h");
        refused("mysql://u:c4nary@h/d?sslrootcert=x.pem");
        assert!(refused("mysql://u:c4nary@h/d?prefx=a").contains("`prefx`"));
    }

    #[test]
    fn debug_hides_the_password() {
        let store = crate::mysql::MySql::from_url("mariadb://u:c4nary@h/d").unwrap();
        let text = format!("{store:?}");
        assert!(text.contains("\"u\"") && !text.contains(CANARY), "{text}");
    }

    #[test]
    fn the_parts_of_a_url_are_found_and_decoded() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from file\n").unwrap();
        let url = format!("mysql://a%40b@[::1]:77/d?password_file={}", file.path().display());
        let settings = Settings::parse(&url).unwrap();
        assert_eq!(settings.driver.user(), Some("a@b"));
        assert_eq!(settings.driver.pass(), Some("from file"));
        let both = refused(&url.replace("b@", "b:p@"));
        assert!(both.contains("exclude each other"), "{both}");
        assert_eq!((settings.driver.ip_or_hostname(), settings.driver.tcp_port()), ("::1", 77));
        let settings = Settings::parse("mysql://u:p%3Fq@h/d?prefix=a-B_9").unwrap();
        assert_eq!(settings.driver.pass(), Some("p?q"));
        assert_eq!((settings.driver.tcp_port(), settings.tenant.as_str()), (3306, "a-B_9/"));
    }
}
