//! `file` sinks: one line of JSON for each message, in a file that is rotated by size. Several sandboxes may have the
//! same file.

use crate::view::View;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::net::{RecvFlags, ReturnFlags, recvmsg};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trace_wire::packet::MAX_PACKET;

/// Fails when the file cannot be written.
pub fn check(path: &Path) -> io::Result<()> {
    open_at_end(path).map(drop)
}

/// A regular file, made if it is not there. A link is not followed: others may write to the directory.
fn open_at_end(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NONBLOCK;
    let file = open(path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file.into())
}

/// A file with older ones beside it: `PATH.1` is the last one before `PATH`.
struct Rotated {
    path: PathBuf,
    max_size: u64,
    max_files: u32,
    file: File,
}

impl Rotated {
    fn open(path: PathBuf, max_size: u64, max_files: u32) -> io::Result<Self> {
        let file = open_at_end(&path)?;
        Ok(Self { path, max_size, max_files, file })
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        // The size is not kept: others may write to the file.
        if self.max_size > 0 && self.is_full(line)? {
            self.make_room(line)?;
        }
        self.file.write_all(line.as_bytes())
    }

    fn is_full(&self, line: &str) -> io::Result<bool> {
        let size = self.file.metadata()?.len();
        Ok(size > 0 && size + line.len() as u64 > self.max_size)
    }

    /// One writer at a time renames. The lock is the file's own, so it is looked at anew once the lock is held.
    fn make_room(&mut self, line: &str) -> io::Result<()> {
        loop {
            rustix::io::retry_on_intr(|| flock(&self.file, FlockOperation::LockExclusive))?;
            let renamed = match open_at_end(&self.path) {
                Ok(now) if !same_file(&now, &self.file)? => Some(now),
                _ => None,
            };
            if let Some(now) = renamed {
                // That frees the lock, too.
                self.file = now;
                if !self.is_full(line)? {
                    return Ok(());
                }
                continue;
            }
            let full = self.is_full(line);
            let done = if full? { self.rotate() } else { Ok(()) };
            let _ = flock(&self.file, FlockOperation::Unlock);
            return done;
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.max_files == 0 {
            return self.file.set_len(0);
        }
        for number in (1..self.max_files).rev() {
            let _ = fs::rename(self.older(number), self.older(number + 1));
        }
        fs::rename(&self.path, self.older(1))?;
        self.file = open_at_end(&self.path)?;
        Ok(())
    }
}

fn same_file(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (fstat(a)?, fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Writes the packets of a socket down until its other end is closed. What cannot be written is counted in the log.
pub fn serve(socket: &OwnedFd, path: PathBuf, max_size: u64, max_files: u32, view: &View) -> io::Result<()> {
    let mut file = Rotated::open(path, max_size, max_files)?;
    let mut reader = Reader::new();
    while let Some(packet) = reader.next(socket)? {
        if let Err(error) = file.write(&line(packet, view)) {
            log::warn!("trace file {}: {error}", file.path.display());
        }
    }
    Ok(())
}

/// Receives packets.
pub struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Without packets yet.
    pub fn new() -> Self {
        Self { buffer: vec![0; MAX_PACKET] }
    }

    /// Waits for the next packet; `None` at the end. One that is too long is cut, and is no message then.
    pub fn next(&mut self, socket: &OwnedFd) -> io::Result<Option<&[u8]>> {
        let received = rustix::io::retry_on_intr(|| {
            let mut buffers = [IoSliceMut::new(&mut self.buffer)];
            let mut ancillary = rustix::net::RecvAncillaryBuffer::default();
            recvmsg(socket, &mut buffers, &mut ancillary, RecvFlags::empty())
        });
        let received = match received {
            Ok(received) => received,
            // Told once, after the other end has closed.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if received.bytes == 0 {
            return Ok(None);
        }
        let whole = !received.flags.contains(ReturnFlags::TRUNC);
        Ok(Some(if whole { self.buffer.get(..received.bytes).unwrap_or_default() } else { &[] }))
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

/// A packet as a line of JSON.
pub fn line(packet: &[u8], view: &View) -> String {
    let told = view.read(packet).map(|told| told.line());
    told.unwrap_or_else(|error| format!("{}\n", serde_json::json!({ "error": error })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use trace_wire::messages::syscall::Close;
    use trace_wire::{MessageType, packet};

    fn close(fd: i64) -> Vec<u8> {
        let mut message = Close::new();
        message.sysno = 3;
        message.fd = fd;
        let mut packet = Vec::new();
        packet::append(&mut packet, MessageType::MESSAGE_SYSCALL_CLOSE, &message);
        packet
    }

    #[test]
    fn messages_become_lines_in_rotated_files() {
        let dir = std::env::temp_dir().join(format!("ringfence-file-sink-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("events");
        let (kernel, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for packet in [close(1), b"garbage".to_vec(), close(3), close(4)] {
            send(&kernel, &packet, SendFlags::NOSIGNAL).unwrap();
        }
        drop(kernel);
        serve(&ours, path.clone(), 280, 2, &crate::view::testing()).unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            read("events.1"),
            "{\"type\": \"MESSAGE_SYSCALL_CLOSE\", \"point\": \"syscall/close/enter\", \"dropped\": 0, \
             \"message\": {\"sysno\": \"3\", \"fd\": \"1\", \"fd_path\": \"\"}}\n\
             {\"error\":\"a packet without a header\"}\n"
        );
        assert_eq!(read("events").lines().count(), 2);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_of_two_writers_is_rotated_once() {
        let dir = std::env::temp_dir().join(format!("ringfence-file-shared-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let open = || Rotated::open(dir.join("events"), 100, 50).unwrap();
        let writers = [open(), open(), open()].map(|mut file| {
            std::thread::spawn(move || (0..100).for_each(|i| file.write(&format!("{i:09}\n")).unwrap()))
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
        assert_eq!(texts.iter().map(|text| text.lines().count()).sum::<usize>(), 300);
        assert!(texts.iter().flat_map(|text| text.lines()).all(|line| line.len() == 9), "{texts:?}");
        // Two may find room for a line at the same moment.
        assert!(texts.iter().all(|text| text.len() <= 120), "{texts:?}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_regular_files_are_written() {
        let dir = std::env::temp_dir().join(format!("ringfence-file-kinds-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
        for other in [dir.join("link"), "/dev/null".into(), dir.clone(), dir.join("no/file")] {
            assert!(check(&other).is_err(), "{}", other.display());
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
