//! Jute, the encoding of every ZooKeeper frame: fixed-width integers, and lengths before bytes.
//! Pure. Every length is checked against what is there, so that nonsense from the other side is an
//! error and never an allocation.

/// Not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame that is not ZooKeeper's: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Writes one frame's body.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.0.push(u8::from(value));
        self
    }

    pub(crate) fn buffer(&mut self, bytes: &[u8]) -> &mut Self {
        self.int(bytes.len() as i32);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.buffer(text.as_bytes())
    }

    /// The frame: its length, then its body.
    pub(crate) fn texts(&mut self, texts: &[String]) -> &mut Self {
        self.int(texts.len() as i32);
        for text in texts {
            self.text(text);
        }
        self
    }

    pub(crate) fn frame(self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.0.len() + 4);
        frame.extend_from_slice(&(self.0.len() as i32).to_be_bytes());
        frame.extend_from_slice(&self.0);
        frame
    }
}

/// Reads one frame's body.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed("it ends too early"))
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        self.fixed().map(i64::from_be_bytes)
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, Malformed> {
        self.fixed::<1>().map(|[byte]| byte != 0)
    }

    /// A length of -1 is "none", which nothing we ask for tells from "empty".
    pub(crate) fn buffer(&mut self) -> Result<&'a [u8], Malformed> {
        match self.int()? {
            -1 => Ok(&[]),
            length => {
                self.take(usize::try_from(length).map_err(|_| Malformed("a length below -1"))?)
            }
        }
    }

    /// Names that others wrote need not be UTF-8; ours are.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        self.buffer().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Malformed> {
        let count = usize::try_from(self.int()?.max(0)).unwrap_or_default();
        // Each takes four bytes at least: a count that cannot be true allocates nothing.
        if count > self.0.len() / 4 {
            return Err(Malformed("a list longer than its frame"));
        }
        (0..count).map(|_| self.text()).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut writer = Writer::default();
        writer.int(-2).long(1 << 40).boolean(true).buffer(b"").text("ä");
        let frame = writer.frame();
        assert_eq!(frame[..4], [0, 0, 0, 4 + 8 + 1 + 4 + 4 + 2]);
        let mut reader = Reader::new(&frame[4..]);
        assert_eq!(
            (reader.int(), reader.long(), reader.boolean()),
            (Ok(-2), Ok(1 << 40), Ok(true))
        );
        assert_eq!((reader.buffer(), reader.text()), (Ok(&b""[..]), Ok("ä".to_owned())));
        assert!(reader.int().is_err());
    }

    #[test]
    fn lengths_that_cannot_be_true_are_refused() {
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0]).buffer().is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xfe]).buffer().is_err());
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).texts().is_err());
        assert_eq!(Reader::new(&[0xff; 4]).buffer(), Ok(&[][..]), "none");
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = Reader::new(&bytes);
            let _ = (reader.texts(), reader.int(), reader.buffer(), reader.long(), reader.text());
        }
    }
}
