//! Rewriting of a program's call sites, so that its system calls reach the kernel without a signal.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of memory that [`Rewriter::add_area`] takes, page aligned.
pub const REWRITE_AREA: u64 = 0x1_0000;

/// What became of [`Rewriter::rewrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The site now calls without a signal; this many bytes at this address differ from the file's.
    Done {
        /// First changed byte.
        addr: u64,
        /// How many.
        len: u64,
    },
    /// It stays as it is.
    Refused,
    /// There is no room within two gigabytes of it: [`Rewriter::add_area`] first. The area may start at these addresses
    /// only, best first; if there are none, anywhere in reach.
    NeedsArea(Vec<u64>),
}

/// A copy in memory of a file's text in which the platform rewrites call sites for every process that maps it, all of it and in
/// place of the file, privately, readable and executable. Offsets count from its start.
pub trait Twin: Send + Sync {
    /// What to map. Only the platform can write it; this descriptor cannot.
    fn fd(&self) -> &Arc<OwnedFd>;
    /// Where rewritten sites lead, in the last page; nothing was there in the file. That page differs from the file's in nothing else.
    fn trampolines(&self) -> std::ops::Range<u64>;
    /// Rewrites the call site before this offset, for all at once. True when it has been, now or before. Anybody may name
    /// any offset.
    fn rewrite(&self, rip: u64) -> bool;
    /// The program's own offset for one inside a trampoline; any other stays the same.
    fn own_offset(&self, offset: u64) -> u64;
    /// Puts the file's bytes in place of what was rewritten into these bytes of a mapping, read at that offset.
    fn show_own(&self, offset: u64, bytes: &mut [u8]);
}

/// Rewrites call sites of one address space. Of those platforms that can; see [`Context::rewriter`](crate::Context::rewriter).
pub trait Rewriter {
    /// After an exit: a call site of the guest (the address after its `syscall`) for which [`Rewriter::rewrite`] would
    /// pay. Each one is named only once.
    fn hot_site(&mut self) -> Option<u64>;
    /// The call site of the system call that is being served (the address after its `syscall`).
    fn called_from(&self) -> u64;
    /// Replaces instructions at a call site by a jump, so that calls from there are cheaper. The caller vouches that the
    /// 16 bytes on either side of `rip` are in one private file mapping that the guest can read and execute but never
    /// could write, and keeps everybody from changing mappings meanwhile. The bytes stay valid targets of jumps.
    fn rewrite(&mut self, rip: u64) -> Rewrite;
    /// Gives [`REWRITE_AREA`] bytes of private anonymous memory, mapped readable and executable, to later rewrites in
    /// this address space (and in its forks). Only the platform may change it from now on.
    fn add_area(&mut self, start: u64);
    /// The guest takes the areas' memory for itself: every rewritten byte has been restored, and nothing is rewritten
    /// any more.
    fn forget_areas(&mut self);
    /// After an exit: call sites (addresses after a `syscall`) that have lately raised a first signal in this thread.
    fn new_sites(&mut self) -> Vec<u64>;
    /// Makes a twin of `text`, whole pages, the last of which belongs to the program up to offset `end`; `sites` are call sites to be
    /// rewritten at once; every process of the sandbox may read it if it is `public`. `None`: it would be of no use, or cannot be made.
    fn make_twin(&self, text: &[u8], end: u64, sites: &[u64], public: bool) -> Option<Arc<dyn Twin>>;
    /// Many programs map this file, which is open for reading only, and every process of the sandbox may read it.
    fn share(&self, fd: &Arc<OwnedFd>);
    /// A twin is mapped at `start` in this address space (and in its forks).
    fn add_twin(&mut self, start: u64, twin: &Arc<dyn Twin>);
    /// Its trampolines are about to go; nothing leads there any more.
    fn forget_twin(&mut self, start: u64);
}
