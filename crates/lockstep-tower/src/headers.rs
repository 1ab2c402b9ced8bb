//! The two headers, made and read.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use lockstep_core::{Key, Token};
use lockstep_lock::Guard;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The header with the lock's name, percent-encoded.
pub const LOCK: HeaderName = HeaderName::from_static("lockstep-lock");
/// The header with the token, a decimal number.
pub const TOKEN: HeaderName = HeaderName::from_static("lockstep-token");

/// What a client sends along under this guard; `None` if its store does not count.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # let locks = lockstep_lock::Locks::open(lockstep_lock::memory::Memory::new()).await?;
/// let guard = locks.lock("stock:7").await?;
/// let headers = lockstep_tower::headers(&guard).unwrap();
/// assert_eq!(headers["Lockstep-Lock"], "stock%3A7");
/// assert_eq!(headers["Lockstep-Token"], "1");
/// # Ok::<(), lockstep_lock::LockError>(()) }).unwrap();
/// ```
pub fn headers(guard: &impl AsRef<Guard>) -> Option<HeaderMap> {
    let guard = guard.as_ref();
    let token = guard.token()?;
    let name = utf8_percent_encode(guard.key().as_str(), NON_ALPHANUMERIC).to_string();
    let name = HeaderValue::try_from(name).expect("letters, digits and percent signs");
    Some(HeaderMap::from_iter([(LOCK, name), (TOKEN, HeaderValue::from(token.get()))]))
}

/// What a request says, or what is wrong with it.
pub(crate) fn read(headers: &HeaderMap) -> Result<(Key, Token), String> {
    let name = percent_decode_str(one(headers, &LOCK)?).decode_utf8();
    let key = name.ok().and_then(|name| Key::new(name).ok());
    let key = key.ok_or_else(|| format!("{LOCK} is not the name of a lock, percent-encoded"))?;
    let number = one(headers, &TOKEN)?;
    // `parse` alone would take a sign.
    let token = number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok()).flatten();
    let token = token.ok_or_else(|| format!("{TOKEN} is not a token: it is a decimal number"))?;
    Ok((key, Token::new(token)))
}

fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, String> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(format!("the header {name} is missing")),
        (Some(_), Some(_)) => Err(format!("the header {name} is there twice")),
        (Some(value), None) => {
            value.to_str().map_err(|_| format!("the header {name} is not plain text"))
        }
    }
}
