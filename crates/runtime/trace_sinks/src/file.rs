//! `file` sinks: one line of JSON for each message, in a file that is rotated by size.

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::{RecvFlags, ReturnFlags, recvmsg};
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use trace_wire::packet::{self, MAX_PACKET};

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
    size: u64,
}

impl Rotated {
    fn open(path: PathBuf, max_size: u64, max_files: u32) -> io::Result<Self> {
        let file = open_at_end(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { path, max_size, max_files, file, size })
    }

    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.max_size > 0 && self.size > 0 && self.size + line.len() as u64 > self.max_size {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        if self.max_files == 0 {
            self.file.set_len(0)?;
            self.size = 0;
            return Ok(());
        }
        for number in (1..self.max_files).rev() {
            let _ = fs::rename(self.older(number), self.older(number + 1));
        }
        fs::rename(&self.path, self.older(1))?;
        self.file = open_at_end(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

/// Writes the packets of a socket down until its other end is closed. What cannot be written is counted in the log.
pub fn serve(socket: &OwnedFd, path: PathBuf, max_size: u64, max_files: u32) -> io::Result<()> {
    let mut file = Rotated::open(path, max_size, max_files)?;
    let mut reader = Reader::new();
    while let Some(packet) = reader.next(socket)? {
        if let Err(error) = file.write(&line(packet)) {
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

/// A message as a line: its type, how many points were dropped so far, and its fields.
pub fn line(packet: &[u8]) -> String {
    let told = packet::parse(packet).and_then(|parsed| {
        let message = packet::to_json(&*parsed.message)?;
        Ok(format!(
            "{{\"type\": \"{:?}\", \"dropped\": {}, \"message\": {message}}}\n",
            parsed.kind, parsed.dropped
        ))
    });
    told.unwrap_or_else(|error| format!("{}\n", serde_json::json!({ "error": error })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use trace_wire::MessageType;
    use trace_wire::messages::syscall::Close;

    fn close(fd: i64) -> Vec<u8> {
        let mut message = Close::new();
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
        serve(&ours, path.clone(), 150, 2).unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(
            read("events.1"),
            "{\"type\": \"MESSAGE_SYSCALL_CLOSE\", \"dropped\": 0, \"message\": {\"fd\": \"1\"}}\n\
             {\"error\":\"a packet without a header\"}\n"
        );
        assert_eq!(read("events").lines().count(), 2);
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
