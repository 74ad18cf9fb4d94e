//! `bitwise`: masks and shifts. `byteorder`: reverses the bytes of numbers.

use crate::attr::{Attrs, Result, Writer};
use crate::data::{Data, Reg};
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;

const SREG: u16 = 1;
const DREG: u16 = 2;

/// A length that fits into a byte.
pub(super) fn small(value: Option<u32>) -> Result<usize> {
    match value {
        None => Err(Errno::EINVAL.into()),
        Some(value) if value > 255 => Err(Errno::ERANGE.into()),
        Some(value) => Ok(value as usize),
    }
}

enum Op {
    Mask(Box<[u8]>, Box<[u8]>),
    Left(u32),
    Right(u32),
}

struct Bitwise {
    source: Reg,
    target: Reg,
    op: Op,
}

const LEN: u16 = 3;
const MASK: u16 = 4;
const XOR: u16 = 5;
const OP: u16 = 6;
const DATA: u16 = 7;

pub(super) fn bitwise(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let len = small(attrs.be32(LEN)?)?;
    let source = Reg::load(attrs.need(SREG)?, len, &scope.inited)?;
    let target = Reg::store(attrs.need(DREG)?, len, &scope.inited)?;
    let shift = || -> Result<u32> {
        if attrs.has(MASK) || attrs.has(XOR) {
            return Err(Errno::EINVAL.into());
        }
        let bits = Data::exactly(attrs.need(DATA)?, 4)?;
        let bits = u32::from_ne_bytes(bits[..].try_into().map_err(|_| Errno::EINVAL)?);
        if bits < 32 { Ok(bits) } else { Err(Errno::EINVAL.into()) }
    };
    let op = match attrs.be32(OP)?.unwrap_or(0) {
        0 if attrs.has(DATA) => return Err(Errno::EINVAL.into()),
        0 => Op::Mask(Data::exactly(attrs.need(MASK)?, len)?, Data::exactly(attrs.need(XOR)?, len)?),
        1 => Op::Left(shift()?),
        2 => Op::Right(shift()?),
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    Ok(Box::new(Bitwise { source, target, op }))
}

impl Expr for Bitwise {
    fn name(&self) -> &'static str {
        "bitwise"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let mut out = [0; crate::data::SIZE];
        let len = self.source.len();
        out[..len].copy_from_slice(run.regs.get(self.source));
        match &self.op {
            Op::Mask(mask, xor) => {
                for ((byte, mask), xor) in out.iter_mut().zip(mask).zip(xor) {
                    *byte = *byte & mask ^ xor;
                }
            }
            Op::Left(bits) => shift(&mut out[..len.next_multiple_of(4)], *bits, true),
            Op::Right(bits) => shift(&mut out[..len.next_multiple_of(4)], *bits, false),
        }
        run.regs.set(self.target, &out[..len]);
        Flow::Next
    }

    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        out.be32(DREG, self.target.number());
        out.be32(LEN, self.source.len() as u32);
        let (op, bits) = match &self.op {
            Op::Mask(mask, xor) => {
                out.be32(OP, 0);
                Data::dump_value(MASK, mask, out);
                Data::dump_value(XOR, xor, out);
                return;
            }
            Op::Left(bits) => (1, bits),
            Op::Right(bits) => (2, bits),
        };
        out.be32(OP, op);
        Data::dump_value(DATA, &bits.to_ne_bytes(), out);
    }
}

/// Shifts words of the host's order, the first of which has the highest bits.
fn shift(bytes: &mut [u8], bits: u32, left: bool) {
    let mut carry = 0;
    let mut one = |word: &mut [u8]| {
        let Some(place) = word.first_chunk_mut::<4>() else { return };
        let value = u32::from_ne_bytes(*place);
        let (shifted, out) = match left {
            true => (value << bits, value.checked_shr(32 - bits)),
            false => (value >> bits, value.checked_shl(32 - bits)),
        };
        *place = (shifted | carry).to_ne_bytes();
        carry = out.unwrap_or(0);
    };
    match left {
        true => bytes.chunks_mut(4).rev().for_each(&mut one),
        false => bytes.chunks_mut(4).for_each(&mut one),
    }
}

struct ByteOrder {
    source: Reg,
    target: Reg,
    op: u32,
    size: usize,
}

const BYTE_OP: u16 = 3;
const BYTE_LEN: u16 = 4;
const BYTE_SIZE: u16 = 5;

pub(super) fn byteorder(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let op = attrs.be32(BYTE_OP)?.ok_or(Errno::EINVAL)?;
    let size = small(attrs.be32(BYTE_SIZE)?)?;
    if op > 1 || ![2, 4, 8].contains(&size) {
        return Err(Errno::EINVAL.into());
    }
    let len = small(attrs.be32(BYTE_LEN)?)?;
    let source = Reg::load(attrs.need(SREG)?, len, &scope.inited)?;
    let target = Reg::store(attrs.need(DREG)?, len, &scope.inited)?;
    Ok(Box::new(ByteOrder { source, target, op, size }))
}

impl Expr for ByteOrder {
    fn name(&self) -> &'static str {
        "byteorder"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let mut out = [0; crate::data::SIZE];
        let len = self.source.len();
        out[..len].copy_from_slice(run.regs.get(self.source));
        if cfg!(target_endian = "little") {
            out[..len].chunks_exact_mut(self.size).for_each(<[u8]>::reverse);
        }
        run.regs.set(self.target, &out[..len]);
        Flow::Next
    }

    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        out.be32(DREG, self.target.number());
        out.be32(BYTE_OP, self.op);
        out.be32(BYTE_LEN, self.source.len() as u32);
        out.be32(BYTE_SIZE, self.size as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_carry_from_word_to_word() {
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes.chunks(4).map(|w| u32::from_ne_bytes(w.try_into().unwrap())).collect()
        };
        let mut bytes = [1u32.to_ne_bytes(), 0x8000_0001u32.to_ne_bytes()].concat();
        shift(&mut bytes, 1, true);
        assert_eq!(words(&bytes), [3, 2]);
        shift(&mut bytes, 1, false);
        assert_eq!(words(&bytes), [1, 0x8000_0001]);
        shift(&mut bytes, 0, true);
        assert_eq!(words(&bytes), [1, 0x8000_0001]);
    }
}
