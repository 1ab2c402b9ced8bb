//! What the URLs of database servers have in common.

use std::borrow::Cow;

use lockstep_core::StoreError;
use percent_encoding::percent_decode_str;

/// The parameters that mean the same on every server, as they are read.
pub(crate) struct Parameters {
    pub(crate) store: &'static str,
    pub(crate) prefix: String,
    pub(crate) pool: usize,
    pub(crate) migrate: bool,
    pub(crate) sslmode: SslMode,
    pub(crate) sslrootcert: Option<String>,
    /// From `password_file`.
    pub(crate) password: Option<String>,
}

/// What libpq means by its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

impl Parameters {
    pub(crate) fn new(store: &'static str) -> Self {
        Self {
            store,
            prefix: String::new(),
            pool: 8,
            migrate: true,
            sslmode: SslMode::Prefer,
            sslrootcert: None,
            password: None,
        }
    }

    /// Takes a parameter in; `false` if it is none of these.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, StoreError> {
        match name {
            "prefix" => {
                let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                if value.len() > 64 || !value.bytes().all(allowed) {
                    return Err(self.config(
                        "a prefix has at most 64 letters, digits, underscores and hyphens",
                    ));
                }
                self.prefix = value.to_owned();
            }
            "pool" => {
                self.pool = match value.parse() {
                    Ok(size @ 1..=1000) => size,
                    _ => return Err(self.config("pool is a number from 1 to 1000")),
                };
            }
            "migrate" => {
                self.migrate = match value {
                    "auto" => true,
                    "never" => false,
                    _ => return Err(self.config("migrate is auto or never")),
                };
            }
            "sslmode" => {
                self.sslmode = match value {
                    "disable" => SslMode::Disable,
                    "prefer" => SslMode::Prefer,
                    "require" => SslMode::Require,
                    "verify-full" => SslMode::VerifyFull,
                    _ => {
                        return Err(
                            self.config("sslmode is disable, prefer, require or verify-full")
                        );
                    }
                };
            }
            "sslrootcert" => self.sslrootcert = Some(value.to_owned()),
            "password_file" => {
                let text = std::fs::read_to_string(value).map_err(|error| {
                    self.config(format!("cannot read the password file {value}: {error}"))
                })?;
                self.password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What every key starts with: the prefix and a slash, which no prefix contains.
    pub(crate) fn tenant(&self) -> String {
        format!("{}/", self.prefix)
    }

    /// A root certificate that nobody would look at is a mistake of somebody who counts on it.
    pub(crate) fn check_root_certificate(&self) -> Result<(), StoreError> {
        if self.sslrootcert.is_some() && self.sslmode != SslMode::VerifyFull {
            return Err(self.config(
                "sslrootcert is only used with sslmode=verify-full; the other modes do not check \
                 who the server is",
            ));
        }
        Ok(())
    }

    /// The password, from its file or, if there is none, as the URL has it. Which of two is meant,
    /// nobody can know.
    pub(crate) fn password_or<P>(&self, given: Option<P>) -> Result<Option<P>, StoreError>
    where
        P: From<String>,
    {
        match (&self.password, given) {
            (Some(_), Some(_)) => {
                Err(self.config("a password in the URL and ?password_file= exclude each other"))
            }
            (Some(password), None) => Ok(Some(password.clone().into())),
            (None, given) => Ok(given),
        }
    }

    pub(crate) fn unknown(&self, name: &str, known: &str) -> StoreError {
        self.config(format!("unknown parameter {}; known are {known}", shown(name)))
    }

    pub(crate) fn config(&self, message: impl Into<String>) -> StoreError {
        StoreError::config(self.store, message)
    }
}

/// The URL without its parameters, and the parameters. A question mark in a password that nobody
/// escaped must not make half of the password the name of a parameter.
pub(crate) fn split(url: &str) -> (&str, &str) {
    let host = url.find('@').unwrap_or(0);
    match url[host..].find('?') {
        Some(at) => (&url[..host + at], &url[host + at + 1..]),
        None => (url, ""),
    }
}

/// Each parameter's name and value.
pub(crate) fn pairs<'a>(
    store: &'static str,
    parameters: &'a str,
) -> impl Iterator<Item = Result<(&'a str, Cow<'a, str>), StoreError>> {
    parameters.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8().map_err(|_| {
            StoreError::config(store, format!("the value of {} is not UTF-8", shown(name)))
        })?;
        Ok((name, value))
    })
}

/// A parameter's name, if it is certainly one and not a piece of something secret.
fn shown(name: &str) -> String {
    if name.len() <= 32 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        format!("`{name}`")
    } else {
        "in the URL".to_owned()
    }
}
