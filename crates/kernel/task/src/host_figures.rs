//! What the host counts of the sandbox's processes and threads: memory, faults, switches, processor time. The sentry has
//! no procfs of the host, so a process of the sandbox that has one is asked. See `hostsys::figures`.

use hostsys::figures::{self, File, MOST};
use lock_order::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Where to ask. Without it, or without a procfs on the other side, nothing is known.
#[derive(Default)]
pub struct HostFigures(Mutex<Option<OwnedFd>>);

/// Resident memory of a process in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentPages {
    /// All of it.
    pub total: u64,
    /// Pages of files and of shared memory.
    pub shared: u64,
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the lines of /proc/PID/status")]
pub struct ResidentKib {
    pub peak: u64,
    pub total: u64,
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
    pub page_tables: u64,
    pub swap: u64,
}

/// What a thread has had of processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Nanoseconds on a processor.
    pub ran: u64,
    /// Nanoseconds that it was ready and waited for one.
    pub waited: u64,
}

/// Which pages of a process are its own.
pub struct OwnPages<'a> {
    figures: &'a HostFigures,
    pid: i32,
}

impl OwnPages<'_> {
    fn ask(&self, start: u64, end: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        figures::own_pages(self.figures.0.lock().as_ref()?.as_fd(), self.pid, start, end)
    }
}

impl mm::Presence for OwnPages<'_> {
    fn own_pages(&mut self, start: u64, end: u64, found: &mut dyn FnMut(u64, u64)) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let gone = || io::Error::other("the host does not tell which pages were written");
            let (until, ranges) = self.ask(at, end).ok_or_else(gone)?;
            ranges.into_iter().for_each(|(a, b)| found(a, b));
            at = until;
        }
        Ok(())
    }
}

impl HostFigures {
    /// Asks across this socket.
    pub fn new(socket: Option<OwnedFd>) -> Self {
        Self(Mutex::new(socket))
    }

    fn ask(&self, file: File, pids: &[i32]) -> Option<Vec<String>> {
        let mut socket = self.0.lock();
        let texts = figures::ask(socket.as_ref()?.as_fd(), file, pids);
        if texts.is_none() {
            // There is no other side any more.
            *socket = None;
        }
        texts
    }

    fn ask_one(&self, file: File, pid: i32) -> Option<String> {
        self.ask(file, &[pid])?.pop().filter(|text| !text.is_empty())
    }

    /// Which pages of a process of the host are its own, for a checkpoint of its memory. `None` where the host does not
    /// tell.
    pub fn own_pages(&self, pid: i32) -> Option<OwnPages<'_>> {
        let pages = OwnPages { figures: self, pid };
        pages.ask(0, 4096).is_some().then_some(pages)
    }

    /// Resident memory of a process of the host.
    pub fn resident(&self, pid: i32) -> Option<ResidentPages> {
        resident(&self.ask_one(File::Statm, pid)?)
    }

    /// The same of many; nothing for one that is not there.
    pub fn all_resident(&self, pids: &[i32]) -> Option<Vec<Option<ResidentPages>>> {
        let mut all = Vec::new();
        for some in pids.chunks(MOST) {
            all.extend(self.ask(File::Statm, some)?.iter().map(|text| resident(text)));
        }
        Some(all)
    }

    /// Minor and major faults of a process.
    pub fn faults(&self, pid: i32) -> Option<[u64; 2]> {
        faults(&self.ask_one(File::Stat, pid)?)
    }

    /// The same of a thread.
    pub fn thread_faults(&self, tid: i32) -> Option<[u64; 2]> {
        faults(&self.ask_one(File::ThreadStat, tid)?)
    }

    /// Memory of a process, its largest resident set included.
    pub fn memory(&self, pid: i32) -> Option<ResidentKib> {
        memory(&self.ask_one(File::Status, pid)?)
    }

    /// How often the thread lost its processor to another one.
    pub fn involuntary_switches(&self, tid: i32) -> Option<u64> {
        word(&self.ask_one(File::Status, tid)?, "nonvoluntary_ctxt_switches:")
    }

    /// Processor time of a thread.
    pub fn run_time(&self, tid: i32) -> Option<RunTime> {
        run_time(&self.ask_one(File::Schedstat, tid)?)
    }

    /// The same of many; nothing for one that is not there.
    pub fn all_run_times(&self, tids: &[i32]) -> Option<Vec<Option<RunTime>>> {
        let mut all = Vec::new();
        for some in tids.chunks(MOST) {
            all.extend(self.ask(File::Schedstat, some)?.iter().map(|text| run_time(text)));
        }
        Some(all)
    }
}

fn run_time(schedstat: &str) -> Option<RunTime> {
    let mut words = schedstat.split_whitespace().map(str::parse);
    Some(RunTime { ran: words.next()?.ok()?, waited: words.next()?.ok()? })
}

fn resident(statm: &str) -> Option<ResidentPages> {
    let mut words = statm.split_whitespace().skip(1).map(str::parse);
    Some(ResidentPages { total: words.next()?.ok()?, shared: words.next()?.ok()? })
}

fn faults(stat: &str) -> Option<[u64; 2]> {
    // Behind the name, which may hold anything.
    let (_, words) = stat.rsplit_once(')')?;
    let mut words = words.split_whitespace().skip(7);
    Some([words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?])
}

/// The number behind a word at the start of a line.
fn word(status: &str, key: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

fn memory(status: &str) -> Option<ResidentKib> {
    let of = |key| word(status, key);
    Some(ResidentKib {
        peak: of("VmHWM:")?,
        total: of("VmRSS:")?,
        anon: of("RssAnon:")?,
        file: of("RssFile:")?,
        shmem: of("RssShmem:")?,
        page_tables: of("VmPTE:")?,
        swap: of("VmSwap:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_host() {
        assert_eq!(resident("765 440 412 5 0 123 0\n"), Some(ResidentPages { total: 440, shared: 412 }));
        assert_eq!(resident(""), None);
        assert_eq!(run_time("120 7 3\n"), Some(RunTime { ran: 120, waited: 7 }));
        assert_eq!(run_time(""), None);
        let stat = "8498 (c) (a t) R 8471 8471 20350 0 -1 4194304 122 1 7 2 0 0";
        assert_eq!(faults(stat), Some([122, 7]));
        let status = "VmPeak:\t    9 kB\nVmHWM:\t    1564 kB\nVmRSS:\t    1560 kB\nRssAnon:\t      88 kB\nRssFile:\t    1472 kB\n\
                      RssShmem:\t       1 kB\nVmPTE:\t      48 kB\nVmSwap:\t       2 kB\nnonvoluntary_ctxt_switches:\t5\n";
        let all =
            ResidentKib { peak: 1564, total: 1560, anon: 88, file: 1472, shmem: 1, page_tables: 48, swap: 2 };
        assert_eq!(memory(status), Some(all));
        assert_eq!(word(status, "nonvoluntary_ctxt_switches:"), Some(5));
        // A kernel thread, or a process that has just ended, has no memory.
        assert_eq!(memory("Name:\tx\n"), None);
    }

    #[test]
    fn nothing_is_known_without_the_other_side() {
        let none = HostFigures::default();
        assert_eq!((none.resident(1), none.faults(1), none.all_resident(&[1])), (None, None, None));
    }
}
