//! Just enough of ELF to load a static test program.

/// A loadable segment.
pub struct Segment<'a> {
    pub addr: u64,
    pub data: &'a [u8],
    pub size: u64,
    pub prot: i32,
}

fn u(b: &[u8], at: usize, n: usize) -> u64 {
    b[at..at + n].iter().rev().fold(0, |v, x| v << 8 | u64::from(*x))
}

/// Entry point and segments of a static x86-64 executable.
pub fn parse(b: &[u8]) -> (u64, Vec<Segment<'_>>) {
    assert_eq!(&b[..4], b"\x7fELF");
    let (entry, at, size, n) =
        (u(b, 24, 8), u(b, 32, 8) as usize, u(b, 54, 2) as usize, u(b, 56, 2) as usize);
    let segment = |i: usize| {
        let p = at + i * size;
        let (kind, flags) = (u(b, p, 4), u(b, p + 4, 4));
        let (offset, addr, filesz, memsz) =
            (u(b, p + 8, 8) as usize, u(b, p + 16, 8), u(b, p + 32, 8) as usize, u(b, p + 40, 8));
        let prot = (flags & 1) << 2 | (flags & 2) | (flags & 4) >> 2;
        (kind == 1).then(|| Segment {
            addr,
            data: &b[offset..offset + filesz],
            size: memsz,
            prot: prot as i32,
        })
    };
    (entry, (0..n).filter_map(segment).collect())
}
