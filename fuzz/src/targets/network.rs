//! What a sentry, a guest and a name server send to the network gofer, and what it answers; policies.
//!
//! The first byte of an input says which of them the rest is.

use super::{Bytes, kind, outcome};
use netgofer::Policy;
use netproto::{Reply, Request};

pub(super) const WORDS: &[&str] = &[
    "index.example",
    "*.example",
    "10.0.0.0/8",
    "[::1]:443",
    "/tcp",
    "/udp",
    ",",
    ":53",
    "*",
    "\x07example",
    "\u{0}\u{1}",
];

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let which = bytes.byte();
    let rest = bytes.0;
    match which % 4 {
        0 => match Request::decode(rest) {
            Some(request) => {
                assert_eq!(request.encode(), rest, "there is one form of each request");
                outcome(("request", std::mem::discriminant(&request)))
            }
            None => outcome("no request"),
        },
        1 => match Reply::decode(rest) {
            Some(reply) => {
                assert_eq!(Reply::decode(&reply.encode()), Some(reply));
                outcome(("reply", reply.names, reply.addr.is_some()))
            }
            None => outcome("no reply"),
        },
        2 => {
            // A question, and a server's answer to it.
            let (question, answer) = rest.split_at(rest.len().min(bytes_of_question(rest)));
            outcome(netgofer::fuzz::names(question, answer))
        }
        _ => match String::from_utf8_lossy(rest).parse::<Policy>() {
            Ok(policy) => outcome(("policy", policy.whole_names().count())),
            Err(error) => outcome(error.rsplit('"').next().map(kind)),
        },
    }
}

/// Length of the question in an input: its first byte, in units that let it be any name's.
fn bytes_of_question(rest: &[u8]) -> usize {
    rest.first().map_or(0, |first| usize::from(*first) * 2)
}
