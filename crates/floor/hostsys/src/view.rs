//! Files that are read through a mapping, so that a read makes no host call.
//!
//! A program that may write a file of the host may also truncate it. An access to the mapping behind the file's end
//! then raises SIGBUS. So does a page that cannot be read from the disk. All accesses are made by one routine, and a
//! handler of SIGBUS has it return early. A SIGBUS that comes from anywhere else is as fatal as before.

use crate::memfd::CopyArea;
use abi::{Errno, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// From here on `rep movsb` is the fastest way to copy; see `memfd`.
const LONG: usize = 512;

// Both routines use caller-saved registers alone and no stack, so that returning from any instruction of theirs is right.
core::arch::global_asm!(
    r#"
    .pushsection .text.ringfence_view,"ax",@progbits
    .p2align 6
    .hidden ringfence_view_bytes, ringfence_view_vector, ringfence_view_end
    .globl ringfence_view_bytes, ringfence_view_vector, ringfence_view_end
ringfence_view_bytes:
    mov rcx, rdx
    rep movsb
    xor eax, eax
    ret
    .p2align 6
ringfence_view_vector:
    cmp rdx, 64
    jb 3f
2:  movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + 32]
    movups xmm3, [rsi + 48]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + 32], xmm2
    movups [rdi + 48], xmm3
    add rsi, 64
    add rdi, 64
    sub rdx, 64
    cmp rdx, 64
    jae 2b
3:  cmp rdx, 8
    jb 4f
    mov rax, [rsi]
    mov [rdi], rax
    add rsi, 8
    add rdi, 8
    sub rdx, 8
    jmp 3b
4:  test rdx, rdx
    jz 5f
    mov al, [rsi]
    mov [rdi], al
    inc rsi
    inc rdi
    dec rdx
    jmp 4b
5:  xor eax, eax
    ret
ringfence_view_end:
    mov eax, 1
    ret
    .popsection
"#
);

unsafe extern "C" {
    fn ringfence_view_bytes(to: *mut u8, from: *const u8, n: usize) -> u32;
    fn ringfence_view_vector(to: *mut u8, from: *const u8, n: usize) -> u32;
    /// First address behind the two; code that returns 1.
    fn ringfence_view_end();
}

/// What SIGBUS did before; `None` when the handler could not be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// Installs the handler, once.
fn guard() -> Result<()> {
    let install = || {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero sigaction is valid; the handler has the signature that SA_SIGINFO asks for and makes no call
        // that a handler must not make. What was there before is written to a local.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_fault as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            let done = libc::sigaction(libc::SIGBUS, &raw const new, before.as_mut_ptr());
            (done == 0).then(|| before.assume_init())
        }
    };
    BEFORE.get_or_init(install).map(drop).ok_or(Errno::EINVAL)
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

extern "C" fn on_fault(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let start = ringfence_view_bytes as *const () as usize;
    let end = ringfence_view_end as *const () as usize;
    // SAFETY: the kernel passes a ucontext_t, which no other code uses while the handler runs.
    let rip = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] };
    if (start..end).contains(&(*rip as usize)) {
        *rip = end as i64;
        return;
    }
    match BEFORE.get() {
        Some(Some(old)) if old.sa_flags & libc::SA_SIGINFO != 0 && old.sa_sigaction > libc::SIG_IGN => {
            // SAFETY: it was installed as a handler of this kind, by the runtime of the language.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(old.sa_sigaction) };
            handler(signo, info, context);
        }
        // The instruction is executed again, and this time the fault is fatal.
        // SAFETY: sets the default disposition.
        _ => unsafe {
            libc::signal(signo, libc::SIG_DFL);
        },
    }
}

/// A read-only mapping of a file that others may write or truncate.
#[derive(Debug)]
pub struct FileView {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is only ever copied from, by routines that do not mind what changes meanwhile.
unsafe impl Send for FileView {}
// SAFETY: as above.
unsafe impl Sync for FileView {}

impl FileView {
    /// Maps the first `len` bytes of a file that is open for reading.
    pub fn new(fd: impl AsFd, len: u64) -> Result<FileView> {
        guard()?;
        let len = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(Errno::EINVAL)?;
        let fd = fd.as_fd().as_raw_fd();
        // SAFETY: a new mapping at an address the kernel chooses aliases nothing.
        let p = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        if p == libc::MAP_FAILED {
            return Err(crate::last());
        }
        NonNull::new(p.cast()).map(|base| FileView { base, len }).ok_or(Errno::ENOMEM)
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Fills `buf` from `at` on. False when the file is not there any more, or cannot be read.
    #[must_use]
    pub fn read(&self, at: usize, buf: &mut [u8]) -> bool {
        let from = self.at(at, buf.len());
        // SAFETY: the source is in bounds (checked) and never lent; `buf` is ordinary memory.
        unsafe { copy(buf.as_mut_ptr(), from, buf.len()) }
    }

    /// Copies `n` bytes from `at` on to the start of an area. False as for [`FileView::read`].
    #[must_use]
    pub fn read_to(&self, at: usize, n: usize, to: &CopyArea<'_>) -> bool {
        let from = self.at(at, n);
        // SAFETY: both are in bounds (checked), in different mappings, and never lent.
        unsafe { copy(to.room(0, n), from, n) }
    }

    fn at(&self, at: usize, n: usize) -> *const u8 {
        assert!(at.checked_add(n).is_some_and(|end| end <= self.len), "outside a file's view");
        // SAFETY: within the mapping, checked above.
        unsafe { self.base.as_ptr().add(at) }
    }
}

/// # Safety
/// As for [`ptr::copy_nonoverlapping`], but reading may fault.
unsafe fn copy(to: *mut u8, from: *const u8, n: usize) -> bool {
    let ahead = to.addr().wrapping_sub(from.addr()) % 4096;
    // SAFETY: the caller's.
    let failed = unsafe {
        match n < LONG || (1..64).contains(&ahead) {
            true => ringfence_view_vector(to, from, n),
            false => ringfence_view_bytes(to, from, n),
        }
    };
    failed == 0
}

impl Drop for FileView {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd::SharedMapping;
    use std::os::unix::process::ExitStatusExt;

    fn file(len: usize) -> (std::os::fd::OwnedFd, Vec<u8>) {
        let fd = crate::memfd::create(c"view", 0, false).unwrap();
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        crate::memfd::write_all(fd.as_fd(), &data, 0).unwrap();
        (fd, data)
    }

    #[test]
    fn every_length_and_alignment() {
        let (fd, data) = file(20_000);
        let view = FileView::new(&fd, 20_000).unwrap();
        let slot =
            SharedMapping::new(crate::memfd::create(c"slot", 0x4000, false).unwrap(), 0, 0x4000).unwrap();
        for at in [0, 1, 15, 63, 4000, 4095, 4096, 9999] {
            for n in (0..140).chain([511, 512, 513, 4096, 5001, 10_001]) {
                let mut buf = vec![0; n];
                assert!(view.read(at, &mut buf));
                assert_eq!(buf, data[at..at + n], "{n} bytes at {at}");
                assert!(view.read_to(at, n, &slot.area(100, n)));
                slot.copy_out(100, &mut buf);
                assert_eq!(buf, data[at..at + n], "{n} bytes at {at}");
            }
        }
    }

    #[test]
    fn a_file_cut_short_is_noticed() {
        let (fd, data) = file(3 * 4096);
        let view = FileView::new(&fd, 3 * 4096).unwrap();
        let mut buf = vec![0; 3 * 4096];
        assert!(view.read(0, &mut buf));
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        for (at, n) in [(4096, 1), (4096, 40), (4090, 600), (8192, 4096), (0, 3 * 4096)] {
            assert!(!view.read(at, &mut buf[..n]), "{n} bytes at {at}");
        }
        assert!(view.read(0, &mut buf[..4096]));
        assert_eq!(buf[..4096], data[..4096]);
        // Other threads have the handler too.
        std::thread::scope(|s| s.spawn(|| assert!(!view.read(5000, &mut [0; 8]))).join().unwrap());
        rustix::fs::ftruncate(&fd, 3 * 4096).unwrap();
        assert!(view.read(5000, &mut buf[..8]));
        assert_eq!(buf[..8], [0; 8]);
    }

    #[test]
    fn truncated_again_and_again_while_it_is_read() {
        let (fd, data) = file(8 * 4096);
        let view = FileView::new(&fd, 8 * 4096).unwrap();
        std::thread::scope(|s| {
            let cutter = s.spawn(|| {
                for _ in 0..2000 {
                    rustix::fs::ftruncate(&fd, 4096).unwrap();
                    rustix::fs::ftruncate(&fd, 8 * 4096).unwrap();
                }
            });
            let mut buf = vec![0; 8 * 4096];
            while !cutter.is_finished() {
                let _ = view.read(0, &mut buf);
                assert_eq!(buf[..4096], data[..4096]);
            }
        });
    }

    #[test]
    fn empty_files_and_lengths_are_refused() {
        let (fd, _) = file(10);
        assert_eq!(FileView::new(&fd, 0).map(|v| v.size()), Err(Errno::EINVAL));
    }

    /// Not a test by itself: dies.
    #[test]
    #[ignore = "started by the next one"]
    fn helper_that_faults_elsewhere() {
        let (fd, _) = file(4096);
        let view = FileView::new(&fd, 8192).unwrap();
        // SAFETY: within the mapping; raises SIGBUS, which is what is to be seen.
        std::hint::black_box(unsafe { view.at(4096, 1).read_volatile() });
    }

    #[test]
    fn other_faults_are_fatal() {
        let me = std::env::current_exe().unwrap();
        let args = ["--exact", "--ignored", "view::tests::helper_that_faults_elsewhere"];
        let end = std::process::Command::new(me).args(args).output().unwrap();
        assert_eq!(end.status.signal(), Some(libc::SIGBUS), "{end:?}");
    }
}
