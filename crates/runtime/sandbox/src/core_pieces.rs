//! A core file on its way out of the sandbox: pieces through a pipe. The kernel inside gets no file of the host.
//!
//! A piece is an offset (8 bytes), a length (4) and as many bytes. One without bytes ends the file, at its offset. A guest may
//! have taken over the kernel inside, so all of it is checked; that the file becomes long is for the user to stop.

use rustix::event::{PollFd, PollFlags, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// Longest piece.
const MAX_PIECE: usize = 1 << 20;
/// Longest file: the address space.
const MAX_FILE: u64 = 1 << 47;

/// Writes what comes to `file`, in place of what it held, until its end comes or `stop` is readable.
pub(crate) fn receive(from: &mut File, file: &File, stop: BorrowedFd<'_>) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut first = true;
    loop {
        let mut head = [0; 12];
        fill(from, &mut head, stop)?;
        let [offset @ .., l0, l1, l2, l3] = head;
        let (offset, len) = (u64::from_le_bytes(offset), u32::from_le_bytes([l0, l1, l2, l3]) as usize);
        if len > MAX_PIECE || offset > MAX_FILE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the sandbox sends what is no core file"));
        }
        if std::mem::take(&mut first) {
            file.set_len(0)?;
        }
        if len == 0 {
            return file.set_len(offset);
        }
        bytes.resize(len, 0);
        fill(from, &mut bytes, stop)?;
        file.write_all_at(&bytes, offset)?;
    }
}

/// Reads as many bytes. The sandbox may stop in the middle of them.
fn fill(from: &mut File, bytes: &mut [u8], stop: BorrowedFd<'_>) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let mut fds = [PollFd::new(&*from, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        if !fds[1].revents().is_empty() {
            return Err(io::Error::other("interrupted"));
        }
        match from.read(rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    fn received(stream: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let memfd = || File::from(rustix::fs::memfd_create("core", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let (file, (read, write)) = (memfd(), rustix::pipe::pipe().unwrap());
        file.write_all_at(b"what was there before", 0).unwrap();
        File::from(write).write_all(stream).unwrap();
        let (never, _open) = rustix::pipe::pipe().unwrap();
        let done = receive(&mut File::from(read), &file, never.as_fd());
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (done, bytes)
    }

    fn piece(offset: u64, bytes: &[u8]) -> Vec<u8> {
        [&offset.to_le_bytes(), &(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
    }

    #[test]
    fn pieces_become_a_file() {
        let all = [piece(2, b"cd"), piece(0, b"ab"), piece(6, b"")].concat();
        let (done, bytes) = received(&all);
        assert!(done.is_ok() && bytes == b"abcd\0\0", "{done:?} {bytes:?}");
        for cut in 0..all.len() {
            let error = received(&all[..cut]).0.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
    }

    #[test]
    fn a_sandbox_that_stops_does_not_hold_the_user_up() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut writer = File::from(write);
        writer.write_all(&piece(0, b"whole")[..14]).unwrap();
        let (wanted, stop) = rustix::pipe::pipe().unwrap();
        let file = File::from(rustix::fs::memfd_create("core", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        let error = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&mut File::from(read), &file, wanted.as_fd()));
            drop(stop);
            receiving.join().unwrap().unwrap_err()
        });
        assert_eq!(error.to_string(), "interrupted");
        drop(writer);
    }

    #[test]
    fn nonsense_is_refused() {
        let long = [&[0; 8][..], &u32::MAX.to_le_bytes()].concat();
        for stream in [piece(u64::MAX, b""), piece(1 << 60, b"x"), long] {
            let (done, bytes) = received(&stream);
            assert_eq!(done.unwrap_err().kind(), io::ErrorKind::InvalidData);
            assert_eq!(bytes, b"what was there before");
        }
    }
}
