//! A twin of a file's text: a copy in memory in which call sites are rewritten once, for every process that maps it.
//!
//! The trampolines are in the zeros behind the text, up to the end of its last page. The copy is sealed before any
//! other process sees it. Only the sentry's own mapping can write it. Each process has the descriptor for a moment, and
//! can do no more with it than map it, as it can map the file.
//!
//! Any process may name any address as a call site, and all processes execute the result. So the sentry trusts no name
//! and looks at the bytes. A head is `mov $number` and `syscall`: seven bytes that are not the end of a longer
//! instruction that compilers write. The only accepted tail is that of C libraries: `syscall` and a comparison of rax
//! with -4096 or -4095. Two bytes that look like a `syscall` in the middle of another instruction remain what they
//! were. Text in the page of the trampolines is not rewritten, because that page may become private to a program while
//! other pages still lead there.

use crate::rewrite::{AROUND, Site, code, free, in_one_line, jump, put_back, shape};
use abi::{Errno, PAGE_SIZE, Result, page_down};
use hostsys::memfd::{self, SharedMapping};
use parking_lot::RwLock;
use platform::Twin;
use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use stub::layout::TRAMP_SIZE;

/// Fewer trampolines are not worth a copy.
const FEWEST: u64 = 4;
/// Most sites that are remembered as impossible.
const MAX_REFUSED: usize = 1024;

/// All numbers are offsets from the start.
#[derive(Default)]
struct Tables {
    /// By trampoline.
    sites: HashMap<u64, Site>,
    /// Addresses after `syscall`, and whether the site is rewritten.
    known: HashMap<u64, bool>,
}

/// See [`platform::Twin`].
pub(crate) struct TextTwin {
    fd: Arc<OwnedFd>,
    map: SharedMapping,
    trampolines: Range<u64>,
    tables: RwLock<Tables>,
}

impl TextTwin {
    /// A twin of the pages `text`, of which the program's own part ends at `end`. The sites of `hot` are rewritten before anybody
    /// can execute them.
    pub(crate) fn new(text: &[u8], end: u64, hot: &[u64]) -> Result<TextTwin> {
        let len = text.len() as u64;
        let first = end.next_multiple_of(TRAMP_SIZE);
        let fits = len.is_multiple_of(PAGE_SIZE) && len > PAGE_SIZE && end < len && end >= len - PAGE_SIZE;
        let room = len.saturating_sub(first) / TRAMP_SIZE;
        let zeros = usize::try_from(end)
            .ok()
            .and_then(|end| text.get(end..))
            .is_some_and(|z| z.iter().all(|b| *b == 0));
        if !fits || !zeros || room < FEWEST {
            return Err(Errno::EINVAL);
        }
        let fd = memfd::create(c"ringfence-text", len, true)?;
        memfd::write_all(fd.as_fd(), text, 0)?;
        let map = SharedMapping::new(&fd, 0, text.len())?;
        memfd::seal_future(fd.as_fd())?;
        let twin = TextTwin { fd: Arc::new(fd), map, trampolines: first..len, tables: RwLock::default() };
        let done = hot.iter().filter(|rip| twin.rewrite(**rip, true)).count();
        if done == 0 && !hot.is_empty() {
            return Err(Errno::EINVAL);
        }
        Ok(twin)
    }

    /// Rewrites a site. `alone`: no thread executes it yet.
    fn rewrite(&self, rip: u64, alone: bool) -> bool {
        if let Some(done) = self.tables.read().known.get(&rip) {
            return *done;
        }
        let mut t = self.tables.write();
        if let Some(done) = t.known.get(&rip) {
            return *done;
        }
        let site = self.plan(&t, rip, alone);
        if let Some((trampoline, site)) = site {
            t.sites.insert(trampoline, site);
        } else if t.known.len() >= MAX_REFUSED {
            return false;
        }
        t.known.insert(rip, site.is_some());
        site.is_some()
    }

    /// Writes the trampoline, then the jump to it.
    fn plan(&self, t: &Tables, rip: u64, alone: bool) -> Option<(u64, Site)> {
        let start = rip.checked_sub(AROUND as u64)?;
        if rip > page_down(self.trampolines.start) - AROUND as u64 {
            return None;
        }
        let mut bytes = [0; 2 * AROUND];
        self.map.copy_out(usize::try_from(start).ok()?, &mut bytes);
        let shape = shape(&bytes)?;
        let (_, after) = bytes.split_at(AROUND);
        // See the top: of tails only what cannot be anything else.
        if !shape.tail.is_empty() && !matches!(after, [0x48, 0x3d, 0 | 1, 0xf0, 0xff, 0xff, ..]) {
            return None;
        }
        let at = rip - shape.before as u64;
        let trampoline = free(&t.sites, self.trampolines.clone(), at, shape.traps)?;
        let code = code(&shape, trampoline, rip)?;
        let jump = jump(at, trampoline)?;
        let swap = in_one_line(at);
        if swap.is_none() && !alone {
            return None;
        }
        self.map.copy_in(trampoline as usize, &code);
        match swap {
            // Others may execute it: all of it changes in one step, behind the trampoline.
            Some(word) => {
                let mut old = [0; 8];
                self.map.copy_out(word as usize, &mut old);
                let mut new = old;
                let offset = (at - word) as usize;
                new.get_mut(offset..offset + jump.len())?.copy_from_slice(&jump);
                self.map.exchange_in_line(word as usize, u64::from_le_bytes(old), u64::from_le_bytes(new));
            }
            None => self.map.copy_in(at as usize, &jump),
        }
        let mut old = [0; 5];
        old.copy_from_slice(bytes.get(AROUND - shape.before..)?.get(..5)?);
        Some((trampoline, Site { at, rip, tail: shape.tail.len() as u64, old }))
    }
}

impl Twin for TextTwin {
    fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    fn trampolines(&self) -> Range<u64> {
        self.trampolines.clone()
    }

    fn rewrite(&self, rip: u64) -> bool {
        TextTwin::rewrite(self, rip, false)
    }

    fn own_offset(&self, offset: u64) -> u64 {
        let inside = offset % TRAMP_SIZE;
        self.tables.read().sites.get(&(offset - inside)).map_or(offset, |s| s.own(inside))
    }

    fn show_own(&self, offset: u64, bytes: &mut [u8]) {
        for (trampoline, site) in &self.tables.read().sites {
            if let Some(jump) = jump(site.at, *trampoline) {
                put_back(bytes, offset, site.at, &jump, &site.old);
            }
            let mut code = [0; TRAMP_SIZE as usize];
            self.map.copy_out(*trampoline as usize, &mut code);
            put_back(bytes, offset, *trampoline, &code, &[0; TRAMP_SIZE as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::{INVALID, Sites};
    use stub::layout::{STUB_FAST, TRAMP_BACK, TRAMP_CALL, TRAMP_ENTRY, TRAMP_FALLBACK, TRAMP_RIP};

    const END: u64 = 0x2084;

    /// Two pages of code and a third with a little of it.
    fn text(code: &[(usize, &[u8])]) -> Vec<u8> {
        let mut t = vec![0xf4; 3 * PAGE_SIZE as usize];
        t[END as usize..].fill(0);
        for (at, bytes) in code {
            t[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        t
    }

    const HEAD: &[u8] = &[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];
    const TAIL: &[u8] = &[0x31, 0xc0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];

    fn bytes(t: &TextTwin, at: u64, n: usize) -> Vec<u8> {
        let mut b = vec![0; n];
        t.map.copy_out(at as usize, &mut b);
        b
    }

    fn word(t: &TextTwin, at: u64) -> u64 {
        u64::from_le_bytes(bytes(t, at, 8).try_into().unwrap())
    }

    #[test]
    fn a_site_leads_to_a_trampoline_behind_the_text() {
        let t = TextTwin::new(&text(&[(0x100, HEAD)]), END, &[]).unwrap();
        let rip = 0x107;
        assert!(t.rewrite(rip, false) && t.rewrite(rip, false));
        let jump = bytes(&t, 0x100, 8);
        assert_eq!((jump[0], &jump[5..]), (0xe9, &HEAD[5..]));
        let trampoline = 0x105 + u64::from(u32::from_le_bytes(jump[1..5].try_into().unwrap()));
        assert!(t.trampolines().contains(&trampoline) && trampoline >= END);
        assert_eq!(bytes(&t, trampoline, 5), &HEAD[..5]);
        assert_eq!(word(&t, trampoline + TRAMP_ENTRY), STUB_FAST);
        assert_eq!(trampoline.wrapping_add(word(&t, trampoline + TRAMP_RIP)), rip);
        assert_eq!(trampoline.wrapping_add(word(&t, trampoline + TRAMP_FALLBACK)), rip - 2);
        // The same wherever it is mapped.
        let sites = Sites::default();
        let t: Arc<dyn Twin> = Arc::new(t);
        for start in [0x40_0000, 0x7f00_1234_5000] {
            sites.add_twin(start, t.clone());
            assert_eq!(sites.guest_rip(start + trampoline), start + 0x100);
            assert_eq!(sites.guest_rip(start + trampoline + 5), start + rip - 2);
            assert_eq!(sites.guest_rip(start + trampoline + TRAMP_BACK), start + rip);
            assert_eq!(sites.guest_rip(start + 0x100), start + 0x100);
        }
        sites.forget_twin(0x40_0000);
        assert_eq!(sites.guest_rip(0x40_0000 + trampoline), 0x40_0000 + trampoline);
        assert_eq!(sites.former_rip(0x40_0000 + trampoline + TRAMP_BACK), Some(0x40_0000 + rip));
        assert_eq!(sites.former_rip(0x7f00_1234_5000 + trampoline), None);
        assert_eq!(sites.copy().guest_rip(0x7f00_1234_5000 + trampoline), 0x7f00_1234_5100);
    }

    #[test]
    fn a_tail_traps_in_the_middle() {
        let mut done = 0;
        for at in (0x80..0x1f00).step_by(0x40) {
            let t = TextTwin::new(&text(&[(at, TAIL)]), END, &[]).unwrap();
            if !t.rewrite(at as u64 + 4, false) {
                continue;
            }
            done += 1;
            let jump = bytes(&t, at as u64 + 2, 5);
            assert_eq!(jump[0], 0xe9);
            assert!(INVALID.contains(&jump[2]));
            let distance = u32::from_le_bytes(jump[1..5].try_into().unwrap());
            let trampoline = at as u64 + 7 + u64::from(distance);
            assert_eq!(word(&t, trampoline + TRAMP_FALLBACK), TRAMP_CALL);
            assert_eq!(t.own_offset(trampoline + TRAMP_BACK + 6), at as u64 + 10);
        }
        assert!(done > 20, "{done}");
    }

    #[test]
    fn only_what_cannot_be_anything_else() {
        // The end of an instruction, a return, other instructions, a jump: all of them could be rewritten in a program's own memory.
        let others: [&[u8]; 3] = [
            &[0xb8, 0x0f, 0x05, 0xc3, 0x90, 0x90],
            &[0x89, 0x0f, 0x05, 0x48, 0x89, 0xc3],
            &[0x0f, 0x05, 0x85, 0xc0, 0x89, 0xc2],
        ];
        for (i, b) in others.iter().enumerate() {
            let t = TextTwin::new(&text(&[(0x100, b)]), END, &[]).unwrap();
            let before = bytes(&t, 0, 0x3000);
            for rip in 0..0x3000 {
                assert!(!t.rewrite(rip, false) && !t.rewrite(rip, true), "{i} at {rip:#x}");
            }
            for rip in [u64::MAX, 1 << 40, 0x2fff, 0x3000, 0x3010] {
                assert!(!t.rewrite(rip, false));
            }
            assert_eq!(bytes(&t, 0, 0x3000), before);
        }
    }

    #[test]
    fn readers_see_the_file() {
        let code = text(&[(0x100, HEAD), (0x17e, TAIL), (0x1004, HEAD)]);
        let t = TextTwin::new(&code, END, &[]).unwrap();
        assert!(t.rewrite(0x107, false) && t.rewrite(0x100b, false));
        t.rewrite(0x182, false);
        assert_ne!(bytes(&t, 0, 0x3000), code);
        for (from, len) in
            [(0, 0x3000), (0x101, 3), (0x104, 1), (0x102, 0x1000), (0x20c0, 0x100), (0x2fff, 1)]
        {
            let mut read = bytes(&t, from, len);
            t.show_own(from, &mut read);
            assert_eq!(read, code[from as usize..from as usize + len], "{len} at {from:#x}");
        }
        // What the program has written itself stays.
        let mut own = vec![0xcc; 0x20];
        t.show_own(0xf8, &mut own);
        assert_eq!(own, [0xcc; 0x20]);
        // Where it is mapped; beside it are others.
        let sites = Sites::default();
        let t = Arc::new(t);
        sites.add_twin(0x5000_0000, t.clone());
        let mut read = [vec![7; 16], bytes(&t, 0, 0x3000), vec![9; 16]].concat();
        sites.show_own(0x5000_0000 - 16, &mut read);
        assert_eq!(read, [vec![7; 16], code, vec![9; 16]].concat());
    }

    #[test]
    fn sites_across_cache_lines_and_in_the_last_page() {
        let code = text(&[(0x13d, HEAD), (0x2000, HEAD)]);
        let t = TextTwin::new(&code, END, &[]).unwrap();
        assert!(!t.rewrite(0x144, false) && !t.rewrite(0x2007, true));
        let t = TextTwin::new(&code, END, &[0x144, 0x2007]).unwrap();
        assert!(t.rewrite(0x144, false) && !t.rewrite(0x2007, false));
        assert_eq!(bytes(&t, 0x13d, 1), [0xe9]);
    }

    #[test]
    fn it_ends_with_the_room() {
        let code: Vec<(usize, &[u8])> = (1..0x70).map(|i| (i * 64, HEAD)).collect();
        let t = TextTwin::new(&text(&code), END, &[]).unwrap();
        let done = (1..0x70).filter(|i| t.rewrite(i * 64 + 7, false)).count() as u64;
        assert_eq!(done, (0x3000 - 0x20c0) / TRAMP_SIZE);
        // Every jump leads to a trampoline of its own.
        let mut seen = std::collections::HashSet::new();
        for i in 1..=done {
            let b = bytes(&t, i * 64, 5);
            assert!(seen.insert(i * 64 + 5 + u64::from(u32::from_le_bytes(b[1..].try_into().unwrap()))));
        }
    }

    #[test]
    fn no_room_no_twin() {
        let mut t = text(&[]);
        assert!(TextTwin::new(&t, 0x2f40, &[]).is_err());
        assert!(TextTwin::new(&t, 0x3000, &[]).is_err());
        assert!(TextTwin::new(&t, 0x1fff, &[]).is_err());
        assert!(TextTwin::new(&t[..0x1000], 0x84, &[]).is_err());
        t[0x2fff] = 1;
        assert!(TextTwin::new(&t, END, &[]).is_err());
    }

    #[test]
    fn nobody_else_can_write_it() {
        let t = TextTwin::new(&text(&[(0x100, HEAD)]), END, &[]).unwrap();
        assert!(memfd::write_all(t.fd().as_fd(), b"x", 0).is_err());
        assert!(SharedMapping::new(&**t.fd(), 0, 0x3000).is_err());
        assert!(memfd::seal(t.fd().as_fd()).is_err());
        assert!(hostsys::fs::truncate(&**t.fd(), 0).is_err());
        // The one that was there first can.
        assert!(t.rewrite(0x107, false));
    }
}
