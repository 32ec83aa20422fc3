//! Whole numbers, and what they may be.

use super::read::{Fields, Reader};
use super::tree::{Tree, Value};

/// Numbers of this size and above are not all whole numbers of their own.
const INEXACT: f64 = 1e21;

/// A type of whole numbers that a key takes.
pub trait Whole: TryFrom<i128> {
    const SMALLEST: i128;
    const LARGEST: i128;
}

macro_rules! whole {
    ($($kind:ty),*) => {
        $(#[allow(clippy::cast_lossless, reason = "a constant")]
        impl Whole for $kind {
            const SMALLEST: i128 = <$kind>::MIN as i128;
            const LARGEST: i128 = <$kind>::MAX as i128;
        })*
    };
}

whole!(i32, i64, u64);

impl Reader {
    /// A whole number that its type can hold.
    pub fn number<T: Whole>(&mut self, fields: &Fields<'_>, key: &str) -> Option<T> {
        self.whole(fields.get(key)?, &fields.path(key))
    }

    pub fn whole<T: Whole>(&mut self, tree: &Tree, path: &str) -> Option<T> {
        let range = || format!("a whole number from {} to {}", T::SMALLEST, T::LARGEST);
        let number = match &tree.value {
            Value::Int(number) => *number,
            // As the Go one reads it, which takes it through JSON.
            #[allow(clippy::cast_possible_truncation)]
            Value::Float(number) if number.fract() == 0.0 && number.abs() < INEXACT => *number as i128,
            Value::Float(number) if number.fract() == 0.0 => {
                self.error(tree.line, path, format!("{number} is out of range: this must be {}", range()));
                return None;
            }
            Value::Float(number) => {
                self.error(tree.line, path, format!("this must be a whole number, and is {number}"));
                return None;
            }
            _ => {
                self.expected(tree, path, "a whole number");
                return None;
            }
        };
        let held = T::try_from(number).ok();
        if held.is_none() {
            self.error(tree.line, path, format!("{number} is out of range: this must be {}", range()));
        }
        held
    }
}
