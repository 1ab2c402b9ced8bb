//! Commands as they go over the wire.

use redis::Cmd;

/// What can be said to a server.
pub(crate) trait Words: Sync {
    /// Appends it as the server reads it.
    fn write(&self, into: &mut Vec<u8>);
}

impl Words for Cmd {
    fn write(&self, into: &mut Vec<u8>) {
        self.write_packed_command(into);
    }
}

/// The keys and arguments that a script is called with, whichever way it is named. Every lock has
/// two such calls, and the server is not asked before they are written: hence no `Cmd`, which keeps
/// its arguments first, and no formatting.
pub(crate) struct Call {
    bytes: Vec<u8>,
    count: usize,
}

impl Call {
    pub(crate) fn on(keys: &[String]) -> Self {
        let mut call = Self { bytes: Vec::with_capacity(384), count: 0 };
        call.number(keys.len() as u64);
        for key in keys {
            call.arg(key);
        }
        call
    }

    pub(crate) fn arg(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        write_word(word.as_ref(), &mut self.bytes);
        self.count += 1;
        self
    }

    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.arg(itoa::Buffer::new().format(number))
    }

    /// Appends the whole command: `named`, already written, is its first words, of which there are two.
    pub(crate) fn write_after(&self, named: &[u8], into: &mut Vec<u8>) {
        write_head(b'*', self.count + 2, into);
        into.extend_from_slice(named);
        into.extend_from_slice(&self.bytes);
    }
}

pub(crate) fn write_word(word: &[u8], into: &mut Vec<u8>) {
    write_head(b'$', word.len(), into);
    into.extend_from_slice(word);
    into.extend_from_slice(b"\r\n");
}

fn write_head(kind: u8, length: usize, into: &mut Vec<u8>) {
    into.push(kind);
    into.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    into.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_call_is_what_the_crate_would_have_sent(
            keys in proptest::collection::vec(".{0,20}", 0..12),
            args in proptest::collection::vec(any::<Vec<u8>>(), 0..12),
            number in any::<u64>(),
        ) {
            let mut call = Call::on(&keys);
            let mut command = redis::cmd("EVALSHA");
            command.arg("digest").arg(keys.len()).arg(&keys);
            for arg in &args {
                call.arg(arg);
                command.arg(arg);
            }
            call.number(number);
            command.arg(number);
            let (mut named, mut ours, mut theirs) = (vec![], vec![], vec![]);
            write_word(b"EVALSHA", &mut named);
            write_word(b"digest", &mut named);
            call.write_after(&named, &mut ours);
            command.write(&mut theirs);
            prop_assert_eq!(ours, theirs);
        }
    }
}
