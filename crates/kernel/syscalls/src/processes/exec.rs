//! execve(2), execveat(2).

use crate::arg::{DirFd, PathPtr, Ptr};
use abi::{Errno, PAGE_SIZE, page_down};
use exec::{MAX_ARG_STRLEN, Program};
use namei::lookup::{Lookup, Start};
use task::{Current, SysResult};

/// Most strings in argv or envp together that can fit the largest argument space.
const MAX_STRINGS: usize = 1 << 20;

/// Longest stretch of strings read in one go.
const MAX_BLOCK: u64 = 64 << 10;

/// Most pages read besides, for each page of pointers.
const MAX_PAGES: usize = 16;

/// Guest memory that holds several strings, read in one go.
struct Block {
    start: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Strings of one list usually stand close together.
    fn read(c: &Current, pointers: &[u64]) -> Block {
        let set = || pointers.iter().copied().take_while(|p| *p != 0);
        let (Some(start), Some(last)) = (set().min(), set().max()) else {
            return Block { start: 0, bytes: Vec::new() };
        };
        // To the end of the last one's page: the next may be missing.
        let len = (last | 4095).saturating_sub(start).saturating_add(1);
        let mut bytes = vec![0; if len <= MAX_BLOCK { len as usize } else { 0 }];
        let got = c.read_some(start, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        Block { start, bytes }
    }

    /// The page of one string: a shell's environment is partly on the stack, partly on the heap.
    fn page(c: &Current, p: u64) -> Block {
        let start = page_down(p);
        let mut bytes = vec![0; PAGE_SIZE as usize];
        let got = c.read_some(start, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        Block { start, bytes }
    }

    fn holds(&self, p: u64) -> bool {
        p.checked_sub(self.start).is_some_and(|offset| offset < self.bytes.len() as u64)
    }

    /// The string at `p` if all of it was read.
    fn string(&self, p: u64) -> Option<&[u8]> {
        let rest = self.bytes.get(usize::try_from(p.checked_sub(self.start)?).ok()?..)?;
        rest.get(..rest.iter().position(|b| *b == 0)?)
    }
}

/// Most bytes of arguments and environment together.
const MAX_BYTES: usize = 6 << 20;

/// The strings of argv or envp.
pub(crate) fn read_strings(c: &Current, list: Ptr) -> Result<Vec<Vec<u8>>, Errno> {
    let mut budget = MAX_BYTES;
    strings(c, list, &mut budget)
}

fn strings(c: &Current, list: Ptr, budget: &mut usize) -> Result<Vec<Vec<u8>>, Errno> {
    let mut out = Vec::new();
    if list.is_null() {
        return Ok(out);
    }
    let mut at = list.0;
    let mut words = [0u64; 64];
    loop {
        // As many pointers as the page holds: the next page may be missing.
        let n = (((4096 - at % 4096) / 8).max(1) as usize).min(words.len());
        let mut bytes = vec![0u8; n * 8];
        let got = c.read_some(at, &mut bytes)? / 8;
        if got == 0 {
            return Err(Errno::EFAULT);
        }
        for (w, b) in words.iter_mut().zip(bytes.chunks_exact(8)).take(got) {
            *w = b.iter().rev().fold(0, |v, &x| v << 8 | x as u64);
        }
        let mut blocks = vec![Block::read(c, &words[..got])];
        for &p in &words[..got] {
            if p == 0 {
                return Ok(out);
            }
            if blocks.len() <= MAX_PAGES && !blocks.iter().any(|b| b.holds(p)) {
                blocks.push(Block::page(c, p));
            }
            let s = match blocks.iter().find_map(|b| b.string(p)) {
                Some(s) => s.to_vec(),
                None => c.read_cstr(p, MAX_ARG_STRLEN, Errno::E2BIG)?,
            };
            *budget = budget.checked_sub(s.len() + 9).ok_or(Errno::E2BIG)?;
            if out.len() >= MAX_STRINGS {
                return Err(Errno::E2BIG);
            }
            out.push(s);
        }
        at = at.checked_add(got as u64 * 8).ok_or(Errno::EFAULT)?;
    }
}

pub fn execve(c: &mut Current, path: PathPtr, argv: Ptr, envp: Ptr) -> SysResult {
    execveat(c, DirFd(libc::AT_FDCWD), path, argv, envp, 0)
}

/// Asks whether the program could be executed.
const AT_EXECVE_CHECK: i32 = 0x1_0000;

pub fn execveat(c: &mut Current, dir: DirFd, path: PathPtr, argv: Ptr, envp: Ptr, flags: i32) -> SysResult {
    crate::arg::check_flags(flags, libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK)?;
    let name = c.read_path(path.0)?;
    let mut budget = MAX_BYTES;
    let mut argv = strings(c, argv, &mut budget)?;
    let envp = strings(c, envp, &mut budget)?;
    if argv.is_empty() {
        // Linux passes one empty argument rather than none.
        argv.push(Vec::new());
    }
    let mut look = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { Lookup::default() } else { Lookup::FOLLOW };
    if flags & libc::AT_EMPTY_PATH != 0 {
        look |= Lookup::EMPTY_PATH;
    }
    let from_dir = dir.0 != libc::AT_FDCWD && name.first() != Some(&b'/');
    let start = if from_dir { Start::File(c.file(dir.0)?) } else { Start::Cwd };
    let view = c.fs().view();
    let file = namei::opening::open_exec(c, &view, &start, &name, look)?;
    if flags & AT_EXECVE_CHECK != 0 {
        return Ok(0);
    }
    let filename = match (from_dir, name.is_empty()) {
        (false, _) => name,
        (true, true) => format!("/dev/fd/{}", dir.0).into_bytes(),
        (true, false) => [format!("/dev/fd/{}/", dir.0).as_bytes(), &name].concat(),
    };
    let inaccessible = from_dir && c.fd_table().cloexec(dir.0)?;
    exec::exec(c, Program { file, filename, argv, envp, inaccessible })
}
