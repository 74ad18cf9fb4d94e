//! Memory that guest code can write: what the sentry reads of a slot, and call sites that a guest names.

use super::{Bytes, outcome};

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    match bytes.byte() % 2 {
        0 => outcome(systrap::fuzz::slot(bytes.0)),
        _ => {
            let (rip, areas, flags) = (bytes.long(), [bytes.long(), bytes.long()], bytes.byte());
            outcome(systrap::fuzz::call_site(rip, areas, flags & 1 != 0, flags & 2 != 0, bytes.0))
        }
    }
}
