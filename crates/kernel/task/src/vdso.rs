//! The vDSO of a program in a time namespace with offsets: its clocks are the host's, so its functions are made to ask
//! the kernel.
//!
//! The image is the guest's to change, and so is what is read here: nothing outside of the image is written, and nothing of it
//! is believed.

use abi::{Errno, Result};
use platform::Context;

/// The most of an image that is looked at.
const MOST: u64 = 1 << 16;
/// SHT_DYNSYM.
const DYNSYM: u32 = 11;
/// Size of a section header.
const SECTION: usize = 64;
/// Size of a symbol.
const SYMBOL: usize = 24;
/// `mov $SYS_clock_gettime,%eax; syscall; ret`.
const ASK: [u8; 8] = [0xb8, libc::SYS_clock_gettime as u8, 0, 0, 0, 0x0f, 0x05, 0xc3];

/// Makes clock_gettime(3) of the vDSO a system call in this address space. ENOSYS when the image is not understood.
pub(crate) fn ask_for_clocks(ctx: &mut dyn Context, vdso: Option<(u64, u64)>) -> Result<()> {
    let Some((start, len)) = vdso else { return Ok(()) };
    let mut image = vec![0; len.min(MOST) as usize];
    let n = ctx.space().read(start, &mut image);
    image.truncate(n);
    let places = places(&image).ok_or(Errno::ENOSYS)?;
    for place in places {
        ctx.patch_vdso(start + place, &ASK)?;
    }
    Ok(())
}

fn word<const N: usize>(image: &[u8], at: usize) -> Option<[u8; N]> {
    image.get(at..)?.first_chunk().copied()
}

fn long(image: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(word(image, at)?)).ok()
}

fn half(image: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_le_bytes(word(image, at)?).into())
}

/// Offset and length of what section `index` holds, its type, and the section that it refers to.
fn section(image: &[u8], index: usize) -> Option<(u32, usize, usize, usize)> {
    let at = long(image, 40)?.checked_add(index * SECTION)?;
    let kind = u32::from_le_bytes(word(image, at.checked_add(4)?)?);
    let link = u32::from_le_bytes(word(image, at.checked_add(40)?)?) as usize;
    Some((kind, long(image, at.checked_add(24)?)?, long(image, at.checked_add(32)?)?, link))
}

/// Where the image has functions that read a clock which namespaces shift. `None` when it is none or has none.
fn places(image: &[u8]) -> Option<Vec<u64>> {
    if !image.starts_with(b"\x7fELF\x02\x01") || half(image, 58)? != SECTION {
        return None;
    }
    let count = half(image, 60)?;
    let (_, symbols, size, strings) =
        (0..count).filter_map(|i| section(image, i)).find(|(kind, ..)| *kind == DYNSYM)?;
    let (_, names, ..) = section(image, strings).filter(|_| strings < count)?;
    let table = image.get(symbols..symbols.checked_add(size)?)?;
    let mut found = Vec::new();
    for symbol in table.chunks_exact(SYMBOL) {
        let name = u32::from_le_bytes(word(symbol, 0)?) as usize;
        let name = image.get(names.checked_add(name)?..)?.split(|b| *b == 0).next()?;
        let (value, len) = (long(symbol, 8)?, long(symbol, 16)?);
        if matches!(name, b"clock_gettime" | b"__vdso_clock_gettime") && len >= ASK.len() {
            image.get(value..value.checked_add(ASK.len())?)?;
            if !found.contains(&(value as u64)) {
                found.push(value as u64);
            }
        }
    }
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with one function, and the ends of what it needs.
    fn image(name: &[u8], value: u64, len: u64) -> Vec<u8> {
        let mut i = vec![0; 512];
        i[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let put = |i: &mut Vec<u8>, at: usize, v: u64| i[at..at + 8].copy_from_slice(&v.to_le_bytes());
        put(&mut i, 40, 64);
        i[58] = SECTION as u8;
        i[60] = 2;
        i[64 + 4] = DYNSYM as u8;
        put(&mut i, 64 + 24, 256);
        put(&mut i, 64 + 32, SYMBOL as u64);
        i[64 + 40] = 1;
        put(&mut i, 128 + 24, 300);
        put(&mut i, 128 + 32, 32);
        i[256] = 1;
        put(&mut i, 256 + 8, value);
        put(&mut i, 256 + 16, len);
        i[301..301 + name.len()].copy_from_slice(name);
        i
    }

    #[test]
    fn finds_the_function() {
        assert_eq!(places(&image(b"__vdso_clock_gettime", 400, 20)), Some(vec![400]));
        assert_eq!(places(&image(b"__vdso_getcpu", 400, 20)), None);
        assert_eq!(places(&image(b"clock_gettime", 400, 7)), None);
    }

    #[test]
    fn believes_nothing() {
        assert_eq!(places(&image(b"clock_gettime", 505, 20)), None);
        assert_eq!(places(&image(b"clock_gettime", u64::MAX, 20)), None);
        let good = image(b"clock_gettime", 400, 20);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] = 0xff;
            for place in places(&bad).unwrap_or_default() {
                assert!(place as usize + ASK.len() <= bad.len());
            }
            places(&good[..at]);
        }
    }
}
