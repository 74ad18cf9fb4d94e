//! Classic BPF over packets: SO_ATTACH_FILTER. See socket(7). Pure: bytes in, a number of bytes out. A program ends after as many steps
//! as it has instructions, for it has no backward jumps.
//!
//! Loads from beyond the packet that Linux gives a meaning (SKF_AD_OFF, SKF_NET_OFF, SKF_LL_OFF) are not there: EINVAL.

use abi::{Errno, Result};
use netstack::packet::Filter;
use seccomp::{MAX_INSTRUCTIONS, SockFilter};
use zerocopy::FromBytes;

/// Words of scratch memory.
const MEMORY: usize = 16;
/// Offsets from here on are Linux's own (SKF_LL_OFF), as unsigned numbers.
const SPECIAL: u32 = 0x8000_0000;

/// Classes and parts of `code`.
const LD: u16 = 0;
const LDX: u16 = 1;
const ST: u16 = 2;
const STX: u16 = 3;
const ALU: u16 = 4;
const JMP: u16 = 5;
const RET: u16 = 6;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
const DIV: u16 = 0x30;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const MOD: u16 = 0x90;
const X: u16 = 0x08;

/// A valid program.
pub(crate) struct Program(Box<[SockFilter]>);

impl Program {
    /// The instructions in the bytes that a program gave. EINVAL unless each is known and the last one ends.
    pub(crate) fn new(bytes: &[u8]) -> Result<Program> {
        let code: Vec<SockFilter> = bytes
            .chunks_exact(size_of::<SockFilter>())
            .filter_map(|one| SockFilter::read_from_bytes(one).ok())
            .collect();
        if code.is_empty() || code.len() > MAX_INSTRUCTIONS {
            return Err(Errno::EINVAL);
        }
        let ends = code.last().is_some_and(|last| last.code & 7 == RET);
        let valid = code.iter().enumerate().all(|(at, i)| is_valid(i, code.len() - at - 1));
        if ends && valid { Ok(Program(code.into())) } else { Err(Errno::EINVAL) }
    }
}

/// Whether an instruction with `left` others behind it is known and stays inside.
fn is_valid(i: &SockFilter, left: usize) -> bool {
    let k = i.k as usize;
    match (i.code & 7, i.code & !7) {
        // Words, half words, bytes.
        (LD, 0x20 | 0x28 | 0x30) => i.k < SPECIAL,
        (LD, 0x40 | 0x48 | 0x50) | (LD | LDX, IMM | LEN) => true,
        (LDX, 0xb0) => i.k < SPECIAL,
        (LD | LDX, MEM) | (ST | STX, 0) => k < MEMORY,
        (ALU, DIV | MOD) => i.k != 0,
        (ALU, LSH | RSH) => i.k < 32,
        (ALU, op) => op <= 0xa8,
        (JMP, 0) => k < left,
        (JMP, op) => op <= 0x48 && usize::from(i.jt.max(i.jf)) < left,
        (RET, 0x00 | 0x08 | 0x10) => true,
        (7, 0x00 | 0x80) => true,
        _ => false,
    }
}

/// A big-endian number of `size` bytes in the packet.
fn load(packet: &[u8], at: usize, size: usize) -> Option<u32> {
    let bytes = packet.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

fn calculate(op: u16, a: u32, b: u32) -> Option<u32> {
    Some(match op & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        DIV => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        LSH => a.wrapping_shl(b),
        RSH => a.wrapping_shr(b),
        0x80 => a.wrapping_neg(),
        MOD => a.checked_rem(b)?,
        _ => a ^ b,
    })
}

/// What a program returns; `None` where it reads beyond the packet or divides by zero, which drops the packet.
fn run(code: &[SockFilter], packet: &[u8]) -> Option<u32> {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; MEMORY], 0usize);
    loop {
        let i = code.get(at)?;
        at += 1;
        let (k, operand) = (i.k as usize, if i.code & X != 0 { x } else { i.k });
        let size = match i.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            _ => 1,
        };
        match (i.code & 7, i.code & 0xe0) {
            (LD, ABS) => a = load(packet, k, size)?,
            (LD, IND) => a = load(packet, k.checked_add(x as usize)?, size)?,
            (LD, IMM) => a = i.k,
            (LD, MEM) => a = *memory.get(k)?,
            (LD, LEN) => a = packet.len() as u32,
            (LDX, IMM) => x = i.k,
            (LDX, MEM) => x = *memory.get(k)?,
            (LDX, LEN) => x = packet.len() as u32,
            // The length of an IPv4 header.
            (LDX, MSH) => x = (load(packet, k, 1)? & 0xf) * 4,
            (ST, _) => *memory.get_mut(k)? = a,
            (STX, _) => *memory.get_mut(k)? = x,
            (ALU, _) => a = calculate(i.code, a, operand)?,
            (JMP, _) => {
                let taken = match i.code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if taken { i.jt } else { i.jf });
            }
            (RET, _) => {
                return Some(match i.code & 0x18 {
                    0x00 => i.k,
                    0x08 => x,
                    _ => a,
                });
            }
            _ if i.code & 0x80 != 0 => a = x,
            _ => x = a,
        }
    }
}

impl Filter for Program {
    fn accept(&self, packet: &[u8]) -> usize {
        run(&self.0, packet).unwrap_or(0) as usize
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
    fn calculates_and_remembers() {
        // a = 7; m[3] = a; x = m[3]; a = a * x; a = a % 10; a -> x; ret x? as ret a
        let p = program(&[
            op(0x00, 0, 0, 7),
            op(0x02, 0, 0, 3),
            op(0x61, 0, 0, 3),
            op(0x2c, 0, 0, 0),
            op(0x94, 0, 0, 10),
            op(0x07, 0, 0, 0),
            op(0x87, 0, 0, 0),
            op(0x16, 0, 0, 0),
        ])
        .unwrap();
        assert_eq!(p.accept(&[]), 9);
        // Division by an x of zero drops.
        assert_eq!(program(&[op(0x3c, 0, 0, 1), op(0x06, 0, 0, 5)]).unwrap().accept(&[]), 0);
    }

    #[test]
    fn refuses_nonsense() {
        let ret = op(0x06, 0, 0, 1);
        assert!(program(&[]).is_err() && program(&[op(0x00, 0, 0, 1)]).is_err());
        let bad = [
            op(0x15, 1, 0, 0),
            op(0x05, 0, 0, 1),
            op(0x60, 0, 0, 16),
            op(0x34, 0, 0, 0),
            op(0x64, 0, 0, 32),
            op(0x20, 0, 0, 0xffff_f000),
            op(0xff, 0, 0, 0),
        ];
        assert!(bad.into_iter().all(|one| program(&[one, ret]).is_err()));
        // Whatever is accepted ends.
        let mut random = 12345u64;
        for _ in 0..20_000 {
            let code: Vec<_> = (0..6)
                .map(|_| {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    op(
                        (random >> 33) as u16 & 0xff,
                        (random >> 41) as u8 & 3,
                        (random >> 44) as u8 & 3,
                        (random >> 47) as u32,
                    )
                })
                .chain([ret])
                .collect();
            if let Ok(p) = program(&code) {
                p.accept(&[0x45; 40]);
            }
        }
    }
}
