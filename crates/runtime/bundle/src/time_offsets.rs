//! `linux.timeOffsets`: the offsets of the clocks of the container's time namespace from the host's.

use crate::namespaces::{Namespace, Namespaces};
use crate::{Result, fail};
use oci_spec::runtime::Linux;

/// Seconds and nanoseconds for CLOCK_MONOTONIC and CLOCK_BOOTTIME.
pub(crate) fn translate(linux: &Linux, namespaces: &Namespaces) -> Result<[(i64, u32); 2]> {
    let mut offsets = [(0, 0); 2];
    for (clock, offset) in linux.time_offsets().iter().flatten() {
        let Some(index) = ["monotonic", "boottime"].iter().position(|known| known == clock) else {
            fail!("linux.timeOffsets.{clock} is no clock with an offset; monotonic and boottime are");
        };
        let given = (offset.secs().unwrap_or(0), offset.nanosecs().unwrap_or(0));
        if given.1 >= 1_000_000_000 {
            fail!("linux.timeOffsets.{clock}.nanosecs {} is a second or more", given.1);
        }
        if given != (0, 0) && namespaces.time == Namespace::Host {
            fail!("linux.timeOffsets needs a time namespace; add {{\"type\": \"time\"}} to linux.namespaces");
        }
        offsets[index] = given;
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clocks() {
        let run = |namespace: bool, offsets: serde_json::Value| {
            let linux: Linux = serde_json::from_value(json!({ "timeOffsets": offsets })).unwrap();
            let time = if namespace { Namespace::New } else { Namespace::Host };
            translate(&linux, &Namespaces { time, ..Namespaces::default() }).map_err(|error| error.0)
        };
        let both = json!({ "monotonic": { "secs": -5 }, "boottime": { "secs": 7, "nanosecs": 9 } });
        assert_eq!(run(true, both.clone()), Ok([(-5, 0), (7, 9)]));
        assert_eq!(run(false, json!({ "monotonic": { "secs": 0 } })), Ok([(0, 0); 2]));
        assert!(run(false, both).unwrap_err().contains("needs a time namespace"));
        assert!(run(true, json!({ "realtime": {} })).unwrap_err().contains("realtime is no clock"));
        let long = json!({ "boottime": { "nanosecs": 1_000_000_000 } });
        assert!(run(true, long).unwrap_err().contains("nanosecs"));
    }
}
