//! Processor facts that take one instruction.

use core::arch::x86_64::{__cpuid, __cpuid_count, _rdtsc};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
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

/// Where components of the extended state lie in the standard form: number, size, offset, and 0. The first two, which are
/// always in the same place, are left out.
pub fn component_places(components: u64) -> Vec<[u32; 4]> {
    let known = components & extended_components() & !(1 << 63);
    let there = (2..63).filter(|i| known & 1 << i != 0);
    let place = |i: u32| {
        let leaf = __cpuid_count(0xd, i);
        [i, leaf.eax, leaf.ebx, 0]
    };
    there.map(place).collect()
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

/// The host's CPUs that are online, as a list (`0-3`); empty where sysfs is not there.
pub fn online() -> String {
    std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default().trim().to_string()
}

/// The CPUs that the calling thread may run on.
pub fn allowed() -> abi::CpuMask {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU.min(abi::CpuMask::MOST)).filter(|processor| set.is_set(*processor)).collect()
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

/// Where a thread runs that waits for answers of another process now and then.
///
/// Such a wait costs two switches where both run on one processor, and the waking of two idle processors, tens of microseconds,
/// where the host finds another one for each. So the thread stays where it is for some time, and the other one goes there.
#[derive(Clone, Copy, Default)]
struct Stay {
    /// The thread has called [`went_on`], and will again.
    goes_on: bool,
    /// Steps for which it stays.
    steps: u32,
    /// It may run on one processor only while it stays.
    pinned: bool,
    /// Waits since it may run on one only.
    waits: u32,
}

/// Steps for which a thread stays on its processor after a wait.
const STEPS: u32 = 64;
/// Waits in a row on one processor.
const WAITS: u32 = 1024;

thread_local! {
    static STAY: Cell<Stay> = const { Cell::new(Stay { goes_on: false, steps: 0, pinned: false, waits: 0 }) };
    /// Where the thread may run otherwise; `None` stands for [`all`].
    static BOUNDS: Cell<Option<CpuSet>> = const { Cell::new(None) };
}

/// This thread may run on these processors from now on; false where the host does not have it.
pub fn keep_to(bounds: &CpuSet) -> bool {
    let kept = sched_setaffinity(None, bounds).is_ok();
    if kept {
        BOUNDS.set(Some(*bounds));
    }
    STAY.set(Stay { steps: 0, pinned: false, waits: 0, ..STAY.get() });
    kept
}

/// This thread is about to wait for an answer: it stays on its processor until it has called [`went_on`] for some time. The
/// processor, unless the thread may have another one when the answer comes. After [`WAITS`] it waits once without a place of its
/// own, so that the host can find it a better one.
pub fn stay() -> Option<u32> {
    let (stay, me) = (STAY.get(), current());
    if stay.pinned && stay.waits >= WAITS {
        keep_to(&BOUNDS.get().unwrap_or_else(all));
        return None;
    }
    let bound = stay.pinned || BOUNDS.get().unwrap_or_else(all).count() == 1;
    let pins = !bound && stay.goes_on && only(me);
    if stay.goes_on {
        STAY.set(Stay {
            steps: STEPS,
            pinned: stay.pinned || pins,
            waits: stay.waits.saturating_add(1),
            ..stay
        });
    }
    ((bound || pins) && all().count() > 1).then_some(me)
}

/// Whether this thread has waited a short while ago, and stays where it is.
pub fn stays() -> bool {
    STAY.get().steps != 0
}

/// A step of a thread that waits now and then: after some without a wait it may run elsewhere again.
pub fn went_on() {
    let stay = STAY.get();
    match stay.steps {
        0 if stay.goes_on => {}
        0 => STAY.set(Stay { goes_on: true, ..stay }),
        1 if stay.pinned => drop(keep_to(&BOUNDS.get().unwrap_or_else(all))),
        steps => STAY.set(Stay { steps: steps - 1, ..stay }),
    }
}

/// This thread goes to a processor where another one waits for it, if it may run there; without one it may run anywhere again.
pub fn move_to(processor: Option<u32>) {
    let Some(processor) = processor else {
        if BOUNDS.get().is_some_and(|bounds| bounds.count() != all().count()) {
            keep_to(&all());
        }
        return;
    };
    let at = processor as usize;
    if at >= CpuSet::MAX_CPU || !all().is_set(at) {
        return;
    }
    let there = BOUNDS.get().is_some_and(|bounds| bounds.count() == 1 && bounds.is_set(at));
    if !there {
        let mut one = CpuSet::new();
        one.set(at);
        keep_to(&one);
    }
}

/// Has this thread run on one processor.
fn only(processor: u32) -> bool {
    if processor as usize >= CpuSet::MAX_CPU {
        return false;
    }
    let mut one = CpuSet::new();
    one.set(processor as usize);
    sched_setaffinity(None, &one).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many processors the calling thread may run on.
    fn bounds() -> u32 {
        sched_getaffinity(None).unwrap().count()
    }

    #[test]
    fn a_thread_stays_for_some_steps() {
        let thread = std::thread::spawn(|| {
            let most = all().count();
            if most < 2 {
                return;
            }
            assert_eq!((stay(), stays(), bounds()), (None, false, most), "it may never go on");
            went_on();
            let here = stay().unwrap();
            assert_eq!((current(), bounds(), stays()), (here, 1, true));
            (1..STEPS).for_each(|_| went_on());
            assert_eq!((bounds(), stay()), (1, Some(here)));
            (0..STEPS).for_each(|_| went_on());
            assert_eq!((bounds(), stays()), (most, false));
            let other = (0..CpuSet::MAX_CPU).find(|cpu| *cpu != here as usize && all().is_set(*cpu)).unwrap();
            move_to(Some(other as u32));
            assert_eq!((current() as usize, bounds(), stay()), (other, 1, Some(other as u32)));
            (0..=STEPS).for_each(|_| went_on());
            assert_eq!(bounds(), 1, "it does not go where it may not");
            move_to(Some(u32::MAX));
            assert_eq!(current() as usize, other);
            move_to(None);
            assert_eq!(bounds(), most);
            let pinned = (0..=WAITS).filter(|_| stay().is_some()).count();
            assert_eq!((pinned as u32, bounds()), (WAITS, most), "the host may find it another place");
        });
        thread.join().unwrap();
    }
}
