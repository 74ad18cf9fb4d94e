//! Registers, and the values and verdicts that they hold.

use crate::attr::{Attr, Result, Writer};
use abi::Errno;
use std::cell::Cell;
use std::sync::Arc;

/// Bytes of all data registers.
pub(crate) const SIZE: usize = 64;
/// Longest value (`NFT_DATA_VALUE_MAXLEN`).
pub(crate) const VALUE_MAX: usize = 64;
/// `NFT_DATA_VERDICT`: the type of data that are verdicts.
pub(crate) const TYPE_VERDICT: u32 = 0xffff_ff00;

pub(crate) const VALUE: u16 = 1;
pub(crate) const VERDICT: u16 = 2;
pub(crate) const CODE: u16 = 1;
pub(crate) const CHAIN: u16 = 2;
pub(crate) const CHAIN_ID: u16 = 3;

/// A range of data registers: the offset of its first byte, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    start: u8,
    len: u8,
}

impl Reg {
    /// The offset of a register by its number; `None` for the verdict.
    fn offset(number: u32) -> Result<Option<usize>, Errno> {
        match number {
            0 => Ok(None),
            1..=4 => Ok(Some((number as usize - 1) * 16)),
            8..=23 => Ok(Some((number as usize - 8) * 4)),
            _ => Err(Errno::ERANGE),
        }
    }

    fn new(number: u32, len: usize) -> Result<Reg, Errno> {
        let start = Reg::offset(number)?.ok_or(Errno::EINVAL)?;
        match len {
            0 => Err(Errno::EINVAL),
            _ if start + len > SIZE => Err(Errno::ERANGE),
            _ => Ok(Reg { start: start as u8, len: len as u8 }),
        }
    }

    /// The registers that an expression reads: something must have been stored there before.
    pub fn load(attr: Attr<'_>, len: usize, inited: &Cell<u32>) -> Result<Reg> {
        let reg = Reg::new(attr.be32()?, len)?;
        if inited.get() & reg.words() != reg.words() {
            return Err(Errno::ENODATA.into());
        }
        Ok(reg)
    }

    /// The registers that an expression writes.
    pub fn store(attr: Attr<'_>, len: usize, inited: &Cell<u32>) -> Result<Reg> {
        let reg = Reg::new(attr.be32()?, len)?;
        inited.set(inited.get() | reg.words());
        Ok(reg)
    }

    /// Whether an attribute names the verdict register.
    pub fn is_verdict(attr: Attr<'_>) -> Result<bool> {
        Ok(Reg::offset(attr.be32()?)?.is_none())
    }

    fn words(self) -> u32 {
        let (first, end) = (self.start / 4, (self.start + self.len).div_ceil(4));
        (first..end).fold(0, |bits, word| bits | 1 << word)
    }

    pub fn len(self) -> usize {
        self.len.into()
    }

    /// The number that listings show: of 16 bytes where these begin with one.
    pub fn number(self) -> u32 {
        let word = u32::from(self.start / 4);
        if word.is_multiple_of(4) { 1 + word / 4 } else { 8 + word }
    }
}

/// The data registers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Registers([u8; SIZE]);

impl Default for Registers {
    fn default() -> Registers {
        Registers([0; SIZE])
    }
}

impl Registers {
    pub fn get(&self, reg: Reg) -> &[u8] {
        &self.0[reg.start.into()..][..reg.len()]
    }
    /// The first word as a number of the host's order.
    pub fn word(&self, reg: Reg) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.0[reg.start.into()..][..4]);
        u32::from_ne_bytes(word)
    }
    /// The first two bytes, as ports stand there.
    pub fn port(&self, reg: Reg) -> u16 {
        u16::from_be_bytes([self.0[usize::from(reg.start)], self.0[usize::from(reg.start) + 1]])
    }
    /// Stores bytes from the beginning on; what is left of the registers becomes zero.
    pub fn set(&mut self, reg: Reg, bytes: &[u8]) {
        let end = usize::from(reg.start) + reg.len().next_multiple_of(4);
        let room = &mut self.0[reg.start.into()..end.min(SIZE)];
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        room[len..].fill(0);
    }
}

/// What a rule decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Drop,
    /// The next expression.
    Continue,
    /// The next rule.
    Break,
    /// Another chain of the table, and back.
    Jump(u64),
    /// Another chain of the table.
    Goto(u64),
    /// Back to the chain that jumped here.
    Return,
}

impl Verdict {
    /// The chain it leads to.
    pub fn chain(self) -> Option<u64> {
        match self {
            Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    fn code(self) -> i32 {
        match self {
            Verdict::Drop => 0,
            Verdict::Accept => 1,
            Verdict::Continue => -1,
            Verdict::Break => -2,
            Verdict::Jump(_) => -3,
            Verdict::Goto(_) => -4,
            Verdict::Return => -5,
        }
    }

    /// Writes it. `name` gives the names of chains.
    pub fn dump(self, kind: u16, out: &mut Writer, name: &dyn Fn(u64) -> Option<Arc<[u8]>>) {
        out.nest(kind, |out| {
            out.nest(VERDICT, |out| {
                out.be32(CODE, self.code() as u32);
                if let Some(chain) = self.chain().and_then(name) {
                    out.text(CHAIN, &chain);
                }
            });
        });
    }
}

/// A value or a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Value(Box<[u8]>),
    Verdict(Verdict),
}

impl Data {
    /// A value of at most `max` bytes.
    pub fn value(attr: Attr<'_>, max: usize) -> Result<Box<[u8]>> {
        match attr.nested().get(VALUE).map(|value| value.data) {
            None | Some([]) => Err(Errno::EINVAL.into()),
            Some(bytes) if bytes.len() > max => Err(Errno::EOVERFLOW.into()),
            Some(bytes) => Ok(bytes.into()),
        }
    }

    /// A value of exactly `len` bytes.
    pub fn exactly(attr: Attr<'_>, len: usize) -> Result<Box<[u8]>> {
        let value = Data::value(attr, VALUE_MAX)?;
        if value.len() == len { Ok(value) } else { Err(Errno::EINVAL.into()) }
    }

    pub fn dump_value(kind: u16, value: &[u8], out: &mut Writer) {
        out.nest(kind, |out| out.put(VALUE, value));
    }

    /// Writes it; see [`Verdict::dump`].
    pub fn dump(&self, kind: u16, out: &mut Writer, name: &dyn Fn(u64) -> Option<Arc<[u8]>>) {
        match self {
            Data::Value(value) => Data::dump_value(kind, value, out),
            Data::Verdict(verdict) => verdict.dump(kind, out, name),
        }
    }
}
