//! One row per system call. Dispatch, strace, trace points and the compatibility page derive from it.
//!
//! A row is `number name(types) = handler, support;`, or `number name(types) = handler, support, SCHEMA;` of a call that has trace
//! points with a message of its own. `Full` says that every documented behaviour is
//! there as far as known; `Partial("...")` names what is missing.

use crate::parts::Part;
use crate::points::Schema;
use task::{Current, SysResult};

/// How much of a call is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// All of it.
    Full,
    /// All but what the note names.
    Partial(&'static str),
    /// Answers as a kernel configured without it, with the reason.
    Absent(&'static str),
}

/// One system call.
pub struct Row {
    /// Number on x86-64.
    pub nr: u32,
    /// Name.
    pub name: &'static str,
    /// Converts the arguments and calls the handler.
    pub call: fn(&mut Current, [u64; 6]) -> SysResult,
    /// How many arguments it takes.
    pub arguments: usize,
    /// The arguments for strace.
    pub show: fn(&Current, [u64; 6]) -> String,
    /// How much is there.
    pub support: Support,
    /// What is not, as arguments ask for it.
    pub parts: &'static [Part],
    /// The message of its trace points; without one there are only those by number.
    pub points: Option<&'static Schema>,
}

/// Highest number in the table plus one.
pub const MAX_NR: usize = 470;

macro_rules! rows { ($($nr:literal $name:ident($($t:ty),*) = $h:path, $s:expr $(, $points:ident)?;)*) => {
    /// The rows of this group of families.
    pub static ROWS: &[Row] = &[$(Row {
        nr: $nr,
        name: stringify!($name),
        call: |c, a| { let mut _a = a.into_iter(); $h(c $(, <$t as $crate::arg::Arg>::from_reg(_a.next().unwrap_or(0)))*) },
        arguments: { const TYPES: &[&str] = &[$(stringify!($t)),*]; TYPES.len() },
        show: |_c, a| {
            let mut _a = a.into_iter();
            let v: Vec<String> = vec![$(<$t as $crate::arg::Arg>::show(_a.next().unwrap_or(0), _c)),*];
            v.join(", ")
        },
        support: $s,
        parts: $crate::parts::of($nr, matches!($s, $crate::table::Support::Absent(_))),
        points: [$(Some(&$crate::points::$points),)? None][0],
    }),*];
} }
pub(crate) use rows;
