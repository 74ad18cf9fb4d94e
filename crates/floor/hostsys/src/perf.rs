//! Samples of the code that runs on a processor: perf_event_open(2) with the CPU clock, and its ring of records.
//!
//! The event is the kernel's own timer, so it needs no hardware counter. Records come out as the bytes that the kernel
//! wrote; the caller checks them like any input.

use crate::memfd::SharedMapping;
use abi::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// A sample has the instruction's address, process and thread, the time (CLOCK_MONOTONIC), the chain of callers, registers
/// ([`REGISTERS`]) and the top of the stack, in this order; every other record ends with process, thread and time.
const SAMPLE_TYPE: u64 = PERF_SAMPLE_IP
    | PERF_SAMPLE_TID
    | PERF_SAMPLE_TIME
    | PERF_SAMPLE_CALLCHAIN
    | PERF_SAMPLE_REGS_USER
    | PERF_SAMPLE_STACK_USER;
const PERF_SAMPLE_IP: u64 = 1 << 0;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_SAMPLE_CALLCHAIN: u64 = 1 << 5;
const PERF_SAMPLE_REGS_USER: u64 = 1 << 12;
const PERF_SAMPLE_STACK_USER: u64 = 1 << 13;

/// The registers in a sample, by their bits in linux/perf_regs.h: rbp, rsp, rip.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;

/// Bits of `perf_event_attr.flags`, from linux/perf_event.h.
mod flag {
    pub(super) const DISABLED: u64 = 1 << 0;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const EXCLUDE_IDLE: u64 = 1 << 7;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const FREQ: u64 = 1 << 10;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const USE_CLOCKID: u64 = 1 << 25;
}

/// `struct perf_event_attr` up to PERF_ATTR_SIZE_VER5.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_freq: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// Where `struct perf_event_mmap_page` has the ends of the ring.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const PAGE: usize = 4096;

/// Samples of whatever runs on one processor, of any process, and records of processes that begin, end, change their
/// names or map code.
#[derive(Debug)]
pub struct Sampler {
    event: OwnedFd,
    ring: SharedMapping,
}

impl Sampler {
    /// An event on processor `cpu`, not yet enabled: `frequency` samples in a second while it is not idle, with the host
    /// kernel's own code or without, each with `stack` bytes of the process's stack (a multiple of 8). `pages` is a power of
    /// two, the size of the ring.
    pub fn new(cpu: u32, frequency: u32, kernel: bool, stack: u32, pages: usize) -> Result<Self> {
        let mut flags = flag::DISABLED | flag::EXCLUDE_HV | flag::EXCLUDE_IDLE | flag::FREQ;
        flags |= flag::MMAP | flag::MMAP2 | flag::COMM | flag::TASK | flag::SAMPLE_ID_ALL | flag::USE_CLOCKID;
        if !kernel {
            flags |= flag::EXCLUDE_KERNEL;
        }
        let attributes = Attributes {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_freq: u64::from(frequency),
            sample_type: SAMPLE_TYPE,
            flags,
            sample_regs_user: REGISTERS,
            sample_stack_user: stack,
            clockid: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: the structure is as long as it says, lives for the call and is only read.
        let fd = crate::check(unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)
        })?;
        // SAFETY: a descriptor that the kernel has just given us.
        let event = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        if !pages.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        let ring = SharedMapping::new(event.as_fd(), 0, (pages + 1) * PAGE)?;
        Ok(Self { event, ring })
    }

    /// Begins to sample.
    pub fn enable(&self) -> Result<()> {
        // SAFETY: this request takes no pointer.
        let r = unsafe { libc::ioctl(self.event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) };
        crate::check(i64::from(r)).map(drop)
    }

    /// Moves all records that are complete to the end of `out`.
    pub fn drain(&mut self, out: &mut Vec<u8>) {
        let size = self.ring.size() - PAGE;
        // Pairs with the kernel's barrier between a record and the head.
        let head = self.ring.long(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.ring.long(DATA_TAIL).load(Ordering::Relaxed);
        // Only the kernel and this process write these. Still, no value of theirs leads outside the ring.
        let len = (head.wrapping_sub(tail) as usize).min(size);
        let start = tail as usize & (size - 1);
        let first = len.min(size - start);
        let old = out.len();
        out.resize(old + len, 0);
        let (one, two) = out[old..].split_at_mut(first);
        self.ring.copy_out(PAGE + start, one);
        self.ring.copy_out(PAGE, two);
        self.ring.long(DATA_TAIL).store(head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_processor_is_sampled() {
        let sampler = (0..64).find_map(|cpu| Sampler::new(cpu, 999, false, 512, 16).ok());
        // Hosts may keep this from ordinary users, and from root in a container.
        let Some(mut sampler) = sampler else { return };
        assert_eq!(Sampler::new(0, 99, false, 512, 3).unwrap_err(), Errno::EINVAL);
        sampler.enable().unwrap();
        let mut bytes = Vec::new();
        for _ in 0..500 {
            let start = std::time::Instant::now();
            while start.elapsed().as_millis() < 10 {
                std::hint::spin_loop();
            }
            let old = bytes.len();
            sampler.drain(&mut bytes);
            // Whatever the first record is: it has a type, and a length that is there.
            if let Some(record) = bytes.get(old..old + 8) {
                let kind = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
                let len = usize::from(u16::from_le_bytes([record[6], record[7]]));
                assert!((1..64).contains(&kind) && (8..=bytes.len() - old).contains(&len), "{kind} {len}");
                return;
            }
        }
        panic!("no record");
    }
}
