//! The content of a file in an image.
//!
//! Holes stay holes, and pages of zeros that were written stay pages. Pages that fallocate(2) reserved behind the end of
//! the file are not kept.

use super::{
    Content, HEAP_MAX, MAX_SIZE, Need, SEAL_EXEC, SEAL_FUTURE_WRITE, SEAL_GROW, SEAL_SEAL, SEAL_SHRINK,
    SEAL_WRITE, Store,
};
use crate::storage::Storage;
use abi::{Errno, PAGE_SIZE as PAGE, Result};
use hostsys::fs as host;
use image::{Extent, PageSink, PageSource, Runs};
use vfs::Caller;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// The content of a regular file that is not that of the layers any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContentState {
    /// Size in bytes.
    pub size: u64,
    /// F_SEAL_* of fcntl(2).
    pub seals: u32,
    /// It can be sealed.
    pub sealable: bool,
    /// Its pages, by offset.
    pub pages: Vec<Extent>,
}

impl Content {
    /// Puts the pages into an image; `None` for the unchanged content of a lower file.
    pub(crate) fn state(&self, cx: &dyn Caller, pages: &dyn PageSink) -> Result<Option<ContentState>> {
        if self.lower().is_some() {
            return Ok(None);
        }
        let mut runs = Runs::exact(pages);
        let mut buf = vec![0; PIECE.min(self.size.next_multiple_of(PAGE)) as usize];
        let mut at = 0;
        while at < self.size {
            let data = match self.seek(cx, at, true) {
                Ok(data) => data / PAGE * PAGE,
                Err(Errno::ENXIO) => break,
                Err(e) => return Err(e),
            };
            at = at.max(data);
            let hole = self.seek(cx, at, false)?.min(self.size);
            while at < hole {
                let len = (hole - at).min(PIECE);
                let whole = buf.get_mut(..len.next_multiple_of(PAGE) as usize).ok_or(Errno::EIO)?;
                let (piece, rest) = whole.split_at_mut(len as usize);
                if self.read(cx, piece, at)? != piece.len() {
                    return Err(Errno::EIO);
                }
                rest.fill(0);
                runs.put(at, whole).map_err(Errno::from)?;
                at += whole.len() as u64;
            }
        }
        let (size, seals, sealable) = (self.size, self.seals, self.sealable);
        Ok(Some(ContentState { size, seals, sealable, pages: runs.finish() }))
    }

    /// Fills an empty file. EINVAL when the state is not sound.
    pub(crate) fn restore(
        &mut self,
        cx: &dyn Caller,
        storage: &Storage,
        saved: &ContentState,
        pages: &dyn PageSource,
    ) -> Result<()> {
        let all = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE | SEAL_EXEC;
        let end = saved.size.checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)?;
        let sound = saved.size <= MAX_SIZE
            && saved.seals & !all == 0
            && image::check(&saved.pages, (0, end), pages.len());
        if !sound || self.size != 0 || !matches!(&self.store, Store::Heap(pages) if pages.is_empty()) {
            return Err(Errno::EINVAL);
        }
        (self.sealable, self.seals) = (saved.sealable, 0);
        if saved.size > HEAP_MAX {
            self.own(cx, storage, Need::Large)?;
        }
        self.truncate(cx, storage, saved.size)?;
        let mut buf = vec![0; PIECE as usize];
        for e in &saved.pages {
            let mut done = 0;
            while done < e.len {
                let piece = buf.get_mut(..(e.len - done).min(PIECE) as usize).ok_or(Errno::EIO)?;
                pages.read(e.offset + done, piece).map_err(Errno::from)?;
                let at = e.at + done;
                done += piece.len() as u64;
                let n = (saved.size - at).min(piece.len() as u64) as usize;
                let mut part = piece.get(..n).unwrap_or_default();
                let mut from = at;
                while !part.is_empty() {
                    let (wrote, to) = self.write(cx, storage, part, Some(from))?;
                    part = part.get(wrote..).filter(|_| wrote > 0).ok_or(Errno::ENOSPC)?;
                    from = to;
                }
            }
        }
        self.seals = saved.seals;
        let host_seals = self.seals & (SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE);
        if let Some(m) = self.mem().filter(|_| self.sealable && host_seals != 0) {
            host::add_seals(&*m.rw()?, host_seals)?;
        }
        Ok(())
    }
}
