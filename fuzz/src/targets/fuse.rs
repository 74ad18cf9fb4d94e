//! Answers of the daemons of FUSE file systems.

use super::outcome;

pub(super) const WORDS: &[&str] = &["name", "user.a", "a/b", "..", "\u{2}\0\0\0\0\0\0\0"];

pub(super) fn run(input: &[u8]) -> u64 {
    outcome(fuse::fuzz::run(input))
}
