//! Different texts are different locks, in every store, and come back as they were given.

use std::collections::BTreeSet;

use anyhow::Result;
use lockstep_core::{Key, MAX_KEY_BYTES, Token};
use lockstep_lock::store::{Released, Renewal};

use crate::suite::case::cases;
use crate::suite::client::claim;
use crate::suite::env::{Env, LONG};

cases! { Verbs:
    different_names_are_different_locks backs Names;
    names_mean_nothing_at_the_start_of_a_list backs Names Inspect;
}

/// Names that some store's language, pattern or collation could take for something else.
fn endings() -> Vec<String> {
    let plain = [
        "Job",
        "job",
        "job ",
        "jöb",
        "a/b",
        "a",
        "a ",
        " a",
        "a'b",
        "a\"b",
        "a`b",
        "a%b",
        "a_b",
        "a{b}",
        "{a}b",
        "a}b",
        "a\\b",
        "a\\\\b",
        "a*b",
        "a?b",
        "a[b]",
        "a:b",
        "a::b",
        "a|b",
        "a;b",
        "a--b",
        "a#b",
        "a$1b",
        "a&b",
        "a+b",
        "a=b",
        "a,b",
        "a.b",
        "a..b",
        "a~b",
        "a\u{a0}b",
        "null",
        "NULL",
        "0",
        "00",
        "1e3",
        "🔒",
        "🔒🔒",
        "日本",
        "ß",
        "ss",
        "ı",
        "i",
        "İ",
        // The same letter, composed and combined; equal after normalisation.
        "\u{e9}",
        "e\u{301}",
        "\u{212b}",
        "\u{c5}",
        "A\u{30a}",
        "ﬁ",
        "fi",
        "\u{200b}",
        "a\u{200b}",
    ];
    plain.into_iter().map(str::to_owned).collect()
}

async fn different_names_are_different_locks(env: Env) -> Result<()> {
    let client = env.client().await?;
    let room = MAX_KEY_BYTES - env.prefix().len();
    let mut names: BTreeSet<String> = endings().iter().map(|end| env.name(end)).collect();
    names.insert(env.name(&"x".repeat(room)));
    names.insert(env.name(&"x".repeat(room - 1)));
    names.insert(env.name(&format!("{}y", "x".repeat(room - 1))));
    names.insert(env.name(&"%".repeat(room)));
    let four_bytes = room / 4;
    names.insert(env.name(&"🔒".repeat(four_bytes)));

    let mut claims = Vec::new();
    for name in &names {
        let mine = claim(&Key::new(name)?, LONG);
        // Granted, not queued: nobody else's name is taken for this one.
        let token: Option<Token> = client.granted(&mine).await?;
        let view = client.view(&mine.key).await?;
        let holder = view.as_ref().and_then(|view| view.holder());
        assert_eq!(holder.map(|holder| (holder.claim, holder.token)), Some((mine.id, token)));
        assert_eq!(view.map(|view| view.key), Some(mine.key.clone()));
        claims.push(mine);
    }
    let page = client.list(env.prefix(), names.len() + 1).await?;
    let listed: Vec<&str> = page.locks.iter().map(|view| view.key.as_str()).collect();
    assert_eq!(listed, names.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, mine) in claims.iter().enumerate() {
        assert_eq!(client.renew(mine).await?, Renewal::Renewed, "{:?}", mine.key);
        assert_eq!(client.release(mine).await?, Released::Done, "{:?}", mine.key);
        let rest = client.list(env.prefix(), names.len()).await?.locks.len();
        assert_eq!(rest, names.len() - n - 1, "releasing {:?} released one lock", mine.key);
    }
    Ok(())
}

/// A prefix is a text too, not a pattern.
async fn names_mean_nothing_at_the_start_of_a_list(env: Env) -> Result<()> {
    let client = env.client().await?;
    let unique = env.prefix();
    for start in ["%", "_", "*", "?", "[a]", "\\", "\\%", "'", "\"", "{x}", "Job", "job", "é", "🔒"]
    {
        let key = Key::new(format!("{start}{unique}"))?;
        let mine = claim(&key, LONG);
        client.granted(&mine).await?;
        for prefix in [format!("{start}{unique}"), format!("{start}{}", &unique[..8])] {
            let page = client.list(&prefix, 100).await?;
            assert!(page.locks.iter().any(|view| view.key == key), "{prefix:?}: {page:?}");
            let stranger = page.locks.iter().find(|view| !view.key.as_str().starts_with(&prefix));
            assert_eq!(stranger, None, "{prefix:?}");
        }
    }
    Ok(())
}
