//! Statements, and how values get into them.

use clinch_kit::hash::fnv1a;
use mysql_async::Value;

/// Microseconds since 2020 by the server's clock, in any time zone. Constant within a statement.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'2020-01-01',UTC_TIMESTAMP(6))";

/// Statements with a `?` for each value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sql {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

const BEGIN: &str = "START TRANSACTION;";

impl Sql {
    /// Statements without values so far.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            values: Vec::new(),
        }
    }

    /// All of it in one transaction, with its `COMMIT`.
    pub(crate) fn in_transaction(mut self) -> Self {
        self.text.insert_str(0, BEGIN);
        self.then(";COMMIT")
    }

    /// Whether it is a transaction, which a failure leaves open.
    pub(crate) fn is_transaction(&self) -> bool {
        self.text.starts_with(BEGIN)
    }

    /// Appends text.
    pub(crate) fn then(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// The value of the next `?`.
    pub(crate) fn with(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Bytes for the next `?`.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        self.with(Value::Bytes(bytes.to_vec()))
    }

    /// As many `?` as there are values, between commas.
    pub(crate) fn list<'a>(mut self, all: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut first = true;
        for bytes in all {
            self.text.push_str(if first { "?" } else { ",?" });
            self.values.push(Value::Bytes(bytes.to_vec()));
            first = false;
        }
        self
    }

    /// The text with its values in place. Bytes are written in hexadecimal, so there is nothing to escape.
    pub(crate) fn inlined(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + self.values.len() * 24);
        let mut values = self.values.iter();
        for part in self.text.split_inclusive('?') {
            match part.strip_suffix('?') {
                Some(before) => {
                    out.push_str(before);
                    literal(values.next().unwrap_or(&Value::NULL), &mut out);
                }
                None => out.push_str(part),
            }
        }
        out
    }
}

fn literal(value: &Value, out: &mut String) {
    match value {
        Value::UInt(number) => out.push_str(&number.to_string()),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Bytes(bytes) => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |n: u8| DIGITS.get(usize::from(n)).map_or('0', |d| char::from(*d));
            out.push_str("x'");
            for byte in bytes {
                out.push(digit(byte >> 4));
                out.push(digit(byte & 15));
            }
            out.push('\'');
        }
        _ => out.push_str("NULL"),
    }
}

/// The name of a user-level lock. At most 64 characters are allowed, so it has a hash.
pub(crate) fn user_lock<'a>(kind: &str, of: impl IntoIterator<Item = &'a [u8]>) -> String {
    // The same in every version of clinch; a collision does no harm.
    let hash = fnv1a(of.into_iter().flatten().copied());
    format!("clinch.{kind}.{hash:016x}")
}
