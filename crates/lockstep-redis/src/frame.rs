//! Where one value of the server's ends and the next begins (RESP3); pure.

use redis::{ErrorKind, RedisError, Value, parse_redis_value};

/// No server says more than this at once; who seems to does not speak Redis.
const LARGEST: usize = 512 << 20;

/// The first value in these bytes and how many of them it takes; none, if it is not all there yet.
///
/// # Errors
/// This is not how Redis talks.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<(Value, usize)>, RedisError> {
    let Some(end) = end(bytes)? else { return Ok(None) };
    // What most requests are answered with; the parser takes longer for it than all else here.
    let value = match number(bytes) {
        Some(number) => Value::Int(number),
        None => parse_redis_value(&bytes[..end])?,
    };
    Ok(Some((value, end)))
}

fn end(bytes: &[u8]) -> Result<Option<usize>, RedisError> {
    // How many values are still to come, each of which may announce more.
    let mut left = 1_usize;
    let mut at = 0;
    while left > 0 {
        let Some(&kind) = bytes.get(at) else { return Ok(None) };
        let (length, contents) = match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => (false, 0),
            b'$' | b'=' | b'!' => (true, 0),
            b'*' | b'~' | b'>' => (true, 1),
            // Names and what belongs to each; an attribute comes before what it is about.
            b'%' | b'|' => (true, 2),
            _ => return Err(strange()),
        };
        let Some(line) = line(&bytes[at + 1..])? else { return Ok(None) };
        at += 1 + line.len() + 2;
        left -= 1;
        if length {
            // Nothing, as the version before RESP3 wrote it, is of length -1.
            let length = if line == b"-1" { None } else { Some(count(line)?) };
            match (length, contents) {
                (None, _) => {}
                (Some(length), 0) => at += length + 2,
                (Some(length), each) => left += length * each + usize::from(kind == b'|'),
            }
        }
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// What stands before the end of the line, if that is there.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, RedisError> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\r') else { return Ok(None) };
    match bytes.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some(&bytes[..end])),
        Some(_) => Err(strange()),
    }
}

fn count(line: &[u8]) -> Result<usize, RedisError> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number <= LARGEST).ok_or_else(strange)
}

fn number(bytes: &[u8]) -> Option<i64> {
    let digits = line(bytes.strip_prefix(b":")?).ok()??;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn strange() -> RedisError {
    RedisError::from((ErrorKind::Parse, "this is not how Redis talks"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values as a server writes them.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        let simple = prop_oneof![
            "[+-][A-Za-z ]{0,9}\r\n",
            ":-?[1-9][0-9]{0,8}\r\n",
            Just("_\r\n".to_owned()),
            Just("#t\r\n".to_owned()),
            Just(",1.5\r\n".to_owned()),
            Just("$-1\r\n".to_owned()),
            Just("*-1\r\n".to_owned()),
            ".{0,9}".prop_map(|text| format!("${}\r\n{text}\r\n", text.len())),
            Just("=7\r\ntxt:a\r\n\r\n".to_owned()),
        ];
        simple.prop_map(String::into_bytes).prop_recursive(3, 12, 4, |inner| {
            let kind = prop_oneof![Just(b'*'), Just(b'~'), Just(b'%')];
            (kind, proptest::collection::vec(inner, 0..4)).prop_map(|(kind, mut parts)| {
                if kind == b'%' && parts.len() % 2 == 1 {
                    parts.pop();
                }
                let each = if kind == b'%' { 2 } else { 1 };
                let head = format!("{}{}\r\n", kind as char, parts.len() / each);
                [head.into_bytes(), parts.concat()].concat()
            })
        })
    }

    proptest! {
        #[test]
        fn a_value_ends_where_the_next_begins(first_one in value(), next in value()) {
            let both = [first_one.clone(), next].concat();
            let (read, end) = first(&both).unwrap().unwrap();
            prop_assert_eq!(end, first_one.len());
            prop_assert_eq!(read, parse_redis_value(&first_one).unwrap());
        }

        #[test]
        fn nothing_is_read_before_it_is_all_there(value in value(), part in 0.0..1.0) {
            let cut = (value.len() as f64 * part) as usize;
            prop_assert_eq!(first(&value[..cut]).unwrap(), None);
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((_, end))) = first(&bytes) {
                prop_assert!(end <= bytes.len());
            }
        }
    }

    #[test]
    fn who_is_not_redis_is_noticed_and_not_waited_for() {
        let endless = ["$18446744073709551610\r\n", "|18446744073709551615\r\n", "+a\rb"];
        let others = ["HTTP/1.1 400 Bad Request\r\n", "\u{15}\u{3}\u{3}", "$x\r\n", "*?\r\n"];
        for words in endless.into_iter().chain(others) {
            assert_eq!(first(words.as_bytes()).unwrap_err().kind(), ErrorKind::Parse, "{words:?}");
        }
    }

    #[test]
    fn pushes_and_attributes_are_whole() {
        let push = b">3\r\n+message\r\n$2\r\nin\r\n$5\r\nwords\r\n";
        assert!(matches!(first(push), Ok(Some((Value::Push { .. }, end))) if end == push.len()));
        let attribute = b"|1\r\n+ttl\r\n:5\r\n:7\r\n";
        assert!(matches!(first(attribute), Ok(Some((_, end))) if end == attribute.len()));
        assert_eq!(first(&attribute[..attribute.len() - 1]).unwrap(), None);
    }
}
