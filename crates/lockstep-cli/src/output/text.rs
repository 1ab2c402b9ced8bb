use serde_json::Value;

/// A text that somebody else wrote into the store, so that it can neither steer a terminal nor
/// pretend to be another text.
pub(crate) fn safe(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) {
            clean.extend(character.escape_unicode());
        } else {
            clean.push(character);
        }
    }
    clean
}

/// JSON with a line break at its end. It parses to the same value, and is as safe to look at.
pub(crate) fn json(value: &Value) -> String {
    let mut clean = String::new();
    for character in format!("{value:#}\n").chars() {
        if character != '\n' && steers(character) {
            clean.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            clean.push(character);
        }
    }
    clean
}

/// Control characters, and those that turn the direction of writing or are not seen.
fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(safe("jöb 1"), "jöb 1");
        assert_eq!(safe("a\u{1b}[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(safe("x\u{202e}y"), "x\\u{202e}y");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"label": "a\u{9b}b\u{202e}\nc"});
        let text = json(&value);
        assert!(!text.contains('\u{9b}') && !text.contains('\u{202e}'));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
