//! The file of pages of a checkpoint's image, on a descriptor of the host.

use image::{PAGE, PageSink, PageSource, Sums};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file of pages.
pub struct PageFile {
    fd: Arc<OwnedFd>,
    end: AtomicU64,
    /// Of what was written, if they are wanted.
    noted: Option<Mutex<Sums>>,
    /// Of what is read, if they are known.
    known: Option<Sums>,
}

impl PageFile {
    /// An empty file that is to be written.
    pub fn create(fd: Arc<OwnedFd>) -> PageFile {
        PageFile { fd, end: AtomicU64::new(0), noted: Some(Mutex::default()), known: None }
    }

    /// The same without checksums.
    pub fn create_without_sums(fd: Arc<OwnedFd>) -> PageFile {
        PageFile { noted: None, ..PageFile::create(fd) }
    }

    /// A file that is to be read, as long as it is now.
    pub fn open(fd: Arc<OwnedFd>) -> io::Result<PageFile> {
        let size = u64::try_from(rustix::fs::fstat(&*fd)?.st_size).unwrap_or(0);
        Ok(PageFile { fd, end: AtomicU64::new(size), noted: None, known: None })
    }

    /// The same with checksums, if there are any, with which whole pages that are read are compared. Pages that are mapped are
    /// not.
    pub fn checked(fd: Arc<OwnedFd>, sums: Option<Sums>) -> io::Result<PageFile> {
        Ok(PageFile { known: sums, ..PageFile::open(fd)? })
    }

    /// The same pages where they can be mapped to be executed: a copy in memory if the file system of this file is mounted
    /// noexec, which mmap(2) and mprotect(2) would refuse.
    pub fn executable(self) -> io::Result<PageFile> {
        use rustix::fs::{StatVfsMountFlags, fstatvfs};
        if fstatvfs(&*self.fd)?.f_flag.contains(StatVfsMountFlags::NOEXEC) { self.copied() } else { Ok(self) }
    }

    fn copied(self) -> io::Result<PageFile> {
        let fd = crate::memfd::create(c"pages", self.len(), false)
            .map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
        let mut buf = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.len() {
            let piece = buf.get_mut(..(self.len() - at).min(1 << 20) as usize).unwrap_or_default();
            self.read(at, piece)?;
            for (i, page) in piece.chunks(PAGE as usize).enumerate().filter(|(_, page)| !image::is_zero(page))
            {
                let offset = at + i as u64 * PAGE;
                crate::memfd::write_all(fd.as_fd(), page, offset)
                    .map_err(|e| io::Error::from_raw_os_error(e.raw()))?;
            }
            at += piece.len() as u64;
        }
        Ok(PageFile { fd: Arc::new(fd), ..self })
    }

    /// The checksums of all that was written, if it was made with them.
    pub fn sums(&self) -> Option<Sums> {
        let noted = self.noted.as_ref()?;
        Some(noted.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Reads all of it and compares.
    pub fn verify(&self) -> io::Result<()> {
        let mut buf = vec![0; 1 << 20];
        let mut at = 0;
        while at < self.len() {
            let piece = (self.len() - at).min(buf.len() as u64) as usize;
            self.read(at, buf.get_mut(..piece).unwrap_or_default())?;
            at += piece as u64;
        }
        Ok(())
    }

    /// The descriptor, to be mapped.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Makes the file as long as the room that was taken, so that all of it can be mapped. Call it when all is written.
    pub fn finish(&self) -> io::Result<u64> {
        let end = self.end.load(Ordering::Relaxed);
        rustix::fs::ftruncate(&*self.fd, end)?;
        Ok(end)
    }
}

impl PageSink for PageFile {
    fn reserve(&self, len: u64) -> io::Result<u64> {
        let beyond = || io::Error::from(io::ErrorKind::FileTooLarge);
        if !len.is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let grown = |end: u64| end.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        self.end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).map_err(|_| beyond())
    }

    fn write(&self, mut offset: u64, mut pages: &[u8]) -> io::Result<()> {
        if let Some(noted) = &self.noted {
            let sums = Sums::of(pages);
            noted.lock().unwrap_or_else(PoisonError::into_inner).note(offset, sums);
        }
        while !pages.is_empty() {
            let n = rustix::io::pwrite(&*self.fd, pages, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            pages = pages.get(n..).unwrap_or_default();
            offset += n as u64;
        }
        Ok(())
    }
}

impl PageSource for PageFile {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let n = rustix::io::pread(&*self.fd, rest, offset + done as u64)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += n;
        }
        match &self.known {
            Some(sums) if !sums.check(offset, buf) => {
                let why = format!("the pages of the image are damaged from {offset:#x} on");
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
            _ => Ok(()),
        }
    }

    fn len(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Runs;

    #[test]
    fn pages_come_back_and_gaps_are_holes() {
        let fd = Arc::new(crate::memfd::create(c"pages", 0, false).unwrap());
        let file = PageFile::create(fd.clone());
        let mut runs = Runs::new(&file);
        runs.put(7 * PAGE, &[1; PAGE as usize]).unwrap();
        runs.put(107 * PAGE, &[2; PAGE as usize]).unwrap();
        let extents = runs.finish();
        assert_eq!(extents.len(), 1);
        assert_eq!(file.finish().unwrap(), 101 * PAGE);
        assert_eq!(rustix::fs::fstat(&*fd).unwrap().st_blocks, 16);
        let read = PageFile::checked(fd.clone(), file.sums()).unwrap();
        assert!(image::check(&extents, (0, 200 * PAGE), read.len()));
        let mut page = [9; PAGE as usize];
        let copy = PageFile::checked(fd.clone(), file.sums()).unwrap().copied().unwrap();
        copy.verify().unwrap();
        assert_eq!((copy.len(), rustix::fs::fstat(&**copy.fd()).unwrap().st_blocks), (101 * PAGE, 16));
        read.read(100 * PAGE, &mut page).unwrap();
        assert_eq!(page, [2; PAGE as usize]);
        read.read(50 * PAGE, &mut page).unwrap();
        assert!(image::is_zero(&page));
        assert!(read.read(101 * PAGE, &mut page).is_err());
        read.verify().unwrap();
        rustix::io::pwrite(&*fd, &[5], 60 * PAGE).unwrap();
        assert_eq!(read.verify().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read.read(60 * PAGE, &mut page).is_err());
        read.read(61 * PAGE, &mut page).unwrap();
    }
}
