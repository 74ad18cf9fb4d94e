//! The processes of the sandbox, their names and their mappings, followed through the records.
//!
//! The list of processes begins with the content of /proc after the samplers have started. Records that are older than
//! that reading of a process are ignored.

use crate::records::{Event, Mapping, Record, Sample};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Most processes and most mappings of each that are followed; what is more counts, but has no names.
const MAX_PROCESSES: usize = 1 << 16;
const MAX_MAPPINGS: usize = 1 << 14;
/// Most mappings that are noted in all, those included that a process gets its own copies of.
const MAX_NOTED: usize = 1 << 21;

/// Executable memory by its first address.
pub(crate) type Mappings = BTreeMap<u64, Rc<Mapping>>;

/// A process of the sandbox.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// The sentry itself, or one that is part of the guest.
    pub(crate) sentry: bool,
    /// When it was looked at.
    pub(crate) since: u64,
    /// Threads there are, by id, and their names.
    pub(crate) threads: HashMap<i32, Rc<str>>,
    /// Its own name.
    pub(crate) name: Rc<str>,
    pub(crate) mappings: Rc<Mappings>,
}

impl Process {
    /// Adds a mapping, which takes the place of what was there.
    pub(crate) fn map(&mut self, new: Mapping) {
        if new.start >= new.end {
            return;
        }
        let mappings = Rc::make_mut(&mut self.mappings);
        let overlapped: Vec<_> = mappings
            .range(..new.end)
            .rev()
            .take_while(|(_, old)| old.end > new.start)
            .map(|(_, old)| old.clone())
            .collect();
        for old in overlapped {
            mappings.remove(&old.start);
            if old.start < new.start {
                mappings.insert(old.start, Rc::new(Mapping { end: new.start, ..Mapping::clone(&old) }));
            }
            if old.end > new.end {
                let offset = old.offset.wrapping_add(new.end - old.start);
                let rest = Mapping { start: new.end, offset, ..Mapping::clone(&old) };
                mappings.insert(new.end, Rc::new(rest));
            }
        }
        if mappings.len() < MAX_MAPPINGS {
            mappings.insert(new.start, Rc::new(new));
        }
    }

    /// The mapping at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Rc<Mapping>> {
        self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping).filter(|m| address < m.end)
    }
}

/// A sample of one of them.
pub(crate) struct ProcessSample<'a> {
    pub(crate) process: &'a Process,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) sample: Box<Sample>,
}

/// All of them, by the host's process id.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(crate) processes: HashMap<i32, Process>,
    /// Records that did not fit into the rings.
    pub(crate) lost: u64,
    /// Mappings noted so far.
    noted: usize,
}

impl Processes {
    /// Applies a record; what was seen if it is a sample of one of the sandbox's processes.
    pub(crate) fn apply(&mut self, record: Record) -> Option<ProcessSample<'_>> {
        let Record { time, pid, tid, event } = record;
        if let Event::Lost(count) = event {
            self.lost += count;
            return None;
        }
        if let Event::Fork { parent } = event {
            self.fork(time, pid, tid, parent);
            return None;
        }
        if let Event::Sample(sample) = event {
            return self.processes.get(&pid).map(|process| ProcessSample { process, pid, tid, sample });
        }
        let process = self.processes.get_mut(&pid)?;
        if time < process.since {
            return None;
        }
        match event {
            Event::Name(name) => {
                let name: Rc<str> = name.into();
                if pid == tid {
                    process.name = name.clone();
                }
                process.threads.insert(tid, name);
            }
            Event::Map(mapping) => {
                let shared = Rc::strong_count(&process.mappings) > 1;
                let cost = 1 + if shared { process.mappings.len() } else { 0 };
                self.noted = self.noted.saturating_add(cost);
                if self.noted <= MAX_NOTED {
                    process.map(mapping);
                }
            }
            Event::Exit => {
                process.threads.remove(&tid);
                if process.threads.is_empty() {
                    self.processes.remove(&pid);
                }
            }
            Event::Sample(_) | Event::Fork { .. } | Event::Lost(_) => {}
        }
        None
    }

    fn fork(&mut self, time: u64, pid: i32, tid: i32, parent: i32) {
        if self.processes.get(&pid).is_some_and(|known| time < known.since) {
            return;
        }
        // A new process with the ID of an earlier one replaces that one.
        match self.processes.get_mut(&parent) {
            Some(process) if pid == parent => {
                // A thread, which is called like the process until it says otherwise.
                let name = process.name.clone();
                process.threads.insert(tid, name);
            }
            Some(process) => {
                // All that begin in the sandbox are the guest's: the sentry is there already.
                let mut new = Process { sentry: false, since: time, ..process.clone() };
                new.threads = HashMap::from([(tid, new.name.clone())]);
                if self.processes.len() < MAX_PROCESSES {
                    self.processes.insert(pid, new);
                }
            }
            None => {
                self.processes.remove(&pid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::FileId;

    fn mapping(start: u64, end: u64, inode: u64) -> Mapping {
        let file = FileId { major: 0, minor: 0, inode };
        Mapping { start, end, offset: 0x100, file, path: String::new() }
    }

    fn at(process: &Process, address: u64) -> Option<(u64, u64)> {
        process.at(address).map(|m| (m.file.inode, m.offset + address - m.start))
    }

    #[test]
    fn mappings_replace_each_other() {
        let mut p = Process::default();
        p.map(mapping(0x1000, 0x5000, 1));
        p.map(mapping(0x2000, 0x3000, 2));
        assert_eq!(at(&p, 0x1fff), Some((1, 0x10ff)));
        assert_eq!(at(&p, 0x2000), Some((2, 0x100)));
        assert_eq!(at(&p, 0x3000), Some((1, 0x2100)));
        assert_eq!((at(&p, 0xfff), at(&p, 0x5000)), (None, None));
        p.map(mapping(0x800, 0x6000, 3));
        assert_eq!(at(&p, 0x2000), Some((3, 0x1900)));
        p.map(mapping(0x9000, 0x9000, 4));
        p.map(mapping(0x9000, 0x8000, 4));
        assert_eq!(at(&p, 0x9000), None);
        for n in 0..2 * MAX_MAPPINGS as u64 {
            p.map(mapping(n << 12, (n << 12) + 1, 5));
        }
        assert_eq!(p.mappings.len(), MAX_MAPPINGS);
    }

    #[test]
    fn processes_are_followed() {
        let record = |time, pid, tid, event| Record { time, pid, tid, event };
        let mut w = Processes::default();
        let mut first = Process {
            sentry: true,
            since: 10,
            threads: HashMap::from([(2, "boot".into())]),
            ..Process::default()
        };
        first.map(mapping(0x1000, 0x2000, 1));
        w.processes.insert(2, first);
        // Of before the look.
        w.apply(record(5, 2, 2, Event::Name("old".into())));
        w.apply(record(5, 2, 2, Event::Exit));
        assert_eq!(&*w.processes[&2].name, "");
        w.apply(record(20, 9, 9, Event::Fork { parent: 2 }));
        w.apply(record(21, 9, 9, Event::Name("sh".into())));
        w.apply(record(22, 9, 10, Event::Fork { parent: 9 }));
        w.apply(record(23, 9, 9, Event::Exit));
        let sample = || Event::Sample(Box::default());
        let seen = w.apply(record(24, 9, 10, sample())).unwrap();
        assert_eq!((&*seen.process.name, seen.process.sentry, seen.pid, seen.tid), ("sh", false, 9, 10));
        assert_eq!(at(seen.process, 0x1000), Some((1, 0x100)));
        w.apply(record(25, 9, 10, Event::Exit));
        assert!(w.apply(record(26, 9, 10, sample())).is_none());
        // The process ID belongs to another process now.
        w.apply(record(27, 8, 8, Event::Fork { parent: 2 }));
        w.apply(record(28, 8, 8, Event::Fork { parent: 1 }));
        assert!(!w.processes.contains_key(&8));
        w.apply(record(29, 1, 1, Event::Lost(3)));
        assert_eq!(w.lost, 3);
    }
}
