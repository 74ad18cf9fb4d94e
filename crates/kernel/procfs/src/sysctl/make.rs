//! Rows of the table, by the kind of process that may set them.

use super::{Put, Row, SysctlView, Value};
use abi::Result;
use caller::quota::Limit;
use conntrack::Timeout;
use user_ns::Kind;

pub(super) const fn namespaces(path: &'static str, kind: Kind) -> Row {
    Row { path, mode: 0o644, value: Value::Namespaces(kind), put: Put::Namespaces(kind) }
}
pub(super) const fn ro(path: &'static str, v: &'static str) -> Row {
    Row { path, mode: 0o444, value: Value::Fixed(v), put: Put::No }
}
pub(super) const fn made(path: &'static str, f: fn(&SysctlView) -> String) -> Row {
    Row { path, mode: 0o444, value: Value::Made(f), put: Put::No }
}
pub(super) const fn spec(path: &'static str, v: &'static str) -> Row {
    Row { path, mode: 0o644, value: Value::Fixed(v), put: Put::Spec }
}
pub(super) const fn range(path: &'static str, v: &'static str, min: i64, max: i64) -> Row {
    Row { path, mode: 0o644, value: Value::Fixed(v), put: Put::Range(min, max) }
}
/// Numbers that are kept and shown: what they steer is not there.
pub(super) const fn numbers(path: &'static str, v: &'static str, many: usize) -> Row {
    Row { path, mode: 0o644, value: Value::Fixed(v), put: Put::Numbers(many) }
}
pub(super) const fn words(path: &'static str, v: &'static str) -> Row {
    Row { path, mode: 0o644, value: Value::Fixed(v), put: Put::Words }
}
pub(super) const fn fixed(path: &'static str, v: &'static str) -> Row {
    Row { path, mode: 0o644, value: Value::Fixed(v), put: Put::Fixed }
}
pub(super) const fn quota(path: &'static str, value: fn(&SysctlView) -> String, limit: Limit) -> Row {
    Row { path, mode: 0o644, value: Value::Made(value), put: Put::Quota(limit) }
}
pub(super) const fn apply(
    path: &'static str,
    f: fn(&SysctlView) -> String,
    set: fn(&SysctlView, &str) -> Result<()>,
) -> Row {
    Row { path, mode: 0o644, value: Value::Made(f), put: Put::Apply(set) }
}

/// How long a connection is remembered, in seconds.
pub(super) const fn timeout(path: &'static str, of: Timeout) -> Row {
    Row { path, mode: 0o644, value: Value::Timeout(of), put: Put::Timeout(of) }
}

/// A setting of the namespace's TCP/IP stack: the words of the value by their names there.
pub(super) const fn stack(path: &'static str, names: &'static [&'static str]) -> Row {
    Row { path, mode: 0o644, value: Value::Stack(names), put: Put::Stack(names) }
}
