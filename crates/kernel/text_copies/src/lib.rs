//! The table of files that have a twin ([`platform::Twin`]).
//!
//! A file gets a twin when call sites of its text have raised signals in some processes. Processes that map the file
//! later need raise none. Only files of an image and of a root that is written directly have twins
//! ([`vfs::MapOps::image`]). Before each use the file's times and size are compared. A file that has changed is mapped
//! itself again. It may get another twin when it has not changed for some time ([`SETTLED`]).
//!
//! The address space knows where twins are mapped (`mm::Mm`). Locks: the table of files, a leaf. A checkpoint keeps
//! nothing; twins are made again.

#![forbid(unsafe_code)]

use abi::stat::Attr;
use abi::{libc, page_down, page_up};
use elf::{FileHeader, ProgramHeader, program_flags, program_kind};
use hostsys::fs as host;
use lock_order::Mutex;
use platform::{Context, Rewriter, Twin};
use rights::acl::AclKind;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vfs::OpenFile;
use vfs::dentry::Dentry;

/// In so many processes call sites of a file must have raised signals.
const PROCESSES: usize = 4;
/// Seconds since the last change of a file that gets a twin. What is written by a shared mapping shows in the times when a page is
/// written to for the first time, and where times are coarse two changes may have the same one.
const SETTLED: i64 = 10;
/// Largest segment that is copied.
const MAX_SEGMENT: u64 = 4 << 20;
/// All copies together.
const MAX_BYTES: usize = 24 << 20;
/// Files that are known at most, and call sites of each one.
const MAX_FILES: usize = 256;
const MAX_SITES: usize = 64;
/// A file that is mapped so often is popular; it is looked at again after as many mappings.
const POPULAR: u32 = 16;
/// Program headers that are looked at.
const MAX_HEADERS: usize = 64;

/// A file's twin.
pub struct Image {
    /// The twin.
    pub twin: Arc<dyn Twin>,
    /// The file; it stays open, so that its numbers are its own.
    pub file: Arc<OwnedFd>,
    /// Where the part begins in the file.
    pub offset: u64,
    /// Length of the part in bytes.
    pub len: u64,
    attr: Attr,
    _copied: Copied,
}

impl Image {
    /// The file is still what was copied.
    fn is_current(&self) -> bool {
        host::stat(&*self.file).is_ok_and(|a| same(&a, &self.attr))
    }

    /// The file cannot be found any more, or it is another one.
    fn is_gone(&self) -> bool {
        host::stat(&*self.file).map_or(true, |a| a.nlink == 0 || !same(&a, &self.attr))
    }
}

/// Counts the bytes of a twin among all of them.
struct Copied {
    bytes: Arc<AtomicUsize>,
    size: usize,
}

impl Copied {
    /// `None` when there are too many.
    fn new(bytes: &Arc<AtomicUsize>, size: usize) -> Option<Copied> {
        let more = |n: usize| n.checked_add(size).filter(|n| *n <= MAX_BYTES);
        bytes.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Copied { bytes: bytes.clone(), size })
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.size, Relaxed);
    }
}

fn same(a: &Attr, b: &Attr) -> bool {
    (a.size, a.mtime, a.ctime) == (b.size, b.mtime, b.ctime)
}

enum State {
    /// Has no twin yet: processes in which call sites raised signals, and the sites' offsets in the file.
    Seen(Vec<(i32, u64)>, BTreeSet<u64>),
    Ready(Arc<Image>),
    /// Cannot have one, or one is just being made.
    Without,
}

/// The twins of a kernel.
#[derive(Default)]
pub struct Twins {
    /// All files, by the host's numbers.
    files: Mutex<HashMap<(u64, u64), State>>,
    /// How often files were mapped, by the same numbers.
    uses: Mutex<HashMap<(u64, u64), u32>>,
    /// How many twins there are, and their size.
    count: AtomicUsize,
    bytes: Arc<AtomicUsize>,
}

impl Twins {
    /// The twin to map in place of this part of a file, privately, readable and executable.
    pub fn find(&self, file: &OpenFile, offset: u64, len: u64) -> Option<Arc<Image>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let id = file.ops.image()?;
        let image = match self.files.lock().get(&id)? {
            State::Ready(i) if (i.offset, i.len) == (offset, len) => i.clone(),
            _ => return None,
        };
        if !image.is_current() {
            self.forget(id, &image);
            return None;
        }
        Some(image)
    }

    /// A program maps a file privately, by this descriptor. Of one that is mapped often and that everybody may read, all
    /// processes keep the descriptor. `all_see` as for [`Twins::note`].
    pub fn used(
        &self,
        ctx: &mut dyn Context,
        file: &OpenFile,
        fd: &Arc<OwnedFd>,
        all_see: impl FnOnce() -> bool,
    ) {
        let Some(id) = file.ops.image() else { return };
        {
            let mut uses = self.uses.lock();
            if uses.len() >= MAX_FILES && !uses.contains_key(&id) {
                uses.clear();
            }
            let n = uses.entry(id).or_default();
            *n = n.wrapping_add(1);
            if !n.is_multiple_of(POPULAR) {
                return;
            }
        }
        let reads_only =
            || host::status_flags(&**fd).is_ok_and(|flags| flags & libc::O_ACCMODE == libc::O_RDONLY);
        if all_see()
            && is_public(file)
            && is_settled(file)
            && reads_only()
            && let Some(rewriter) = ctx.rewriter()
        {
            rewriter.share(fd);
        }
    }

    /// The file of this twin is another one now.
    fn forget(&self, id: (u64, u64), image: &Arc<Image>) {
        let mut files = self.files.lock();
        if matches!(files.get(&id), Some(State::Ready(known)) if Arc::ptr_eq(known, image)) {
            files.remove(&id);
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// Lets go of files that were removed or changed, which would stay on the disk for their twins.
    pub fn release_gone(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let ready: Vec<_> = {
            let files = self.files.lock();
            let ready = files.iter().filter_map(|(id, state)| match state {
                State::Ready(image) => Some((*id, image.clone())),
                _ => None,
            });
            ready.collect()
        };
        ready.iter().filter(|(_, image)| image.is_gone()).for_each(|(id, image)| self.forget(*id, image));
    }

    /// A call site at this offset of a file, the address after its `syscall`, has raised a signal in a process that does not map a twin.
    /// `all_see`: the process sees the same files as most others.
    pub fn note(&self, ctx: &mut dyn Context, file: &OpenFile, offset: u64, all_see: bool) {
        let Some(id) = file.ops.image() else { return };
        let sites = {
            let mut files = self.files.lock();
            if files.len() >= MAX_FILES && !files.contains_key(&id) {
                return;
            }
            let state = files.entry(id).or_insert_with(|| State::Seen(Vec::new(), BTreeSet::new()));
            let (processes, sites) = match state {
                State::Seen(p, s) => (p, s),
                State::Ready(image) => {
                    let image = image.clone();
                    drop(files);
                    if let Some(rip) = offset.checked_sub(image.offset).filter(|o| *o < image.len) {
                        image.twin.rewrite(rip);
                    }
                    return;
                }
                State::Without => return,
            };
            if sites.len() < MAX_SITES {
                sites.insert(offset);
            }
            // A process of the host may serve several programs.
            let space = ctx.space();
            let program = (space.host_pid(), space.before().time);
            if !processes.contains(&program) {
                processes.push(program);
            }
            if processes.len() < PROCESSES {
                return;
            }
            let sites = std::mem::take(sites);
            *state = State::Without;
            sites
        };
        if !is_settled(file) {
            self.files.lock().insert(id, State::Seen(Vec::new(), sites));
            return;
        }
        let Some(rewriter) = ctx.rewriter() else { return };
        if let Some(image) = self.make(rewriter, file, &sites, all_see && is_public(file)) {
            self.files.lock().insert(id, State::Ready(Arc::new(image)));
            self.count.fetch_add(1, Relaxed);
        }
    }

    fn make(
        &self,
        rewriter: &dyn Rewriter,
        file: &OpenFile,
        sites: &BTreeSet<u64>,
        public: bool,
    ) -> Option<Image> {
        let fd = file.ops.image_fd()?;
        let attr = host::stat(&*fd).ok()?;
        let read = |buf: &mut [u8], off: u64| host::pread_full(&*fd, buf, off).ok();
        let mut head = [0; size_of::<FileHeader>()];
        (read(&mut head, 0)? == head.len()).then_some(())?;
        let (at, len) = headers(&head)?;
        let mut table = vec![0; len];
        (read(&mut table, at)? == table.len()).then_some(())?;
        let (offset, len, end) = segment(&table, sites)?;
        if len > MAX_SEGMENT {
            return None;
        }
        let size = usize::try_from(len).ok()?;
        let copied = Copied::new(&self.bytes, size)?;
        let twin = (|| {
            let mut text = vec![0; size];
            // The file may end before its last page does.
            (read(&mut text, offset)? as u64 >= end - offset).then_some(())?;
            // The file did not change meanwhile.
            same(&host::stat(&*fd).ok()?, &attr).then_some(())?;
            let sites: Vec<u64> =
                sites.iter().filter_map(|s| s.checked_sub(offset)).filter(|s| *s < len).collect();
            rewriter.make_twin(&text, end - offset, &sites, public)
        })();
        Some(Image { twin: twin?, file: fd, offset, len, attr, _copied: copied })
    }
}

/// The file has not changed for some time.
fn is_settled(file: &OpenFile) -> bool {
    let Some(fd) = file.ops.image_fd() else { return false };
    host::stat(&*fd).is_ok_and(|a| a.ctime.sec.saturating_add(SETTLED) < host::now().sec)
}

/// Everybody may read the file and come by it.
fn is_public(file: &OpenFile) -> bool {
    const READ: u32 = 0o004;
    const SEARCH: u32 = 0o001;
    let Some(path) = &file.path else { return false };
    // A list may take from a single user what all others may.
    let no_list =
        |d: &Dentry| d.inode.as_acls().is_none_or(|acls| matches!(acls.acl(AclKind::Access), Ok(None)));
    let may = |d: &Dentry, bits: u32| d.inode.perm().is_ok_and(|p| p.mode & bits == bits) && no_list(d);
    let (mut mount, mut at) = (path.mount.clone(), path.dentry.clone());
    if !may(&at, READ) {
        return false;
    }
    loop {
        if Arc::ptr_eq(&at, &mount.root) {
            // What is covered is not on the way.
            let Some(below) = mount.mountpoint() else { return true };
            (mount, at) = (below.mount, below.dentry);
            continue;
        }
        let Some(dir) = at.parent() else { return true };
        if !may(&dir, SEARCH) {
            return false;
        }
        at = dir;
    }
}

/// Where an ELF file has its program headers, and how many bytes.
fn headers(head: &[u8]) -> Option<(u64, usize)> {
    let header = FileHeader::read(head).filter(|header| usize::from(header.phnum) <= MAX_HEADERS)?;
    Some((header.phoff, header.program_table_len()?))
}

/// The pages of the executable segment with the sites (start, length), and where its own bytes end. `None` when another segment has a
/// part of its last page.
fn segment(table: &[u8], sites: &BTreeSet<u64>) -> Option<(u64, u64, u64)> {
    let mut loads = Vec::new();
    for h in elf::entries::<ProgramHeader>(table).filter(|h| h.kind == program_kind::LOAD) {
        let end = h.offset.checked_add(h.filesz).filter(|e| *e < 1 << 40)?;
        loads.push((h.flags, h.offset, end));
    }
    let hit = |&&(flags, start, end): &&(u32, u64, u64)| {
        flags & (program_flags::X | program_flags::W) == program_flags::X
            && sites.range(start..end.max(start)).next().is_some()
    };
    let &(_, start, end) = loads.iter().find(hit)?;
    let last = page_up(end)?;
    let claimed = |&(_, s, e): &(u32, u64, u64)| s < last && e > end && (s, e) != (start, end);
    if loads.iter().any(claimed) {
        return None;
    }
    let start = page_down(start);
    Some((start, last - start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: u32, offset: u64, size: u64) -> Vec<u8> {
        let mut h = vec![0; size_of::<ProgramHeader>()];
        h[0] = 1;
        h[4..8].copy_from_slice(&flags.to_le_bytes());
        h[8..16].copy_from_slice(&offset.to_le_bytes());
        h[32..40].copy_from_slice(&size.to_le_bytes());
        h
    }

    #[test]
    fn segments() {
        let sites = |s: u64| BTreeSet::from([s]);
        let t = [load(4, 0, 0x800), load(5, 0x1000, 0x1234), load(4, 0x3000, 0x100)].concat();
        assert_eq!(segment(&t, &sites(0x1100)), Some((0x1000, 0x2000, 0x2234)));
        assert_eq!(segment(&t, &sites(0x100)), None);
        assert_eq!(segment(&t, &sites(0x2234)), None);
        // The data follows in the same page of the file.
        let t = [load(5, 0, 0x1234), load(6, 0x1234, 0x100)].concat();
        assert_eq!(segment(&t, &sites(0x1100)), None);
        let t = [load(5, 0, 0x1234), load(6, 0x1f00, 0x400)].concat();
        assert_eq!(segment(&t, &sites(0x1100)), None);
        // Headers that overflow.
        assert_eq!(segment(&load(5, u64::MAX - 4, 16), &sites(0x1100)), None);
        // Writable text.
        assert_eq!(segment(&load(7, 0x1000, 0x1234), &sites(0x1100)), None);
    }

    #[test]
    fn elf_headers() {
        let mut h = [0; 64];
        h[..6].copy_from_slice(b"\x7fELF\x02\x01");
        h[32] = 64;
        h[54] = size_of::<ProgramHeader>() as u8;
        h[56] = 9;
        assert_eq!(headers(&h), Some((64, 9 * 56)));
        h[56] = 200;
        assert_eq!(headers(&h), None);
        assert_eq!(headers(&[0; 64]), None);
    }
}
