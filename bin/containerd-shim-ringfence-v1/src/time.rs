//! The time as containerd's messages carry it.

use containerd_shim_protos::protobuf::well_known_types::timestamp::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in containerd's form.
pub(crate) fn timestamp() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanos) = (now.as_secs() as i64, now.subsec_nanos() as i32);
    Timestamp { seconds, nanos, ..Timestamp::default() }
}
