//! /proc/PID/timens_offsets: time_namespaces(7).

use abi::time::Timespec;
use abi::{Errno, Result};
use kernfs::At;
use nsproxy::{Offsets, TimeNamespace};
use rights::Cap;
use std::sync::Arc;

/// Most lines that one write(2) sets.
const MOST: usize = 2;

/// The namespace that children of the process are made in.
fn namespace(at: &At) -> Result<Arc<TimeNamespace>> {
    Ok(at.proc()?.task().ok_or(Errno::ESRCH)?.nsproxy().time_for_children.clone())
}

pub fn offsets(at: &At) -> Result<Vec<u8>> {
    if at.proc()?.task().is_none() {
        return Ok(Vec::new());
    }
    let Offsets { monotonic, boottime } = namespace(at)?.offsets();
    let row = |name: &str, t: Timespec| format!("{name:<10} {:>10} {:>9}\n", t.sec, t.nsec);
    Ok((row("monotonic", monotonic) + &row("boottime", boottime)).into_bytes())
}

/// Lines of clock, seconds and nanoseconds, and how many bytes they are. EINVAL.
fn parse(data: &[u8]) -> Result<(Vec<(i32, Timespec)>, usize)> {
    let text = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    // A text that ends with a line's end has no line after that.
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let (mut found, mut taken) = (Vec::new(), 0);
    for line in lines.take(MOST) {
        let mut words = line.split_ascii_whitespace();
        let mut word = || words.next().ok_or(Errno::EINVAL);
        let clock = match word()? {
            "monotonic" | "1" => libc::CLOCK_MONOTONIC,
            "boottime" | "7" => libc::CLOCK_BOOTTIME,
            _ => return Err(Errno::EINVAL),
        };
        let sec = word()?.parse().map_err(|_| Errno::EINVAL)?;
        let nsec: i64 = word()?.parse().map_err(|_| Errno::EINVAL)?;
        if !(0..1_000_000_000).contains(&nsec) {
            return Err(Errno::EINVAL);
        }
        found.push((clock, Timespec { sec, nsec }));
        taken += line.len() + 1;
    }
    Ok((found, taken.min(data.len())))
}

pub fn set_offsets(at: &At, data: &[u8]) -> Result<()> {
    let (new, taken) = parse(data)?;
    let ns = namespace(at)?;
    // As on Linux, the credentials of the opener count.
    if !at.opener()?.ns_capable(ns.user_ns(), Cap::SYS_TIME) {
        return Err(Errno::EPERM);
    }
    ns.set(&new, |clock| hostsys::clock::gettime_ns(clock).unwrap_or(0))?;
    at.taken.set(Some(taken));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let at = |clock, sec, nsec| (clock, Timespec { sec, nsec });
        assert_eq!(parse(b"monotonic 5 0"), Ok((vec![at(1, 5, 0)], 13)));
        assert_eq!(parse(b"7 -1 999999999\n"), Ok((vec![at(7, -1, 999_999_999)], 15)));
        assert_eq!(parse(b"1 1 0\n7 1 0\n1 2 0\n"), Ok((vec![at(1, 1, 0), at(7, 1, 0)], 12)));
        for bad in ["", "\n", "monotonic", "1 1", "1 x 0", "2 1 0", "1 1 1000000000", "1 1 0\n\n7 1 0"] {
            assert_eq!(parse(bad.as_bytes()), Err(Errno::EINVAL), "{bad:?}");
        }
    }
}
