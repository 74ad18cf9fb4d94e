//! Processor facts that take one instruction.

use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::{LazyLock, OnceLock};

/// The time stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: rdtsc has no preconditions on x86-64 Linux.
    unsafe { _rdtsc() }
}

/// The components of the extended state that the processor can have (XCR0).
pub fn extended_components() -> u64 {
    match __cpuid(0).eax {
        0..0xd => 3,
        _ => {
            let leaf = __cpuid_count(0xd, 0);
            u64::from(leaf.edx) << 32 | u64::from(leaf.eax)
        }
    }
}

/// Whether the processor has `rdpid`, which is faster than `lsl`.
pub fn has_rdpid() -> bool {
    static HAS: LazyLock<bool> =
        LazyLock::new(|| __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx & 1 << 22 != 0);
    *HAS
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// A cache of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes of a line.
    pub line: u32,
    /// Lines with one tag.
    pub partitions: u32,
    /// Ways of associativity.
    pub ways: u32,
    /// Sets.
    pub sets: u32,
}

impl Cache {
    /// Bytes that it holds.
    pub fn size(&self) -> u64 {
        u64::from(self.line) * u64::from(self.partitions) * u64::from(self.ways) * u64::from(self.sets)
    }
}

/// The processor's caches, as `cpuid` describes them; none where it does not.
pub fn caches() -> &'static [Cache] {
    static ALL: LazyLock<Vec<Cache>> = LazyLock::new(|| {
        // Intel's leaf, and AMD's, which has the same form.
        let leaf = match __cpuid(0) {
            basic if basic.eax >= 4 && __cpuid_count(4, 0).eax & 0x1f != 0 => 4,
            _ if __cpuid(0x8000_0000).eax >= 0x8000_001d => 0x8000_001d,
            _ => return Vec::new(),
        };
        (0..16).map_while(|i| cache(__cpuid_count(leaf, i))).collect()
    });
    &ALL
}

fn cache(r: core::arch::x86_64::CpuidResult) -> Option<Cache> {
    let kind = match r.eax & 0x1f {
        1 => CacheKind::Data,
        2 => CacheKind::Instruction,
        3 => CacheKind::Unified,
        _ => return None,
    };
    Some(Cache {
        level: r.eax >> 5 & 7,
        kind,
        line: (r.ebx & 0xfff) + 1,
        partitions: (r.ebx >> 12 & 0x3ff) + 1,
        ways: (r.ebx >> 22) + 1,
        sets: r.ecx.checked_add(1)?,
    })
}

/// The CPU this thread runs on right now.
pub fn current() -> u32 {
    if has_rdpid() {
        let v: u64;
        // SAFETY: the processor has the instruction; Linux keeps the CPU's number in what it reads.
        unsafe { core::arch::asm!("rdpid {0}", out(reg) v, options(nomem, nostack, preserves_flags)) };
        return v as u32 & 0xfff;
    }
    let v: u32;
    // SAFETY: Linux keeps the CPU number in the limit of this segment on every x86-64 CPU; `lsl` only reads it.
    unsafe { core::arch::asm!("lsl {0:e}, {1:e}", out(reg) v, in(reg) 0x7bu32, options(nomem, nostack)) };
    v & 0xfff
}

/// The CPUs that this process may run on: those of the thread that asks first, so ask early.
pub fn all() -> CpuSet {
    *ALL.get_or_init(|| sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new()))
}

static ALL: OnceLock<CpuSet> = OnceLock::new();

/// This thread may run on any of [`all`]. For the start of a thread that was made by one which may not, and inherits that.
pub fn roam() {
    if let Some(all) = ALL.get() {
        let _ = sched_setaffinity(None, all);
    }
}

/// How long a thread with [`short_slices`] runs before others of its CPU get their turn, in nanoseconds.
const SLICE: u64 = 300_000;

/// Asks the host to give this thread, and all threads and processes that it makes, short slices of processor time
/// (sched_setattr(2), Linux 6.12): their share stays the same, and one that wakes up comes sooner to its turn beside threads
/// of other programs. Older hosts ignore it. Nothing changes for a thread with another policy than SCHED_OTHER.
pub fn short_slices() {
    // SAFETY: all-zero is a valid sched_attr.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the kernel writes at most `size` bytes.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) } == 0;
    if known && attr.sched_policy == libc::SCHED_OTHER as u32 {
        (attr.size, attr.sched_runtime) = (size, SLICE);
        // SAFETY: the kernel reads `size` bytes.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    }
}

/// Whether user code may use rdfsbase and its relatives (the host must enable it, not only the CPU offer it).
pub fn has_fsgsbase() -> bool {
    const AT_HWCAP2: u64 = 26;
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    // SAFETY: getauxval only reads the auxiliary vector.
    unsafe { libc::getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE != 0 }
}

/// Cycles of the time stamp counter per microsecond, measured over about a millisecond.
pub fn tsc_per_microsecond() -> u64 {
    let (start, from) = (std::time::Instant::now(), tsc());
    while start.elapsed().as_micros() < 1000 {
        std::hint::spin_loop();
    }
    let (elapsed, cycles) = (start.elapsed().as_nanos() as u64, tsc().wrapping_sub(from));
    (cycles.saturating_mul(1000) / elapsed.max(1)).max(1)
}
