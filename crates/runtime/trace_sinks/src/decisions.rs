//! The log of a policy's decisions: packets of the kernel become lines that show changes.
//!
//! The command line begins the log ([`begin`]), so that it can say what is wrong with it. The process that lives as long
//! as the session ([`serve`]) appends, and signs at the end. Both hold one lock on the file (flock(2)): no other writer
//! can get between. A packet is bounded and may be garbage, which then is a line of its own.

use crate::file::Reader;
use decision_log::{Entry, Fault, Key, Start, Tail, Writer};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trace_wire::packet::HEADER;

/// Longest decision in bytes of JSON.
const MAX_DECISION: usize = 256 << 10;

/// Most bytes of a log. A guest can have decisions made without end; what does not fit is counted.
const MAX_LOG: u64 = 1 << 30;

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// A log that was made for a policy which may not come into force. Unless [`NewLog::keep`] is called the file is removed,
/// if there is no decision in it: the next attempt can have the name.
#[derive(Debug)]
pub struct NewLog {
    path: Option<PathBuf>,
    /// Device and inode number.
    file: (u64, u64),
}

impl NewLog {
    /// The policy is in force.
    pub fn keep(mut self) {
        self.path = None;
    }

    /// The file is not what it was, has decisions, or is in use.
    fn remove(&self, path: &Path) -> Option<()> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(open(path, flags, Mode::empty()).ok()?);
        let data = file.metadata().ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let is_unused = data.len() == 0
            || match decision_log::verify(BufReader::new(&file), None) {
                Ok(report) => report.decisions == 0 && report.missing == 0,
                // A start alone.
                Err(Fault::CutOff { lines }) => lines == 1,
                Err(_) => false,
            };
        ((data.dev(), data.ino()) == self.file && is_unused).then_some(())?;
        std::fs::remove_file(path).ok()
    }
}

impl Drop for NewLog {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            self.remove(&path);
        }
    }
}

/// Opens the file of a log; whether it is a new one.
fn open_log(path: &Path) -> io::Result<(File, bool)> {
    // Read to check what there is. A link is not followed: others may write to the directory.
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let (opened, new) = match open(path, flags | OFlags::CREATE | OFlags::EXCL, mode) {
        Err(rustix::io::Errno::EXIST) => (open(path, flags, mode), false),
        opened => (opened, true),
    };
    match opened {
        Err(rustix::io::Errno::LOOP) => Err(io::Error::other("a symbolic link; name the file")),
        opened => Ok((File::from(opened?), new)),
    }
}

/// Begins a log, or goes on with one that has no end. The file is locked.
pub(crate) fn begin(path: &Path, start: Start) -> io::Result<(OwnedFd, Option<NewLog>)> {
    let (file, new) = open_log(path)?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(io::Error::other("another policy writes to it; name another file"));
        }
        locked => locked?,
    }
    let data = file.metadata()?;
    let new = new.then(|| NewLog { path: Some(path.into()), file: (data.dev(), data.ino()) });
    if data.len() > 0 {
        resumed(&file)?;
    } else if let Err(error) = Writer::start(&file, start) {
        // No part of a line stays, which would be no log.
        file.set_len(0)?;
        // Unlocked before the guard looks at it.
        drop(file);
        return Err(error);
    }
    Ok((file.into(), new))
}

/// What there is, up to which a writer goes on.
fn tail(mut file: &File) -> io::Result<Tail> {
    file.rewind()?;
    Tail::read(BufReader::new(file)).map_err(|fault| match fault {
        Fault::Unreadable(error) => error,
        Fault::Ended => io::Error::other("the log has its end already; name another file"),
        other => io::Error::other(format!("not a log that can go on: {other}")),
    })
}

fn resumed(file: &File) -> io::Result<Writer<&File>> {
    let tail = tail(file)?;
    Writer::resume(file, &tail, now())
}

/// Appends what comes from the kernel, and the end with its signature. `unwritten`: how many decisions the file did not take
/// is kept here, for the kernel to tell.
pub(crate) fn serve(
    socket: &OwnedFd,
    file: OwnedFd,
    unwritten: OwnedFd,
    key: Option<&str>,
    path: &Path,
) -> io::Result<()> {
    // A limit on the length of files is an error of a write, as a disk is that is full.
    hostsys::signals::overlook(&[libc::SIGXFSZ]);
    append_all(socket, [file, unwritten], key, path, MAX_LOG)
}

fn append_all(
    socket: &OwnedFd,
    [file, unwritten]: [OwnedFd; 2],
    key: Option<&str>,
    path: &Path,
    most: u64,
) -> io::Result<()> {
    let file = File::from(file);
    let key = key.map(Key::from_pem).transpose().map_err(io::Error::other)?;
    let writer = Some(Writer::behind(&file, &tail(&file)?));
    let told = unwritten.into();
    let mut log = Log { file: &file, path, writer, missing: 0, most, unwritten: 0, told, again: None };
    let mut reader = Reader::new();
    let mut dropped = 0;
    while let Some(packet) = reader.next(socket)? {
        let Some((header, decision)) = packet.split_at_checked(HEADER) else {
            log.tell(&unreadable("a packet without a header"));
            continue;
        };
        let so_far = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        log.missing += u64::from(so_far.wrapping_sub(dropped));
        dropped = so_far;
        // A packet without a decision only brings the count.
        let told = if decision.is_empty() { None } else { Some(read(decision)) };
        match told {
            Some(entry) => log.tell(&entry),
            None => log.tell_missing(),
        }
    }
    // The last chance.
    (log.most, log.again) = (u64::MAX, None);
    log.tell_missing();
    if let Some(writer) = log.writer.take() {
        writer.finish(now(), key.as_ref())?;
    }
    file.sync_all()
}

/// A decision, or a line that says that it is none.
fn read(json: &[u8]) -> Entry {
    if json.len() > MAX_DECISION {
        return unreadable("a decision that is too long");
    }
    match serde_json::from_slice::<Entry>(json) {
        Ok(entry) => entry,
        Err(error) => unreadable(&format!("a packet that is no decision: {error}")),
    }
}

fn unreadable(why: &str) -> Entry {
    Entry { time_ns: now(), action: "unreadable".into(), answer: Some(why.into()), ..Entry::default() }
}

/// How long the writer waits after a write that failed, before it tries again: to go on, it reads the log from its beginning.
const AGAIN: Duration = Duration::from_secs(1);

/// The log, and what it does not have.
struct Log<'a> {
    file: &'a File,
    path: &'a Path,
    /// Nothing after a write that failed, until the log could be resumed.
    writer: Option<Writer<&'a File>>,
    /// Decisions that were made and are not in the log; no line tells of them yet.
    missing: u64,
    /// Bytes that it may have.
    most: u64,
    /// Decisions that the file did not take, those included that lines tell of.
    unwritten: u64,
    /// Where that number is told.
    told: File,
    /// When to try again.
    again: Option<Instant>,
}

impl Log<'_> {
    fn tell(&mut self, entry: &Entry) {
        self.tell_missing();
        if self.missing > 0 || !self.append(entry) {
            self.missing += 1;
            self.unwritten += 1;
            // Memory, which is there from the start.
            let _ = self.told.write_all_at(&self.unwritten.to_le_bytes(), 0);
        }
    }

    fn tell_missing(&mut self) {
        if self.missing > 0 {
            let gap = Entry {
                time_ns: now(),
                action: "missing".into(),
                missing: Some(self.missing),
                ..Entry::default()
            };
            if self.append(&gap) {
                self.missing = 0;
            }
        }
    }

    /// False when the file does not take it. A later one tries again, behind what there is of a line.
    fn append(&mut self, entry: &Entry) -> bool {
        if self.file.metadata().is_ok_and(|file| file.len() >= self.most) {
            if self.missing == 0 {
                let path = self.path.display();
                log::error!("log of decisions {path}: full; further decisions are counted alone");
            }
            return false;
        }
        if self.again.is_some_and(|again| Instant::now() < again) {
            return false;
        }
        let done = match self.writer.take() {
            Some(writer) => Ok(writer),
            None => resumed(self.file),
        };
        let done = done.and_then(|mut writer| {
            writer.append(entry)?;
            Ok(writer)
        });
        match done {
            Ok(writer) => {
                self.writer = Some(writer);
                self.again = None;
            }
            Err(error) => {
                if self.again.is_none() {
                    log::error!("log of decisions {}: {error}", self.path.display());
                }
                self.again = Some(Instant::now() + AGAIN);
            }
        }
        self.writer.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use decision_log::{Signature, verify};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }

        fn log(&self) -> PathBuf {
            self.0.join("log")
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn start() -> Start {
        Start::new("box", b"rules: []", 1)
    }

    fn packet(dropped: u32, text: &str) -> Vec<u8> {
        let mut packet = vec![8, 0, 0, 0];
        packet.extend_from_slice(&dropped.to_le_bytes());
        packet.extend_from_slice(text.as_bytes());
        packet
    }

    fn written(dir: &Dir, packets: &[Vec<u8>], key: Option<&str>) -> String {
        written_up_to(dir, packets, key, MAX_LOG)
    }

    fn written_up_to(dir: &Dir, packets: &[Vec<u8>], key: Option<&str>, most: u64) -> String {
        let (file, _new) = begin(&dir.log(), start()).unwrap();
        let (kernel, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for packet in packets {
            send(&kernel, packet, SendFlags::NOSIGNAL).unwrap();
        }
        drop(kernel);
        append_all(&ours, [file, memfd()], key, &dir.log(), most).unwrap();
        std::fs::read_to_string(dir.log()).unwrap()
    }

    fn memfd() -> OwnedFd {
        rustix::fs::memfd_create("unwritten", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn a_new_log_without_decisions_goes_unless_it_is_kept() {
        let dir = Dir::new("unused");
        let (file, new) = begin(&dir.log(), start()).unwrap();
        drop(file);
        drop(new);
        assert!(!dir.log().exists());
        let (file, new) = begin(&dir.log(), start()).unwrap();
        drop(file);
        new.unwrap().keep();
        assert!(dir.log().exists());
        // One that was there before is not ours to remove.
        let (_file, new) = begin(&dir.log(), start()).unwrap();
        assert!(new.is_none());
        std::fs::remove_file(dir.log()).unwrap();
        for (decisions, stays) in [(0, false), (1, true)] {
            let (file, new) = begin(&dir.log(), start()).unwrap();
            let (kernel, ours) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            for _ in 0..decisions {
                send(&kernel, &packet(0, "{}"), SendFlags::NOSIGNAL).unwrap();
            }
            drop(kernel);
            serve(&ours, file, memfd(), None, &dir.log()).unwrap();
            drop(new);
            assert_eq!(dir.log().exists(), stays);
        }
    }

    #[test]
    fn decisions_and_gaps_and_garbage_become_a_whole_log() {
        let dir = Dir::new("decisions");
        let key = Key::from_seed(&[3; 32]);
        let decision = r#"{"point":"file/open","action":"deny","path":"/a"}"#;
        let packets = [
            packet(0, decision),
            packet(5, decision),
            packet(5, "{"),
            packet(5, "x\u{1b}"),
            vec![1],
            packet(6, ""),
        ];
        let text = written(&dir, &packets, Some(&key.to_pem().unwrap()));
        let lines: Vec<&str> = text.lines().collect();
        let has = |line: usize, part: &str| assert!(lines[line].contains(part), "{}", lines[line]);
        has(1, "\"path\":\"/a\"");
        has(2, "\"missing\":5");
        has(3, "\"path\":\"/a\"");
        has(4, "no decision");
        has(5, "no decision");
        has(6, "without a header");
        has(7, "\"missing\":1");
        let report = verify(text.as_bytes(), Some(&key.public())).unwrap();
        assert_eq!((report.lines, report.decisions, report.missing), (9, 5, 6));
        assert_eq!(report.signature, Signature::Good(key.public().id()));
    }

    #[test]
    fn a_full_log_counts_and_ends() {
        let dir = Dir::new("full");
        let packets: Vec<_> = (0..100).map(|_| packet(0, r#"{"point":"file/open","path":"/a"}"#)).collect();
        let text = written_up_to(&dir, &packets, None, 2000);
        assert!(text.len() < 3000, "{}", text.len());
        let report = verify(text.as_bytes(), None).unwrap();
        // The line that tells of those that are missing is none itself.
        let kept = report.decisions;
        assert!(kept > 1 && kept + report.missing == 100, "{kept} and {}", report.missing);
    }

    #[test]
    fn a_log_goes_on_without_its_end_only() {
        let dir = Dir::new("resume");
        let (file, _new) = begin(&dir.log(), start()).unwrap();
        let error = begin(&dir.log(), start()).unwrap_err().to_string();
        assert!(error.contains("another policy writes to it"), "{error}");
        drop(file);
        let text = written(&dir, &[], None);
        let report = verify(text.as_bytes(), None).unwrap();
        assert_eq!((report.lines, report.resumed), (3, 1));
        let error = begin(&dir.log(), start()).unwrap_err().to_string();
        assert!(error.contains("has its end already"), "{error}");
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = Dir::new("kinds");
        let other = dir.0.join("other");
        std::fs::write(&other, "text\n").unwrap();
        std::os::unix::fs::symlink(&other, dir.0.join("link")).unwrap();
        for path in
            [other.clone(), dir.0.join("link"), "/dev/null".into(), dir.0.clone(), dir.0.join("no/log")]
        {
            assert!(begin(&path, start()).is_err(), "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "text\n");
    }
}
