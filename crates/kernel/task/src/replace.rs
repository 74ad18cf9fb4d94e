//! The part of execve(2) that cannot fail any more: the other threads end, and memory, descriptors, handlers and credentials
//! change. The crate `exec` prepares the new memory.

use crate::current::Current;
use crate::hold_creds::CredLock;
use crate::life::Life;
use crate::reuse::{domain_of, exit_or_keep};
use crate::task::Task;
use crate::usage::{begin_end, retire_memory};
use abi::Errno;
use mm::Mm;
use platform::{Action, Context, OwnCall, Word};
use rights::Credentials;
use signal::AltStack;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sysresult::SysErr;

/// A program in memory of its own that is ready to run.
pub struct ProgramImage {
    /// The platform's side; its registers are the program's first.
    pub ctx: Box<dyn Context>,
    /// Its memory.
    pub mm: Arc<Mm>,
}

/// Credentials of a new program.
#[derive(Debug)]
pub struct NewCreds {
    /// The credentials.
    pub creds: Credentials,
    /// The program has more rights than its caller: AT_SECURE, getauxval(3).
    pub secure: bool,
}

impl Current {
    /// Replaces the program that the process runs by a loaded one. EAGAIN, and nothing has changed, when the process
    /// ends. `guard` was taken before the credentials were computed.
    pub fn replace_program(
        &mut self,
        mut loaded: ProgramImage,
        name: &[u8],
        creds: NewCreds,
        guard: CredLock,
    ) -> Result<(), SysErr> {
        let former = self.number_for_tracer(&self.task);
        let time = self.task.nsproxy().time_for_children.clone();
        if time.is_shifted() {
            let vdso = self.kernel().platform.limits().vdso;
            if let Err(e) = crate::vdso::ask_for_clocks(&mut *loaded.ctx, vdso) {
                loaded.ctx.exit();
                return Err(e.into());
            }
        }
        if let Err(e) = self.dethread() {
            loaded.ctx.exit();
            return Err(e);
        }
        self.commit(loaded, name, creds);
        drop(guard);
        self.ptrace_exec(former);
        Ok(())
    }

    /// Whether another process uses the same file system context (CLONE_FS).
    pub fn shares_fs_with_others(&self) -> bool {
        let ours = |t: &Arc<Task>| t.fs().is_some_and(|fs| Arc::ptr_eq(&fs, self.fs()));
        let own = self.task.group.threads().iter().filter(|t| ours(t)).count();
        self.fs_context.tasks() > own
    }

    /// Ends every other thread of the process and takes the leader's id.
    fn dethread(&mut self) -> Result<(), SysErr> {
        let g = self.task.group.clone();
        let me = self.task.tid();
        {
            let mut s = g.signals.lock();
            if !s.life.is_running() {
                return Err(Errno::EAGAIN.into());
            }
            if s.threads.len() == 1 && me == g.tgid {
                return Ok(());
            }
            s.life = Life::Dethreading(me);
            for t in s.threads.iter().filter(|t| !Arc::ptr_eq(t, &self.task)) {
                t.kill();
            }
        }
        let _sub = g.thread_exit.subscribe(wait::Events::ALL, self.task.waiter.clone());
        loop {
            {
                let mut s = g.signals.lock();
                if s.life.is_over() {
                    return Err(Errno::EAGAIN.into());
                }
                if s.threads.len() == 1 {
                    s.life = Life::Running;
                    break;
                }
            }
            let _ = self.task.waiter.sleep_uninterruptible(None);
        }
        if me != g.tgid {
            let mut t = self.kernel().tree.lock();
            t.remove_task(me);
            if let Some(n) = t.node(g.tgid) {
                self.task.set_pid(n.pid.clone());
            }
            t.add_task(self.task.clone());
            t.leader_replaced(g.tgid);
            t.hand_to_thread(g.tgid, me, g.tgid);
            let old = t.trace_renamed(&self.task, me, g.tgid);
            drop(t);
            drop(old);
        }
        Ok(())
    }

    /// Puts the new memory, name and credentials in the place of the old ones.
    fn commit(&mut self, l: ProgramImage, name: &[u8], creds: NewCreds) {
        let g = self.task.group.clone();
        crate::futex::release(self, false);
        self.measure_end();
        g.usage.lock().image_ends();
        let clear_child_tid = self.task.word(Word::ClearChildTid);
        if clear_child_tid != 0 && self.mm.users.shared() {
            self.ctx.queue(Action::StoreAndWake { addr: clear_child_tid, value: Some(0), wake: 1 });
        }
        self.task.set_interrupter(Some(l.ctx.interrupter()));
        // In memory that earlier users of the address space cannot write.
        self.task.set_word(Word::RobustList, 0);
        self.task.set_word(Word::ClearChildTid, 0);
        let own_time = self.exact_user_time();
        let dumpable = self.mm.dumpable.load(Ordering::Relaxed) == 1;
        let domain = (dumpable && !self.mm.users.shared())
            .then(|| domain_of(&self.task, self.fs(), &self.task.creds()))
            .flatten();
        let old_ctx = std::mem::replace(&mut self.ctx, l.ctx);
        let filter = self.mm.dump_filter.load(Ordering::Relaxed);
        l.mm.dump_filter.store(filter, Ordering::Relaxed);
        let huge_pages_off = self.mm.huge_pages_off.load(Ordering::Relaxed);
        if huge_pages_off != 0
            && self.ctx.own_call(OwnCall::HugePagesOff(true, (huge_pages_off & 2).into()), &mut []).is_ok()
        {
            l.mm.huge_pages_off.store(huge_pages_off, Ordering::Relaxed);
        }
        if self.task.creds().outgrown_by(&creds.creds) {
            // Before anybody finds the memory: the credentials are the old ones for a while.
            l.mm.dumpable.store(0, Ordering::SeqCst);
        }
        let (old_mm, ending) = {
            let s = g.signals.lock();
            self.task.note_pending();
            // Which memory the end of the process is counted for is decided together with the change.
            (self.mm.replace(&self.task.mm_slot, l.mm), s.life.is_over())
        };
        if ending {
            begin_end(&g, &self.mm);
        }
        let group_time = retire_memory(&g, &old_mm, ending);
        let before = self.task.user_before.load(Ordering::Relaxed);
        let before = before.saturating_add(own_time.unwrap_or(group_time));
        self.task.user_before.store(before, Ordering::Relaxed);
        exit_or_keep(&g, old_ctx, domain);
        drop(old_mm);
        let gate = self.task.vfork.lock().take();
        if let Some(gate) = gate {
            gate.open();
        }
        if self.fd_table.is_shared() {
            let t = self.fd_table.duplicate();
            self.set_fds(t);
        }
        self.fd_table.close_on_exec(self);
        g.unshare_handlers();
        g.handlers().lock().reset_for_exec();
        g.timers.posix.clear();
        {
            let mut s = g.signals.lock();
            s.shared.remove_timers();
            g.shared_set.store(s.shared.set().0, Ordering::SeqCst);
            self.task.pending.lock().remove_timers();
            self.task.note_pending();
        }
        g.has_execed.store(true, Ordering::Relaxed);
        self.altstack = AltStack::default();
        self.task.set_comm(name);
        self.task.keyrings.exec();
        if creds.secure {
            self.task.pdeathsig.store(0, Ordering::Relaxed);
        }
        // Other credentials, even where they say the same.
        self.task.set_creds(Credentials { serial: 0, ..creds.creds });
        if let Some(n) = self.kernel().tree.lock().node_mut(g.tgid) {
            n.reset_exit_signal();
        }
        let namespaces = self.task.nsproxy().in_time_for_children();
        self.task.set_nsproxy(namespaces);
        self.report_all = false;
        self.sync_report_all();
        self.tell_platform();
        self.restart = None;
        self.forced_tf = false;
        self.task.trace.forget_debug();
    }
}
