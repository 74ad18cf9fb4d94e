//! The records in a sampler's ring, as perf_event_open(2) describes them.

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) time: u64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It ran.
    Sample(Box<Sample>),
    /// A process or thread began.
    Fork { parent: i32 },
    /// One ended.
    Exit,
    /// It has a new name.
    Name(String),
    /// It mapped something executable.
    Map(Mapping),
    /// So many records did not fit.
    Lost(u64),
}

/// Where a thread was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Addresses, the innermost first, with [`context`] marks between them; callers as frame pointers tell them.
    pub(crate) chain: Vec<u64>,
    /// The process's registers, if it was a process with 64-bit code.
    pub(crate) registers: Option<Registers>,
    /// Its memory from the stack pointer on.
    pub(crate) stack: Box<[u8]>,
}

/// The registers that say where a function's caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) bp: u64,
    pub(crate) sp: u64,
    pub(crate) ip: u64,
}

/// Marks in a chain of addresses: what follows belongs to that side.
pub(crate) mod context {
    /// The host kernel.
    pub(crate) const KERNEL: u64 = -128i64 as u64;
    /// The process.
    pub(crate) const USER: u64 = -512i64 as u64;
    /// Any mark is above this.
    pub(crate) const FIRST: u64 = -4095i64 as u64;
}

/// Executable memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) file: FileId,
    /// As the host shows it; of a file in a container, with the number of its tree in front.
    pub(crate) path: String,
}

/// A file as the host tells them apart; no inode for memory without a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
}

const MMAP2: u32 = 10;
const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;

/// What kind of registers a sample has.
const NO_REGISTERS: u64 = 0;
const REGISTERS_64: u64 = 2;

/// Process, thread and time at the end of every record that is not a sample.
const TRAILER: usize = 16;

/// Adds the records in `bytes` to `out`; kinds that do not matter are left out, and what is malformed ends the reading.
pub(crate) fn parse(mut bytes: &[u8], out: &mut Vec<Record>) {
    while let Some((header, _)) = bytes.split_at_checked(8) {
        let mut header = Reader(header);
        let kind = header.u32().unwrap_or(0);
        let len = header.u32().unwrap_or(0) >> 16;
        let Some((record, rest)) = bytes.split_at_checked(len.max(8) as usize) else { return };
        out.extend(record_of(kind, record.get(8..).unwrap_or_default()));
        bytes = rest;
    }
}

fn record_of(kind: u32, body: &[u8]) -> Option<Record> {
    if kind == SAMPLE {
        return sample(body);
    }
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut trailer = Reader(trailer);
    let (own_pid, own_tid, time) = (trailer.id()?, trailer.id()?, trailer.u64()?);
    let mut r = Reader(body);
    let (pid, tid, event) = match kind {
        LOST => {
            let _id = r.u64()?;
            (own_pid, own_tid, Event::Lost(r.u64()?))
        }
        COMM => (r.id()?, r.id()?, Event::Name(r.text())),
        FORK | EXIT => {
            let (pid, parent, tid) = (r.id()?, r.id()?, r.id()?);
            (pid, tid, if kind == FORK { Event::Fork { parent } } else { Event::Exit })
        }
        MMAP2 => {
            let (pid, tid) = (r.id()?, r.id()?);
            let (start, len, offset) = (r.u64()?, r.u64()?, r.u64()?);
            let file = FileId { major: r.u32()?, minor: r.u32()?, inode: r.u64()? };
            let (_generation, _prot, _flags) = (r.u64()?, r.u32()?, r.u32()?);
            let end = start.saturating_add(len);
            (pid, tid, Event::Map(Mapping { start, end, offset, file, path: r.text() }))
        }
        _ => return None,
    };
    Some(Record { time, pid, tid, event })
}

fn sample(body: &[u8]) -> Option<Record> {
    let mut r = Reader(body);
    let (_ip, pid, tid, time, count) = (r.u64()?, r.id()?, r.id()?, r.u64()?, r.u64()?);
    let count = usize::try_from(count).ok().filter(|count| *count <= r.0.len() / 8)?;
    let chain = (0..count).map_while(|_| r.u64()).collect();
    let registers = match r.u64()? {
        NO_REGISTERS => None,
        REGISTERS_64 => Some(Registers { bp: r.u64()?, sp: r.u64()?, ip: r.u64()? }),
        _ => {
            r.0 = r.0.get(24..)?;
            None
        }
    };
    let mut stack: &[u8] = &[];
    let room = usize::try_from(r.u64()?).ok()?;
    if room > 0 {
        let (bytes, rest) = r.0.split_at_checked(room)?;
        r.0 = rest;
        // Only so much of it was filled.
        stack = bytes.get(..usize::try_from(r.u64()?).ok()?)?;
    }
    let sample = Sample { chain, registers, stack: stack.into() };
    Some(Record { time, pid, tid, event: Event::Sample(Box::new(sample)) })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn id(&mut self) -> Option<i32> {
        self.take().map(i32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// What is left, up to a zero.
    fn text(&mut self) -> String {
        let text = self.0.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A line of /proc/PID/maps.
pub(crate) fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = fields.next()?.split_once('-')?;
    let _bits = fields.next()?;
    let offset = hex(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let file = FileId { major: hex(major)? as u32, minor: hex(minor)? as u32, inode };
    let path = fields.next().unwrap_or_default().trim_start().to_string();
    Some(Mapping { start: hex(start)?, end: hex(end)?, offset, file, path })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn record(kind: u32, parts: &[&[u8]]) -> Vec<u8> {
        let body = parts.concat();
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((8 + body.len() as u16).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn ids(ids: &[i32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn parsed(bytes: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        parse(bytes, &mut records);
        records
    }

    #[test]
    fn every_kind_is_read() {
        let trailer = [ids(&[5, 6]), words(&[77])].concat();
        let file = FileId { major: 1, minor: 2, inode: 3 };
        let chain = words(&[70, 3, context::USER, 9, 0x40_0000, 2, 1, 2, 3, 16]);
        let stack = [words(&[4, 0]), words(&[8])].concat();
        let mut bytes = record(SAMPLE, &[&words(&[9]), &ids(&[5, 6]), &chain, &stack]);
        let sample = Sample {
            chain: vec![context::USER, 9, 0x40_0000],
            registers: Some(Registers { bp: 1, sp: 2, ip: 3 }),
            stack: words(&[4]).into(),
        };
        bytes.extend(record(FORK, &[&ids(&[7, 5, 7, 5]), &words(&[0]), &trailer]));
        bytes.extend(record(14, &[&trailer]));
        bytes.extend(record(COMM, &[&ids(&[5, 6]), b"name\0\0\0\0", &trailer]));
        let map = [words(&[0x1000, 0x2000, 0x3000]), ids(&[1, 2]), words(&[3, 0]), ids(&[5, 2])].concat();
        bytes.extend(record(MMAP2, &[&ids(&[5, 5]), &map, b"/0/bin/x\0\0\0\0\0\0\0\0", &trailer]));
        bytes.extend(record(LOST, &[&words(&[1, 12]), &trailer]));
        let records = parsed(&bytes);
        let events: Vec<_> = records.iter().map(|r| (r.time, r.pid, r.tid, r.event.clone())).collect();
        let mapping = Mapping { start: 0x1000, end: 0x3000, offset: 0x3000, file, path: "/0/bin/x".into() };
        assert_eq!(
            events,
            [
                (70, 5, 6, Event::Sample(Box::new(sample))),
                (77, 7, 7, Event::Fork { parent: 5 }),
                (77, 5, 6, Event::Name("name".into())),
                (77, 5, 5, Event::Map(mapping)),
                (77, 5, 6, Event::Lost(12)),
            ]
        );
        // Cut anywhere, what is whole is read.
        for len in 0..bytes.len() {
            assert!(parsed(&bytes[..len]).len() < 5);
        }
    }

    #[test]
    fn lengths_may_lie() {
        assert!(
            parsed(&record(SAMPLE, &[&words(&[9]), &ids(&[5, 6]), &words(&[70, u64::MAX, 1])])).is_empty()
        );
        let long = [words(&[9]), ids(&[5, 6]), words(&[70, 0, 0, 8, 1, 9])].concat();
        assert!(parsed(&record(SAMPLE, &[&long])).is_empty());
        assert!(parsed(&[9, 0, 0, 0, 0, 0, 0, 0]).is_empty());
        assert!(parsed(&[9, 0, 0, 0, 0, 0, 255, 255]).is_empty());
    }
}
