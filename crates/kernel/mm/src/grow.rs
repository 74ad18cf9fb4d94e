//! MAP_GROWSDOWN: a mapping grows when the program touches memory below it.

use crate::map::Vma;
use crate::ops::Mm;
use abi::{PAGE_SIZE, page_down};
use platform::{Action, Context};
use vfs::Caller;

/// Room that stays free above the mapping below (stack_guard_gap).
const GUARD: u64 = 256 * PAGE_SIZE;

impl Mm {
    /// Grows the mapping above an address that is not mapped down to it. False when there is none that may.
    pub fn grow_down(&self, cx: &dyn Caller, ctx: &mut dyn Context, addr: u64) -> bool {
        let start = page_down(addr);
        let _ops = self.ops.lock();
        let Some(vma) = self.growing(cx, start) else { return false };
        let len = vma.start - start;
        ctx.queue(Action::MapAnon { addr: start, len, prot: vma.prot, flags: 0 });
        if ctx.flush().is_err() {
            return false;
        }
        self.map.lock().insert(Vma { start, end: vma.start, ..vma });
        true
    }

    /// The mapping that may grow down to an address.
    fn growing(&self, cx: &dyn Caller, start: u64) -> Option<Vma> {
        let m = self.map.lock();
        let (below, above) = m.neighbours(start)?;
        let len = above.start - start;
        let grows = |v: &Vma| v.flags & libc::MAP_GROWSDOWN != 0;
        let any = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let close = below.is_some_and(|b| !grows(b) && b.prot & any != 0 && start - b.end < GUARD);
        let fits = above.end - start <= cx.rlimit(libc::RLIMIT_STACK as i32)
            && m.total() + len <= cx.rlimit(libc::RLIMIT_AS as i32)
            && (!above.locked || m.room_to_lock(cx, len).is_ok());
        let own = above.file.is_none() && !above.shared;
        (grows(above) && own && fits && !close && start >= m.min).then(|| above.clone())
    }
}
