//! The parameters of a prepared statement, as an Execute carries them.

use super::mysql::Fields;

/// The types of the parameters, which a client may leave out if they are those of the time before.
pub(super) type Types = Vec<[u8; 2]>;

/// The values as sent, a NULL as an empty one, and their types. `None` if they cannot be told
/// apart, such as when some of them were sent ahead.
pub(super) fn parse(
    block: &[u8],
    count: usize,
    known: Option<&Types>,
) -> Option<(Vec<Vec<u8>>, Types)> {
    let mut fields = Fields::of(block);
    let nulls = fields.take(count.div_ceil(8))?;
    let types = match fields.u8()? {
        1 => fields.take(count * 2)?.chunks(2).map(|pair| [pair[0], pair[1]]).collect(),
        _ => known?.clone(),
    };
    let is_null = |at: usize| nulls[at / 8] >> (at % 8) & 1 == 1;
    let values = types.iter().enumerate().map(|(at, [kind, _])| {
        if is_null(at) { Some(Vec::new()) } else { value(&mut fields, *kind).map(<[u8]>::to_vec) }
    });
    let values: Vec<_> = values.collect::<Option<_>>()?;
    (fields.0.is_empty() && values.len() == count).then_some((values, types))
}

fn value<'a>(fields: &mut Fields<'a>, kind: u8) -> Option<&'a [u8]> {
    const NULL: u8 = 6;
    const TINY: u8 = 1;
    const SHORT_AND_YEAR: [u8; 2] = [2, 13];
    const LONG_FLOAT_AND_INT24: [u8; 3] = [3, 4, 9];
    const DOUBLE_AND_LONGLONG: [u8; 2] = [5, 8];
    match kind {
        NULL => fields.take(0),
        TINY => fields.take(1),
        kind if SHORT_AND_YEAR.contains(&kind) => fields.take(2),
        kind if LONG_FLOAT_AND_INT24.contains(&kind) => fields.take(4),
        kind if DOUBLE_AND_LONGLONG.contains(&kind) => fields.take(8),
        // Texts, and also dates and times, whose length is one byte and never more than 12.
        _ => fields.counted(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: [u8; 2] = [0xfd, 0];
    const LONGLONG: [u8; 2] = [8, 0];

    /// Three parameters: a text, a NULL and a number.
    fn block(new_types: bool) -> Vec<u8> {
        let mut block = vec![0b010, u8::from(new_types)];
        if new_types {
            block.extend([TEXT, TEXT, LONGLONG].concat());
        }
        block.extend(b"\x06orders");
        block.extend(7_u64.to_le_bytes());
        block
    }

    #[test]
    fn values_are_told_apart_by_their_types() {
        let expected = [b"orders".to_vec(), Vec::new(), 7_u64.to_le_bytes().to_vec()];
        let (values, types) = parse(&block(true), 3, None).unwrap();
        assert_eq!((values.as_slice(), types.len()), (expected.as_slice(), 3));
        let (values, _) = parse(&block(false), 3, Some(&types)).unwrap();
        assert_eq!(values, expected);
        assert_eq!(parse(&block(false), 3, None), None, "nobody knows the types");
    }

    #[test]
    fn every_sort_of_value_has_its_length() {
        let kinds = [(1, 1), (2, 2), (13, 2), (3, 4), (4, 4), (9, 4), (5, 8), (8, 8)];
        for (kind, length) in kinds {
            let mut block = vec![0, 1, kind, 0];
            block.extend(vec![5; length]);
            assert_eq!(parse(&block, 1, None).unwrap().0, [vec![5; length]], "type {kind}");
        }
        let date = [0, 1, 12, 0, 4, 0xe8, 7, 1, 2];
        assert_eq!(parse(&date, 1, None).unwrap().0, [vec![0xe8, 7, 1, 2]]);
        assert_eq!(parse(&[0, 1, 6, 0], 1, None).unwrap().0, [b""]);
    }

    #[test]
    fn torn_blocks_are_none_and_never_a_panic() {
        let block = block(true);
        for end in 0..block.len() {
            assert_eq!(parse(&block[..end], 3, None), None);
        }
        assert_eq!(parse(&[block.clone(), vec![0]].concat(), 3, None), None, "something is left");
        assert_eq!(parse(&block, 200, None), None);
    }
}
