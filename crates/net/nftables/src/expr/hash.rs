//! `hash`: a number from registers (Bob Jenkins' hash), or from the addresses and ports of a connection, the same both ways.

use super::bits::small;
use super::numgen::scale;
use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use std::hash::Hasher;

const SREG: u16 = 1;
const DREG: u16 = 2;
const LEN: u16 = 3;
const MODULUS: u16 = 4;
const SEED: u16 = 5;
const OFFSET: u16 = 6;
const TYPE: u16 = 7;

struct Hash {
    /// None is the symmetric hash of a connection.
    source: Option<Reg>,
    target: Reg,
    modulus: u32,
    seed: Option<u32>,
    offset: u32,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let symmetric = match attrs.be32(TYPE)?.unwrap_or(0) {
        0 => false,
        1 => true,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let source = match symmetric {
        false => Some(Reg::load(attrs.need(SREG)?, small(attrs.be32(LEN)?)?, &scope.inited)?),
        true => None,
    };
    let target = Reg::store(attrs.need(DREG)?, 4, &scope.inited)?;
    let modulus = attrs.need(MODULUS)?.be32()?;
    if modulus < 2 - u32::from(symmetric) {
        return Err(Errno::ERANGE.into());
    }
    let offset = attrs.be32(OFFSET)?.unwrap_or(0);
    offset.checked_add(modulus - 1).ok_or(Errno::EOVERFLOW)?;
    Ok(Box::new(Hash { source, target, modulus, seed: attrs.be32(SEED)?, offset }))
}

impl Expr for Hash {
    fn name(&self) -> &'static str {
        "hash"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let hash = match self.source {
            Some(source) => jenkins(run.regs.get(source), self.seed.unwrap_or_else(|| run.seed())),
            None => {
                let mut hasher = siphasher::sip::SipHasher13::new_with_keys(run.seed().into(), 0);
                let (mut a, mut b) = run.ends();
                if b < a {
                    std::mem::swap(&mut a, &mut b);
                }
                for (address, port) in [a, b] {
                    hasher.write(&address);
                    hasher.write_u16(port);
                }
                hasher.write_u8(run.l4proto().unwrap_or(0));
                hasher.finish() as u32
            }
        };
        run.regs.set(self.target, &(scale(hash, self.modulus) + self.offset).to_ne_bytes());
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        if let Some(source) = self.source {
            out.be32(SREG, source.number());
            out.be32(LEN, source.len() as u32);
        }
        out.be32(DREG, self.target.number());
        out.be32(MODULUS, self.modulus);
        if let Some(seed) = self.seed {
            out.be32(SEED, seed);
        }
        if self.offset != 0 {
            out.be32(OFFSET, self.offset);
        }
        out.be32(TYPE, self.source.is_none().into());
    }
}

/// Bob Jenkins' hash of bytes (lookup3, public domain), with Linux's initial value.
fn jenkins(bytes: &[u8], seed: u32) -> u32 {
    let start = 0xdead_beefu32.wrapping_add(bytes.len() as u32).wrapping_add(seed);
    let (mut a, mut b, mut c) = (start, start, start);
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word)
    };
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        a = a.wrapping_add(word(&block[..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..]));
        for (x, y, z, by) in
            [(0, 2, 1, 4), (1, 0, 2, 6), (2, 1, 0, 8), (0, 2, 1, 16), (1, 0, 2, 19), (2, 1, 0, 4)]
        {
            let mut v = [a, b, c];
            v[x] = v[x].wrapping_sub(v[y]) ^ v[y].rotate_left(by);
            v[y] = v[y].wrapping_add(v[z]);
            [a, b, c] = v;
        }
        rest = after;
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    a = a.wrapping_add(word(&last[..4]));
    b = b.wrapping_add(word(&last[4..8]));
    c = c.wrapping_add(word(&last[8..]));
    for (x, y, by) in [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)] {
        let mut v = [a, b, c];
        v[x] = (v[x] ^ v[y]).wrapping_sub(v[y].rotate_left(by));
        [a, b, c] = v;
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that the author of the hash gives: seeds 0 and 1.
    #[test]
    fn known_values() {
        let text = b"Four score and seven years ago";
        assert_eq!(jenkins(text, 0), 0x1777_0551);
        assert_eq!(jenkins(text, 1), 0xcd62_8161);
        assert_eq!(jenkins(b"", 0), 0xdead_beef);
    }
}
