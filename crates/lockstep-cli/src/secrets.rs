//! The passwords inside store URLs, so that nothing prints them.

use std::sync::Arc;

use percent_encoding::percent_decode_str;

/// What stands where a password was.
const MASK: &str = "***";
const PARAMETERS: [&str; 4] = ["password", "passwd", "pass", "sslpassword"];

/// The passwords of this run, as they were written and as they are meant.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    /// Finds the passwords in URLs. Rather too many than too few: what is found is only masked.
    pub(crate) fn of<'a>(urls: impl IntoIterator<Item = &'a str>) -> Self {
        let mut found: Vec<String> = urls.into_iter().flat_map(passwords).collect();
        // The longest first, lest a part of it is masked and the rest stays.
        found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        found.dedup();
        Self(found.into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn mask(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, MASK))
    }
}

fn passwords(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut raw = Vec::new();
    // An unescaped `/`, `?` or `#` in a password is a mistake, but must not spill it either.
    for part in [before_query.split(['/', '#']).next().unwrap_or(""), before_query, rest] {
        if let Some((user, _)) = part.rsplit_once('@')
            && let Some((_, password)) = user.split_once(':')
        {
            raw.push(password);
        }
    }
    for parameter in query.split('&') {
        if let Some((name, value)) = parameter.split_once('=')
            && PARAMETERS.contains(&name)
        {
            raw.push(value);
        }
    }
    raw.retain(|password| !password.is_empty());
    let decoded = raw.iter().map(|raw| percent_decode_str(raw).decode_utf8_lossy().into_owned());
    decoded.chain(raw.iter().map(|raw| (*raw).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(url: &str) -> String {
        Secrets::of([url]).mask(url)
    }

    #[test]
    fn passwords_are_masked_wherever_they_stand() {
        assert_eq!(masked("redis://:s3cret@host:1/0"), "redis://:***@host:1/0");
        assert_eq!(masked("postgres://me:s3cret@host/db"), "postgres://me:***@host/db");
        assert_eq!(masked("postgres://host/db?user=me&password=s3cret&x=1").find("s3cret"), None);
        for odd in ["pg://me:s3/cret@host/db", "pg://me:s3?cret@host", "pg://me:s3@cret@host"] {
            let text = masked(odd);
            assert!(!text.contains("s3") && !text.contains("cret"), "{odd}: {text}");
        }
    }

    #[test]
    fn the_decoded_password_is_masked_as_well() {
        let secrets = Secrets::of(["redis://:a%20b@host"]);
        assert_eq!(secrets.mask("auth failed for `a b`"), "auth failed for `***`");
    }

    #[test]
    fn urls_without_a_password_have_none() {
        for url in ["memory:", "sqlite:/a/b.db", "redis://host:6379/0", "postgres://me@host/db"] {
            assert!(Secrets::of([url]).is_empty(), "{url}");
        }
    }
}
