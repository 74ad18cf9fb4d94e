//! /proc/PID/maps. See proc_pid_maps(5).

use abi::Result;
use abi::stat::{major, minor};
use kernfs::At;
use mm::{Vma, VmaKind};

/// A line of maps and what smaps needs besides.
pub struct Line {
    /// The mapping.
    pub vma: Vma,
    /// Name in the last column.
    pub name: Vec<u8>,
    /// Device and inode number.
    pub object: (u64, u64),
    /// Made by the kernel, not by the program (vdso and the like).
    pub special: bool,
}

fn escape(name: Vec<u8>) -> Vec<u8> {
    if !name.contains(&b'\n') {
        return name;
    }
    name.into_iter().flat_map(|b| if b == b'\n' { b"\\012".to_vec() } else { vec![b] }).collect()
}

fn special(name: &str, start: u64, len: u64, prot: i32) -> Line {
    let vma = Vma {
        start,
        end: start.saturating_add(len),
        prot,
        shared: false,
        flags: 0,
        file: None,
        offset: 0,
        locked: false,
        kind: VmaKind::Normal,
        policy: mm::Policy::default(),
    };
    Line { vma, name: name.as_bytes().to_vec(), object: (0, 0), special: true }
}

/// /proc/PID/numa_maps: the policy of each mapping. The host alone knows which pages are there.
pub fn numa_maps(at: &At) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for l in lines(at)?.iter().filter(|l| !l.special) {
        out.extend_from_slice(format!("{:08x} {}", l.vma.start, l.vma.policy.text()).as_bytes());
        match l.vma.kind {
            VmaKind::Heap => out.extend_from_slice(b" heap"),
            VmaKind::Stack => out.extend_from_slice(b" stack"),
            _ if l.vma.file.is_some() || l.vma.shared => {
                out.extend_from_slice(b" file=");
                out.extend_from_slice(&l.name);
            }
            _ => {}
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// All mappings of the process in address order.
pub fn lines(at: &At) -> Result<Vec<Line>> {
    let Some(mm) = at.mm()? else { return Ok(Vec::new()) };
    let vmas: Vec<Vma> = mm.with_map(|m| m.iter().cloned().collect());
    let mut out: Vec<Line> = Vec::with_capacity(vmas.len() + 3);
    out.extend(vmas.into_iter().map(|vma| line(at, vma)));
    out.extend(of_the_kernel(at));
    out.sort_by_key(|l| l.vma.start);
    out.push(special("[vsyscall]", 0xffff_ffff_ff60_0000, 0x1000, libc::PROT_EXEC));
    Ok(out)
}

/// A mapping of the program.
pub fn line(at: &At, vma: Vma) -> Line {
    let mut object = (0, 0);
    let name = match (&vma.file, &vma.kind) {
        (_, VmaKind::SharedAnon(_)) => {
            object = (1, vma.start >> 12 & 0xffff);
            b"/dev/zero (deleted)".to_vec()
        }
        (Some(f), _) => {
            object = f.attr().map_or((0, 0), |a| (a.dev, a.ino));
            escape(at.show_file(f))
        }
        (None, VmaKind::Heap) => b"[heap]".to_vec(),
        (None, VmaKind::Stack) => b"[stack]".to_vec(),
        (None, VmaKind::Normal) => Vec::new(),
    };
    Line { vma, name, object, special: false }
}

/// The vDSO and its data.
pub fn of_the_kernel(at: &At) -> impl Iterator<Item = Line> {
    let limits = at.kernel().platform.limits();
    let data = limits.vvar.map(|(start, len)| special("[vvar]", start, len, libc::PROT_READ));
    let text = libc::PROT_READ | libc::PROT_EXEC;
    let code = limits.vdso.map(|(start, len)| special("[vdso]", start, len, text));
    data.into_iter().chain(code)
}

/// The line as text.
pub fn header(l: &Line) -> Vec<u8> {
    let v = &l.vma;
    let bit = |p: i32, c: char| if v.prot & p != 0 { c } else { '-' };
    let s = format!(
        "{:08x}-{:08x} {}{}{}{} {:08x} {:02x}:{:02x} {} ",
        v.start,
        v.end,
        bit(libc::PROT_READ, 'r'),
        bit(libc::PROT_WRITE, 'w'),
        bit(libc::PROT_EXEC, 'x'),
        if v.shared { 's' } else { 'p' },
        if v.file.is_some() { v.offset } else { 0 },
        major(l.object.0),
        minor(l.object.0),
        l.object.1
    );
    let mut out = s.into_bytes();
    if !l.name.is_empty() {
        // The name starts in this column, or one blank behind what is longer.
        out.resize(out.len().max(73), b' ');
        out.extend_from_slice(&l.name);
    }
    out.push(b'\n');
    out
}

pub fn maps(at: &At) -> Result<Vec<u8>> {
    Ok(lines(at)?.iter().flat_map(header).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_kernels_columns() {
        let l = special("[vsyscall]", 0xffff_ffff_ff60_0000, 0x1000, libc::PROT_EXEC);
        let text = String::from_utf8(header(&l)).unwrap();
        assert_eq!(
            text,
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
        );
        let mut l = special("", 0x5500_0000_0000, 0x1000, 3);
        assert_eq!(header(&l), b"550000000000-550000001000 rw-p 00000000 00:00 0 \n");
        l.name = b"[heap]".to_vec();
        let text = String::from_utf8(header(&l)).unwrap();
        assert_eq!(text.find("[heap]"), Some(73));
    }
}
