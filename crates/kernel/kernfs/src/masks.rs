//! Masks of processors as text.

use std::fmt::Write;

/// A mask with every processor.
pub fn all(cpus: usize) -> u64 {
    if cpus >= 64 { u64::MAX } else { (1 << cpus) - 1 }
}

/// A mask as the kernel's `%*pb` prints it: `width` bits, in groups of 32.
pub fn mask_words(mask: u64, width: usize) -> String {
    let mut out = String::new();
    let words = width.div_ceil(32).max(1);
    for i in (0..words).rev() {
        let w = if i < 2 { (mask >> (32 * i)) as u32 } else { 0 };
        let bits = if i + 1 == words && !width.is_multiple_of(32) { width % 32 } else { 32 };
        let _ = write!(out, "{w:0n$x}", n = bits.div_ceil(4).max(1));
        if i > 0 {
            out.push(',');
        }
    }
    out
}

/// A mask as the kernel's `%*pbl` prints it: `0-3,6`.
pub fn mask_list(mask: u64) -> String {
    let mut out = String::new();
    let mut i = 0;
    while i < 64 {
        if mask >> i & 1 == 0 {
            i += 1;
            continue;
        }
        let start = i;
        while i < 64 && mask >> i & 1 == 1 {
            i += 1;
        }
        if !out.is_empty() {
            out.push(',');
        }
        let _ = if i - start == 1 { write!(out, "{start}") } else { write!(out, "{start}-{}", i - 1) };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_look_like_the_kernels() {
        assert_eq!(mask_words(3, 2), "3");
        assert_eq!(mask_words(0xff, 12), "0ff");
        assert_eq!(mask_words(1, 64), "00000000,00000001");
        assert_eq!(mask_words(1, 1024).len(), 32 * 9 - 1);
        assert_eq!(mask_list(0b1011_0111), "0-2,4-5,7");
        assert_eq!(mask_list(u64::MAX), "0-63");
        assert_eq!(mask_list(0), "");
    }
}
