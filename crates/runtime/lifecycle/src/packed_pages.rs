//! Compressed pages of an image, by several threads: [`image::packed`] on files.

use crate::{Error, Result};
use image::is_zero;
use image::packed::{Entry, HEAD, Layout, pack, unpack};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most threads.
const THREADS: u64 = 16;

/// Does something for each frame, in several threads; the first error.
fn for_each(layout: Layout, work: impl Fn(u64) -> io::Result<()> + Sync) -> io::Result<()> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let run = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= layout.frames() {
                return;
            }
            if let Err(error) = work(n) {
                next.store(layout.frames(), Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..processors.min(THREADS).min(layout.frames()) {
            // Without one more thread the others do its work.
            let _ = std::thread::Builder::new().name("pages".into()).spawn_scoped(scope, run);
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Writes the pages of a file to another one, which is empty.
pub(crate) fn write_packed(pages: &File, to: &File) -> io::Result<()> {
    let layout = Layout::of(pages.metadata()?.len());
    let end = AtomicU64::new((HEAD + layout.index_len()) as u64);
    let index = Mutex::new(vec![Entry::default(); layout.frames() as usize]);
    for_each(layout, |n| {
        let (at, len) = layout.place(n);
        let mut frame = vec![0; len];
        pages.read_exact_at(&mut frame, at)?;
        let packed = pack(&frame);
        let offset = end.fetch_add(packed.len() as u64, Ordering::Relaxed);
        to.write_all_at(&packed, offset)?;
        let entry = Entry { offset, len: packed.len() as u32, sum: crc32fast::hash(&packed) };
        if let Some(place) = index.lock().unwrap_or_else(PoisonError::into_inner).get_mut(n as usize) {
            *place = entry;
        }
        Ok(())
    })?;
    let index = index.into_inner().unwrap_or_else(PoisonError::into_inner);
    to.write_all_at(&layout.encode(&index), 0)
}

/// A file without a name that holds the pages, which are to have this length.
pub(crate) fn read_packed(packed: &File, dir: &Path, length: u64) -> Result<File> {
    let wrong = |why: String| Error::from(format!("{}: the compressed pages: {why}", dir.display()));
    let broken = |error: io::Error| wrong(error.to_string());
    let all = packed.metadata().map_err(broken)?.len();
    let mut head = [0; HEAD];
    packed.read_exact_at(&mut head, 0).map_err(broken)?;
    let layout = Layout::decode(&head, all).map_err(wrong)?;
    if layout.length != length {
        return Err(wrong(format!("they are {} bytes, and were {length}", layout.length)));
    }
    let mut index = vec![0; layout.index_len()];
    packed.read_exact_at(&mut index, HEAD as u64).map_err(broken)?;
    let index = layout.index(&index, all).map_err(wrong)?;
    let to = without_name(dir).map_err(broken)?;
    to.set_len(layout.length).map_err(broken)?;
    let damaged = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    for_each(layout, |n| {
        let Some(entry) = index.get(n as usize).filter(|entry| entry.len > 0) else { return Ok(()) };
        let (at, len) = layout.place(n);
        let (mut bytes, mut frame) = (vec![0; entry.len as usize], vec![0; len]);
        packed.read_exact_at(&mut bytes, entry.offset)?;
        unpack(entry, &bytes, &mut frame).map_err(damaged)?;
        write_pages(&to, &frame, at)
    })
    .map_err(broken)?;
    Ok(to)
}

/// Writes pages, and leaves holes for those of zeros.
fn write_pages(to: &File, frame: &[u8], at: u64) -> io::Result<()> {
    let page = image::PAGE as usize;
    let mut from = 0;
    while from < frame.len() {
        let rest = frame.get(from..).unwrap_or_default();
        let stretch = |zero| rest.chunks(page).take_while(|p| is_zero(p) == zero).count() * page;
        let zeros = stretch(true).min(rest.len());
        if zeros > 0 {
            from += zeros;
            continue;
        }
        let len = stretch(false).min(rest.len());
        to.write_all_at(rest.get(..len).unwrap_or_default(), at + from as u64)?;
        from += len;
    }
    Ok(())
}

/// A file without a name in a directory, or where that cannot be in $TMPDIR, by default /var/tmp. Never in memory by itself: the
/// pages of an image can be many more than its bytes.
pub(crate) fn without_name(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let open = |dir: &Path| openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR);
    if let Ok(file) = open(dir) {
        return Ok(file.into());
    }
    let other = std::env::var_os("TMPDIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let other = other.unwrap_or_else(|| "/var/tmp".into());
    if let Ok(file) = open(&other) {
        return Ok(file.into());
    }
    let mut random = [0; 8];
    hostsys::fs::random(&mut random);
    let path = other.join(format!("ringfence-{:x}", u64::from_le_bytes(random)));
    let made = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path);
    let said = |error| format!("no file can be made in {} or {}: {error}", dir.display(), other.display());
    let file = made.map_err(|error| io::Error::other(said(error)))?;
    std::fs::remove_file(path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn pages_come_back_and_zeros_take_no_room() {
        let dir = StateDir::new("packed");
        let pages = without_name(&dir.0).unwrap();
        let size = 40 << 20;
        pages.set_len(size).unwrap();
        for n in 0..200u64 {
            pages.write_all_at(&[n as u8 + 1; 4096], (n * 7 % 5000) * 8192 % size).unwrap();
        }
        let packed = without_name(&dir.0).unwrap();
        write_packed(&pages, &packed).unwrap();
        let error = read_packed(&packed, &dir.0, size - 4096).unwrap_err();
        assert!(error.message().contains("they are 41943040 bytes, and were 41938944"), "{error}");
        let back = read_packed(&packed, &dir.0, size).unwrap();
        let all = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert!(all(&pages) == all(&back));
        assert!(back.metadata().unwrap().blocks() * 512 <= 4 << 20);
        assert!(packed.metadata().unwrap().len() < 1 << 20);
        packed.write_all_at(&[1], packed.metadata().unwrap().len() - 1).unwrap();
        packed.write_all_at(&[2], packed.metadata().unwrap().len() - 1).unwrap();
        let error = read_packed(&packed, &dir.0, size).unwrap_err();
        assert!(error.message().contains("a frame has changed"));
    }

    #[test]
    fn a_file_without_a_name_is_on_a_disk() {
        let file = without_name("/proc".as_ref()).unwrap();
        file.write_all_at(b"x", 0).unwrap();
        let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert!(!place.to_string_lossy().contains("memfd"), "{}", place.display());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    }
}
