//! Memory of a traced process: its own text, and accesses that page protections do not stop. See ptrace(2), proc_pid_mem(5).
//!
//! A tracer must see and change the program's own bytes. So the platform rewrites nothing in an address space that is,
//! or ever was, traced. The first stop restores rewritten text.

use crate::map::TOUCHED;
use crate::ops::Mm;
use crate::twin_map::Change;
use abi::{Errno, PAGE_SIZE, Result, page_down};
use platform::{Action, Context};

impl Mm {
    /// Whether the text may hold bytes that are not the program's own.
    pub fn is_rewritten(&self) -> bool {
        self.map.lock().rewriting
    }

    /// Gives the text its own bytes back, for good. Executed by the guest thread at once.
    pub fn show_own_text(&self, ctx: &mut dyn Context) {
        if !self.is_rewritten() {
            return;
        }
        let _ops = self.ops.lock();
        self.map.lock().rewriting = false;
        self.untwin(ctx, 0, u64::MAX, Change::Writable);
        self.restore_text(ctx, 0, u64::MAX);
        // Fails only when the process is gone.
        let _ = ctx.flush();
    }

    /// Reads memory whatever its protection is, with the help of a guest thread that is stopped; how many bytes.
    pub fn force_read(&self, ctx: &mut dyn Context, addr: u64, buf: &mut [u8]) -> usize {
        self.by_pages(addr, buf.len(), |from, range| {
            let part = buf.get_mut(range).unwrap_or_default();
            let direct = self.space.read(from, part);
            if direct == part.len() {
                return direct;
            }
            let lifted = self.lifted(ctx, from, libc::PROT_READ, |_| self.space.read(from, part));
            lifted.unwrap_or(direct)
        })
    }

    /// As [`Mm::force_read`], the other way. What is not to be written is written all the same where the mapping is private:
    /// a breakpoint in program text.
    pub fn force_write(&self, ctx: &mut dyn Context, addr: u64, data: &[u8]) -> usize {
        self.by_pages(addr, data.len(), |from, range| {
            let part = data.get(range).unwrap_or_default();
            let direct = self.space.write(from, part);
            if direct == part.len() {
                return direct;
            }
            let lifted = self.lifted(ctx, from, libc::PROT_READ | libc::PROT_WRITE, |ctx| {
                ctx.queue(Action::Write { addr: from, data: part.to_vec() });
                if ctx.flush().is_ok() { part.len() } else { 0 }
            });
            lifted.unwrap_or(direct)
        })
    }

    /// Calls `each` for the parts of a range in one page each, until one is cut short; how many bytes in all.
    fn by_pages(
        &self,
        addr: u64,
        len: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> usize,
    ) -> usize {
        let mut done = 0;
        while done < len {
            let Some(from) = addr.checked_add(done as u64) else { break };
            let room = (PAGE_SIZE - from % PAGE_SIZE) as usize;
            let n = room.min(len - done);
            let moved = each(from, done..done + n);
            done += moved;
            if moved < n {
                break;
            }
        }
        done
    }

    /// Runs `f` while the page of `addr` has these protection bits as well. EFAULT where there is no such page, or where
    /// Linux's FOLL_FORCE would not help: a shared mapping that is not to be written.
    fn lifted(
        &self,
        ctx: &mut dyn Context,
        addr: u64,
        more: i32,
        f: impl FnOnce(&mut dyn Context) -> usize,
    ) -> Result<usize> {
        let _ops = self.ops.lock();
        let page = page_down(addr);
        let write = more & libc::PROT_WRITE != 0;
        let prot = {
            let mut m = self.map.lock();
            let v = m.find(addr).ok_or(Errno::EFAULT)?;
            let prot = v.prot;
            if v.shared && write && prot & libc::PROT_WRITE == 0 {
                return Err(Errno::EFAULT);
            }
            if write {
                m.update(page, page + PAGE_SIZE, |v| v.flags |= TOUCHED);
            }
            prot
        };
        ctx.queue(Action::Protect { addr: page, len: PAGE_SIZE, prot: prot | more });
        ctx.flush()?;
        let done = f(ctx);
        ctx.queue(Action::Protect { addr: page, len: PAGE_SIZE, prot });
        ctx.flush()?;
        Ok(done)
    }
}
