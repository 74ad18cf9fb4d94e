//! The choice of the host's out-of-memory killer. See proc(5), /proc/PID/oom_score_adj.
//!
//! The killer takes the process with most memory. Guest memory belongs to a stub, so the killer takes the right one.
//! Files in memory belong to no process. Only the end of the sentry frees them, not the end of a stub. So the sentry's
//! score rises with them, as if they were its memory.

use rustix::fs::fstatfs;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Highest adjustment. Each point is a thousandth of all memory there is, or of the group's limit.
const MOST: i64 = 1000;
/// Never to be killed.
const NEVER: i64 = -1000;
/// How often the files in memory are weighed: soon while they change.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(16);

/// The adjustment of the calling process.
pub(crate) struct OomScore {
    file: File,
    base: i64,
    now: i64,
}

impl OomScore {
    /// Opens it, while there is a /proc.
    pub(crate) fn open() -> io::Result<OomScore> {
        let file = File::options().read(true).write(true).open("/proc/self/oom_score_adj")?;
        let mut score = OomScore { file, base: 0, now: 0 };
        score.now = score.read()?;
        score.base = score.now;
        Ok(score)
    }

    fn read(&mut self) -> io::Result<i64> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        text.trim().parse().map_err(io::Error::other)
    }

    fn write(&mut self, value: i64) -> io::Result<()> {
        self.file.rewind()?;
        self.file.write_all(value.to_string().as_bytes())?;
        self.now = value;
        Ok(())
    }

    /// Sets what the container asks for; processes made from now on inherit it. It can always be raised, but only lowered with
    /// CAP_SYS_RESOURCE or down to what it once was.
    pub(crate) fn set_base(&mut self, wanted: i32) -> io::Result<()> {
        let wanted = i64::from(wanted);
        if wanted != self.now {
            self.write(wanted)?;
        }
        self.base = wanted;
        Ok(())
    }

    /// Weighs files of so many bytes, of `total` bytes of memory. True when that changed anything.
    fn weigh(&mut self, bytes: u64, total: u64) -> bool {
        let value = weight(self.base, bytes, total);
        value != self.now && self.write(value).is_ok()
    }

    /// Weighs the files in the file system of `backing` from now on.
    pub(crate) fn follow(mut self, backing: OwnedFd, total: u64) -> io::Result<()> {
        let run = move || {
            let mut pause = SHORTEST;
            loop {
                std::thread::sleep(pause);
                let bytes = fstatfs(&backing).map_or(0, |s| (s.f_blocks - s.f_bfree) * s.f_bsize as u64);
                pause = if self.weigh(bytes, total) { SHORTEST } else { (pause * 2).min(LONGEST) };
            }
        };
        std::thread::Builder::new().name("oom".into()).stack_size(64 << 10).spawn(run).map(drop)
    }
}

/// The adjustment for a process to which so many bytes are added.
fn weight(base: i64, bytes: u64, total: u64) -> i64 {
    if base == NEVER {
        return NEVER;
    }
    let points = u128::from(bytes) * MOST as u128 / u128::from(total.max(1));
    (base + points.min(2 * MOST as u128) as i64).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_weigh_as_much_as_memory() {
        assert_eq!(weight(0, 0, 1 << 30), 0);
        assert_eq!(weight(0, 1 << 29, 1 << 30), 500);
        assert_eq!(weight(-500, 1 << 29, 1 << 30), 0);
        assert_eq!(weight(700, 1 << 29, 1 << 30), 1000);
        assert_eq!(weight(-1000, u64::MAX, 1), -1000);
        assert_eq!(weight(0, 5, 0), 1000);
    }
}
