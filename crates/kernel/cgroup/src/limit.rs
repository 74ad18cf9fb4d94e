//! A limit of a group's file, or `max`.

use std::fmt;

/// A limit, or none (`max`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u32>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(limit) => write!(f, "{limit}"),
            None => f.write_str("max"),
        }
    }
}

impl Limit {
    pub(crate) fn is_below(self, count: usize) -> bool {
        self.0.is_some_and(|limit| (limit as usize) < count)
    }
}
