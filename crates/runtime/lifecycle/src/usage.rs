//! `usage`: the memory of the processes of a container's sandbox on the host.

use crate::ps::{host_pids, running};
use crate::{Error, Result, Settings, pod};
use std::fs;
use std::io::ErrorKind;

/// Bytes in memory, those shared with other processes in proportion (PSS). Of a pod it is the whole sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The sentry.
    pub kernel: u64,
    /// The processes that hold the programs' memory.
    pub processes: u64,
    /// Pid 1 and the processes that stand for further containers.
    pub init: u64,
}

/// Adds up the processes as they are now.
pub fn usage(settings: &Settings, id: &str) -> Result<Usage> {
    let (_, record) = running(settings, id)?;
    let init = pod::sandbox_of(settings, record)?.state.pid;
    let mut usage = Usage::default();
    for (inside, pid) in host_pids(init) {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(Error::from(format!("{path}: {error}; usage needs root on the host")));
            }
            // It has ended.
            Err(_) => continue,
        };
        let part = match inside {
            1 => &mut usage.init,
            2 => &mut usage.kernel,
            _ => &mut usage.processes,
        };
        *part += proportional(&text);
    }
    Ok(usage)
}

/// The PSS of a smaps_rollup, in bytes.
fn proportional(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proportional_size_is_found() {
        assert_eq!(
            proportional("x [rollup]\nRss: 8 kB\nPss:                5 kB\nPss_Dirty: 1 kB\n"),
            5 << 10
        );
        assert_eq!(proportional(""), 0);
        let own = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        assert!(proportional(&own) > 0);
    }
}
