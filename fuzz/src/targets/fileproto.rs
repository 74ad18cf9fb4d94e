//! Messages between a sentry and a gofer about files.
//!
//! The first byte of an input says which kind the rest is, and for a reply the operation that it answers.

use super::{Bytes, outcome};
use fileproto::{Reply, Request, header, operation};

pub(super) const WORDS: &[&str] =
    &["\u{1}\0\0\0", "\0\0\0\0", "a", "a/b", "..", "user.a", "system.posix_acl_access", "\u{2}\0\0\0"];

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let which = bytes.byte();
    let rest = bytes.0;
    let Some(header) = header(rest) else { return outcome("no message") };
    if which.is_multiple_of(2) {
        let Some((its, request)) = Request::decode(rest) else { return outcome("no request") };
        assert_eq!(its, header);
        let again = request.encode_on(header.sequence, header.processor);
        assert_eq!(again, rest, "there is one form of each request");
        return outcome(("request", request.operation(), rest.len()));
    }
    let operation = u16::from(which / 2) % operation::LOOK + 1;
    let Some(reply) = Reply::decode(rest, header.sequence, operation) else { return outcome("no reply") };
    assert_eq!(reply.encode(header.sequence, operation), rest, "there is one form of each reply");
    outcome(("reply", operation, rest.len()))
}
