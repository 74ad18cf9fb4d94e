//! Sets of numbers.

use crate::document::{Node, Value};
use std::fmt;

/// Numbers as ranges with both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// True for a number of the set.
    pub fn has(&self, number: u64) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&number))
    }

    pub(crate) fn one(number: u64) -> Ranges {
        Ranges(vec![(number, number)])
    }

    /// True when each range of `other` lies in one of this set.
    pub(crate) fn covers(&self, other: &Ranges) -> bool {
        other.0.iter().all(|(from, to)| self.0.iter().any(|(low, high)| low <= from && to <= high))
    }

    /// Reads a number, a range `LOW-HIGH`, or a list of both.
    pub(crate) fn read(node: &Node, what: &str) -> Result<Ranges, crate::Diagnostic> {
        let one = |node: &Node| {
            let text = node.text(what)?;
            range(text).ok_or_else(|| {
                node.error(format!("{what}: {text:?} is no number and no range, as 1000 or 1000-1999"))
            })
        };
        if let Value::Map(_) = node.value {
            return Err(node.error(format!("{what} is a number, a range or a list of both")));
        }
        Ok(Ranges(node.several(what)?.iter().map(one).collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (low, high)) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " or " })?;
            match low == high {
                true => write!(f, "{low}")?,
                false => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

fn range(text: &str) -> Option<(u64, u64)> {
    if let Some(one) = number(text) {
        return Some((one, one));
    }
    let (low, high) = text.split_once('-')?;
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}

/// A number, decimal, `0x` or `0o`. A negative one is as in a register.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = |text: &str, radix| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric())
            .then(|| u64::from_str_radix(text, radix).ok())
            .flatten()
    };
    if let Some(text) = text.strip_prefix("0x") {
        return digits(text, 16);
    }
    if let Some(text) = text.strip_prefix("0o") {
        return digits(text, 8);
    }
    match text.strip_prefix('-') {
        Some(rest) => i64::try_from(digits(rest, 10)?).ok().map(|number| (-number) as u64),
        None => digits(text, 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let read = |text: &str| Ranges::read(&crate::document::read(text).unwrap(), "uid");
        let ids = read("[0, \"1000-1999\", 0x10]").unwrap();
        assert!(ids.has(0) && ids.has(1500) && ids.has(16) && !ids.has(17) && !ids.has(2000));
        assert_eq!(ids.to_string(), "0 or 1000-1999 or 16");
        assert!(read("-100").unwrap().has(-100i64 as u64));
        for wrong in ["x", "5-4", "+5", "1-", "{a: 1}", "[]", "99999999999999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read("0-9").unwrap().covers(&read("[1, 5-9]").unwrap()));
        assert!(!read("[0-4, 5-9]").unwrap().covers(&read("4-5").unwrap()));
    }
}
