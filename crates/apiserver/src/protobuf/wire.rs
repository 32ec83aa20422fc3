//! The protobuf wire format: numbered fields, each a varint, a fixed number of bytes, or bytes with a length.

/// The content of one field. Fixed-size numbers are skipped over: no message read here has any.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// Reads the fields of one message, in the order sent.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes as numbers without tags between them.
    pub(super) fn varints(mut self) -> impl Iterator<Item = Result<u64, String>> {
        std::iter::from_fn(move || {
            if self.rest.is_empty() {
                return None;
            }
            let number = self.varint();
            if number.is_err() {
                self.rest = &[];
            }
            Some(number)
        })
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((&byte, rest)) = self.rest.split_first() else {
                return Err("the body ends within a number".to_string());
            };
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number is longer than 64 bits".to_string())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        let split = usize::try_from(length).ok().and_then(|n| self.rest.split_at_checked(n));
        let (taken, rest) = split.ok_or_else(|| "the body ends within a field".to_string())?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Payload<'a>), String> {
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 {
            return Err("field number 0".to_string());
        }
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => self.take(8).map(|_| Payload::Fixed)?,
            2 => {
                let length = self.varint()?;
                Payload::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Payload::Fixed)?,
            other => return Err(format!("unknown wire type {other}")),
        };
        Ok((number, payload))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Payload<'a>), String>;

    /// Ends after the first error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
