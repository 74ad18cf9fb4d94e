//! Classic BPF over packets: SO_ATTACH_FILTER. See socket(7). The interpreter is the crate `bpf`.
//!
//! Of the loads from beyond the packet that have a meaning on Linux these are there: the processor, a random number, and the
//! exclusive or. Others (of SKF_AD_OFF, SKF_NET_OFF and SKF_LL_OFF) are not supported: EINVAL.

use abi::{Errno, Result};
use bpf::code::{ALU, LD_B_ABS, LD_H_ABS, LD_W_ABS, LDX_B_MSH, X, XOR};
use bpf::{Input, MAX_INSTRUCTIONS, Outside, SockFilter};
use netstack::capture::Filter;
use std::cell::Cell;
use zerocopy::FromBytes;

/// Offsets from here on are Linux's own (SKF_LL_OFF), as unsigned numbers.
const SPECIAL: u32 = 0x8000_0000;
/// Loads that are none of the packet (SKF_AD_OFF): SKF_AD_CPU, SKF_AD_ALU_XOR_X and SKF_AD_RANDOM.
const PROCESSOR: u32 = 0xffff_f000 + 36;
const XOR_X: u32 = 0xffff_f000 + 40;
const RANDOM: u32 = 0xffff_f000 + 56;

/// A valid program.
pub struct Program {
    program: bpf::Program,
    bytes: Vec<u8>,
}

impl Program {
    /// The instructions in the bytes that a program gave. EINVAL unless they are a valid program.
    pub fn new(bytes: &[u8]) -> Result<Program> {
        if bytes.len() / size_of::<SockFilter>() > MAX_INSTRUCTIONS {
            return Err(Errno::EINVAL);
        }
        let code: Vec<SockFilter> = bytes
            .chunks_exact(size_of::<SockFilter>())
            .filter_map(|one| SockFilter::read_from_bytes(one).ok())
            .map(calculation)
            .collect();
        bpf::Program::new(&code, |i| match i.code {
            LD_W_ABS | LD_H_ABS | LD_B_ABS => i.k < SPECIAL || matches!(i.k, PROCESSOR | RANDOM),
            LDX_B_MSH => i.k < SPECIAL,
            _ => true,
        })
        .map(|program| Program { program, bytes: bytes.to_vec() })
    }

    /// The instructions as they were given.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A load that is the exclusive or of both registers, as that calculation.
fn calculation(i: SockFilter) -> SockFilter {
    match i.code {
        LD_W_ABS | LD_H_ABS | LD_B_ABS if i.k == XOR_X => SockFilter { code: ALU | XOR | X, ..i },
        _ => i,
    }
}

/// A packet: big-endian numbers. A run asks the host for one random number; the others come from that one.
struct Packet<'a>(&'a [u8], Cell<Option<u64>>);

impl Packet<'_> {
    fn random(&self) -> u32 {
        let mut state = self.1.get().unwrap_or_else(|| hostsys::clock::random_u64() | 1);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.1.set(Some(state));
        (state >> 32) as u32
    }
}

impl Input for Packet<'_> {
    fn load(&self, at: u32, size: usize) -> std::result::Result<Option<u32>, Outside> {
        match at {
            PROCESSOR => return Ok(Some(hostsys::cpu::current())),
            RANDOM => return Ok(Some(self.random())),
            _ => {}
        }
        let at = at as usize;
        let bytes = at.checked_add(size).and_then(|end| self.0.get(at..end)).ok_or(Outside)?;
        Ok(Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))))
    }

    fn length(&self) -> u32 {
        self.0.len() as u32
    }
}

impl Filter for Program {
    fn accept(&self, packet: &[u8]) -> usize {
        // All of a packet is known, so the answer is.
        self.program.run(&Packet(packet, Cell::new(None))).unwrap_or(0) as usize
    }

    fn instructions(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    fn op(code: u16, jt: u8, jf: u8, k: u32) -> SockFilter {
        SockFilter { code, jt, jf, k }
    }

    fn program(code: &[SockFilter]) -> Result<Program> {
        Program::new(&code.iter().flat_map(|i| i.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn accepts_udp_to_a_port() {
        // ldb [9]; jeq 17; ldx 4*([0]&0xf); ldh [x+2]; jeq 53; ret 100; ret 0
        let p = program(&[
            op(0x30, 0, 0, 9),
            op(0x15, 0, 4, 17),
            op(0xb1, 0, 0, 0),
            op(0x48, 0, 0, 2),
            op(0x15, 0, 1, 53),
            op(0x06, 0, 0, 100),
            op(0x06, 0, 0, 0),
        ])
        .unwrap();
        let mut packet = [0u8; 28];
        (packet[0], packet[9], packet[23]) = (0x45, 17, 53);
        assert_eq!(p.accept(&packet), 100);
        packet[23] = 54;
        assert_eq!(p.accept(&packet), 0);
        assert_eq!(p.accept(&packet[..5]), 0);
    }

    #[test]
    fn refuses_what_is_not_of_packets() {
        let ret = op(0x06, 0, 0, 1);
        assert!(program(&[]).is_err());
        assert!(program(&[op(0x20, 0, 0, 0xffff_f000), ret]).is_err());
        assert!(program(&[op(0xb1, 0, 0, 0x8000_0000), ret]).is_err());
        for known in [PROCESSOR, XOR_X, RANDOM] {
            assert!(program(&[op(0x20, 0, 0, known), ret]).is_ok());
            assert!(program(&[op(0x40, 0, 0, known + 1), ret]).is_ok(), "a place that depends on a register");
        }
        assert!(Program::new(&vec![0; (MAX_INSTRUCTIONS + 1) * size_of::<SockFilter>()]).is_err());
    }
}
