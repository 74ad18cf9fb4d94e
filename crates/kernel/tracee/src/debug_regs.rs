//! Debug registers of a traced thread. The platforms have none for guests, so the kernel does what they would: a thread
//! with a breakpoint or watchpoint executes step by step, and after each step the kernel looks.
//!
//! A breakpoint stops before its instruction. A watchpoint for writes stops when the bytes have changed; a write of the
//! same value is not noticed. Watchpoints for reads cannot be seen that way: ENOSPC, as on a machine without room.

use abi::{Errno, Result};

/// What DR6 holds when nothing has happened.
const DR6_RESERVED: u64 = 0xffff_0ff0;
/// DR0 to DR3, DR6 and DR7 of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DebugRegs {
    addr: [u64; 4],
    status: u64,
    control: u64,
    /// What was at the watched places when they were looked at last.
    seen: [u64; 4],
}

impl DebugRegs {
    fn enabled(&self, n: usize) -> bool {
        self.control >> (2 * n) & 3 != 0
    }

    /// Whether anything is watched.
    pub fn active(&self) -> bool {
        (0..4).any(|n| self.enabled(n))
    }

    fn kind(control: u64, n: usize) -> u64 {
        control >> (16 + 4 * n) & 3
    }

    fn len(control: u64, n: usize) -> u64 {
        [1, 2, 8, 4][(control >> (18 + 4 * n) & 3) as usize]
    }

    /// The register DR`n`.
    pub fn get(&self, n: u64) -> u64 {
        match n {
            0..=3 => self.addr[n as usize],
            6 => self.status ^ DR6_RESERVED,
            7 => self.control,
            _ => 0,
        }
    }

    /// Changes a register. `max`: one past the last address of a program.
    pub fn set(&mut self, n: u64, value: u64, max: u64) -> Result<()> {
        match n {
            0..=3 if value >= max => return Err(Errno::EINVAL),
            0..=3 => self.addr[n as usize] = value,
            6 => self.status = value ^ DR6_RESERVED,
            7 => {
                for i in (0..4).filter(|i| value >> (2 * i) & 3 != 0) {
                    let (kind, len) = (Self::kind(value, i), Self::len(value, i));
                    match kind {
                        0 if len != 1 => return Err(Errno::EINVAL),
                        2 => return Err(Errno::EINVAL),
                        1 | 3 if !self.addr[i].is_multiple_of(len) => return Err(Errno::EINVAL),
                        3 => return Err(Errno::ENOSPC),
                        _ => {}
                    }
                }
                self.control = value & !0xfc00;
            }
            _ => return Err(Errno::EIO),
        }
        Ok(())
    }

    /// The same registers, if a program can have set them. `max`: as for [`DebugRegs::set`].
    pub fn checked(&self, max: u64) -> Result<DebugRegs> {
        let mut new = DebugRegs { status: self.status, seen: self.seen, ..DebugRegs::default() };
        for (n, addr) in (0..).zip(self.addr) {
            new.set(n, addr, max)?;
        }
        new.set(7, self.control, max)?;
        Ok(new)
    }

    /// Looks at the watched places; `read` gives the bytes there. The bits of DR6 of those that were met.
    pub fn look(&mut self, rip: u64, read: impl Fn(u64, usize) -> u64) -> u64 {
        let mut met = 0;
        for n in (0..4).filter(|n| self.control >> (2 * n) & 3 != 0) {
            if Self::kind(self.control, n) == 0 {
                met |= u64::from(rip == self.addr[n]) << n;
                continue;
            }
            let now = read(self.addr[n], Self::len(self.control, n) as usize);
            met |= u64::from(now != self.seen[n]) << n;
            self.seen[n] = now;
        }
        met
    }

    /// Adds bits to DR6.
    pub fn note(&mut self, met: u64) {
        self.status |= met;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 1 << 47;

    #[test]
    fn what_no_processor_takes_is_refused() {
        let mut d = DebugRegs::default();
        assert_eq!(d.set(0, u64::MAX, MAX), Err(Errno::EINVAL));
        assert_eq!(d.set(4, 0, MAX), Err(Errno::EIO));
        d.set(0, 0x1001, MAX).unwrap();
        // Four bytes at an odd address; input and output; reads; a breakpoint of two bytes.
        for (control, e) in [
            (0xd_0001, Errno::EINVAL),
            (0x2_0001, Errno::EINVAL),
            (0x3_0001, Errno::ENOSPC),
            (0x4_0001, Errno::EINVAL),
        ] {
            assert_eq!(d.set(7, control, MAX), Err(e), "{control:#x}");
        }
        assert!(!d.active());
        d.set(7, 0x1_0001, MAX).unwrap();
        assert!(d.active() && d.get(7) == 0x1_0001 && d.get(6) == DR6_RESERVED);
    }

    #[test]
    fn a_change_is_met_once() {
        let mut d = DebugRegs::default();
        d.set(1, 0x1000, MAX).unwrap();
        d.set(2, 0x400_000, MAX).unwrap();
        d.set(7, 0xd0_0000 | 1 << 2 | 1 << 4, MAX).unwrap();
        assert_eq!(d.look(0, |_, _| 5), 2);
        assert_eq!(d.look(0, |_, _| 5), 0);
        assert_eq!(d.look(0x400_000, |_, _| 6), 6);
    }
}
