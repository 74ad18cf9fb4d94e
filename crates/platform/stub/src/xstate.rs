//! Extended processor state (x87, SSE, AVX, ...) as it stands in a signal frame.

use abi::{Errno, Result};

/// Offset of Linux's words in the legacy area: magic, frame size, features, state size.
const SW_BYTES: usize = 464;
const MAGIC1: u32 = 0x4650_5853;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
const HEADER: usize = 512;
const HEADER_END: usize = 576;

/// What this host's signal frames look like, learnt from the first one.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of state (without the magic word that follows them in a frame).
    pub size: usize,
    features: u64,
    mxcsr_mask: u32,
    /// The state of a new process.
    initial: Vec<u8>,
}

fn word(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4).and_then(|s| s.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn long(b: &[u8], at: usize) -> u64 {
    b.get(at..at + 8).and_then(|s| s.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Bytes of a frame that [`Layout::size_of_frame`] needs.
pub(crate) const LEGACY: usize = 512;

impl Layout {
    /// The size a frame declares, from its first [`LEGACY`] bytes.
    pub(crate) fn size_of_frame(legacy: &[u8]) -> Option<usize> {
        let size = word(legacy, SW_BYTES + 16) as usize;
        (word(legacy, SW_BYTES) == MAGIC1 && (HEADER_END..=0x8000).contains(&size)).then_some(size)
    }

    /// Takes the zygote's own frame as the template.
    pub(crate) fn learn(frame: Vec<u8>) -> Option<Layout> {
        let size = Self::size_of_frame(frame.get(..LEGACY)?)?;
        if frame.len() != size {
            return None;
        }
        let mask = word(&frame, MXCSR_MASK);
        let mut initial = frame;
        let features = long(&initial, SW_BYTES + 8);
        // Initial: no component in use, default control words.
        initial.get_mut(..SW_BYTES)?.fill(0);
        initial.get_mut(HEADER..)?.fill(0);
        initial.get_mut(..2)?.copy_from_slice(&0x37fu16.to_le_bytes());
        initial.get_mut(MXCSR..MXCSR + 4)?.copy_from_slice(&0x1f80u32.to_le_bytes());
        initial.get_mut(MXCSR_MASK..MXCSR_MASK + 4)?.copy_from_slice(&mask.to_le_bytes());
        Some(Layout { size, features, mxcsr_mask: if mask == 0 { 0xffbf } else { mask }, initial })
    }

    /// Components that frames hold, as XSAVE's mask.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// What is in every frame's legacy area where the processor puts nothing.
    pub fn words(&self) -> &[u8] {
        self.initial.get(SW_BYTES..LEGACY).unwrap_or_default()
    }

    /// The state of a new process.
    pub fn initial(&self) -> Vec<u8> {
        self.initial.clone()
    }

    /// What ptrace reports, in the form of a signal frame.
    pub fn as_in_frame(&self, host: &[u8]) -> Result<Vec<u8>> {
        let mut out = host.get(..self.size).ok_or(Errno::EIO)?.to_vec();
        if let (Some(to), Some(from)) = (out.get_mut(SW_BYTES..LEGACY), self.initial.get(SW_BYTES..LEGACY)) {
            to.copy_from_slice(from);
        }
        Ok(out)
    }

    /// An image that rt_sigreturn accepts, or EINVAL. 512 bytes (FXSAVE) up to the full size.
    pub fn sanitise(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        if bytes.len() < LEGACY || bytes.len() > self.size || word(bytes, MXCSR) & !self.mxcsr_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let mut out = self.initial.clone();
        let template = out.get(SW_BYTES..LEGACY).unwrap_or_default().to_vec();
        let (head, tail) = out.split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        tail.fill(0);
        if bytes.len() >= HEADER_END {
            let reserved = out.get(HEADER + 8..HEADER_END).unwrap_or_default();
            if long(&out, HEADER) & !self.features != 0 || reserved.iter().any(|b| *b != 0) {
                return Err(Errno::EINVAL);
            }
        } else {
            const X87_SSE: u64 = 3;
            if let Some(h) = out.get_mut(HEADER..HEADER_END) {
                h.fill(0);
                if let Some(bv) = h.get_mut(..8) {
                    bv.copy_from_slice(&X87_SSE.to_le_bytes());
                }
            }
        }
        if let Some(sw) = out.get_mut(SW_BYTES..LEGACY) {
            sw.copy_from_slice(&template);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mut f = vec![0u8; 832];
        f[SW_BYTES..SW_BYTES + 4].copy_from_slice(&MAGIC1.to_le_bytes());
        f[SW_BYTES + 4..SW_BYTES + 8].copy_from_slice(&836u32.to_le_bytes());
        f[SW_BYTES + 8..SW_BYTES + 16].copy_from_slice(&7u64.to_le_bytes());
        f[SW_BYTES + 16..SW_BYTES + 20].copy_from_slice(&832u32.to_le_bytes());
        f[MXCSR_MASK..MXCSR_MASK + 4].copy_from_slice(&0x2ffffu32.to_le_bytes());
        Layout::learn(f).unwrap()
    }

    #[test]
    fn refuses_what_the_processor_would() {
        let l = layout();
        let good = l.initial();
        assert_eq!(l.sanitise(&good).unwrap(), good);
        for (at, byte) in
            [(MXCSR + 3, 0xff), (HEADER, 0xf8), (HEADER + 8, 1), (HEADER + 20, 1), (HEADER + 15, 0x80)]
        {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(l.sanitise(&bad), Err(Errno::EINVAL), "{at}");
        }
        assert!(l.sanitise(&good[..511]).is_err());
        assert!(l.sanitise(&[0; 1000]).is_err());
        assert!(l.sanitise(&good[..512]).is_ok());
    }

    #[test]
    fn keeps_the_frame_words() {
        let l = layout();
        let mut b = l.initial();
        b[SW_BYTES..LEGACY].fill(0xaa);
        assert_eq!(l.sanitise(&b).unwrap()[SW_BYTES..LEGACY], l.initial()[SW_BYTES..LEGACY]);
    }
}
