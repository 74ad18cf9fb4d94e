//! The file of pages of a checkpoint's image, on a descriptor of the host.

use image::{PAGE, PageSink, PageSource};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file of pages.
pub struct PageFile {
    fd: Arc<OwnedFd>,
    end: AtomicU64,
}

impl PageFile {
    /// An empty file that is to be written.
    pub fn create(fd: Arc<OwnedFd>) -> PageFile {
        PageFile { fd, end: AtomicU64::new(0) }
    }

    /// A file that is to be read, as long as it is now.
    pub fn open(fd: Arc<OwnedFd>) -> io::Result<PageFile> {
        let size = u64::try_from(rustix::fs::fstat(&*fd)?.st_size).unwrap_or(0);
        Ok(PageFile { fd, end: AtomicU64::new(size) })
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
    fn read(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = rustix::io::pread(&*self.fd, &mut *buf, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = buf.get_mut(n..).unwrap_or_default();
            offset += n as u64;
        }
        Ok(())
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
        let read = PageFile::open(fd).unwrap();
        assert!(image::check(&extents, (0, 200 * PAGE), read.len()));
        let mut page = [9; PAGE as usize];
        read.read(100 * PAGE, &mut page).unwrap();
        assert_eq!(page, [2; PAGE as usize]);
        read.read(50 * PAGE, &mut page).unwrap();
        assert!(image::is_zero(&page));
        assert!(read.read(101 * PAGE, &mut page).is_err());
    }
}
