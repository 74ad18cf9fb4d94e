//! Address spaces of dying processes that are taken away when the processes do not notice their end in time. Lock: TIMER. A
//! checkpoint keeps nothing: a process that ends is let end first.

use caller::timer::{TimerHandle, TimerService};
use ktime::Ktime;
use lock_order::{Mutex, rank};
use platform::AddressSpace;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a dying process may take to notice before its memory is taken away.
const KILL_GRACE: Duration = Duration::from_millis(200);

/// The address spaces that are to be gone soon.
#[derive(Default)]
pub(crate) struct LateKills(Arc<Mutex<List, { rank::TIMER }>>);

impl LateKills {
    /// Takes an address space away from a process that does not notice its end.
    pub(crate) fn add(&self, space: &Arc<dyn AddressSpace>, timers: &Arc<TimerService>) {
        let deadline = timers.clock().now().plus(KILL_GRACE);
        let mut k = self.0.lock();
        k.due.push_back((deadline, Arc::downgrade(space)));
        if k.timer.is_none() {
            k.timer = Some(List::look_at(&self.0, timers, deadline));
        }
    }
}

/// Address spaces with processes that are to be gone by then. One timer for all of them, which runs now and then:
/// processes end often, and hardly ever too late.
#[derive(Default)]
struct List {
    /// In the order of their moments.
    due: VecDeque<(Ktime, Weak<dyn AddressSpace>)>,
    timer: Option<TimerHandle>,
}

impl List {
    fn look_at(
        list: &Arc<Mutex<List, { rank::TIMER }>>,
        timers: &Arc<TimerService>,
        when: Ktime,
    ) -> TimerHandle {
        let (list, weak) = (list.clone(), Arc::downgrade(timers));
        timers.schedule(when, move || {
            if let Some(timers) = weak.upgrade() {
                List::look(&list, &timers);
            }
        })
    }

    fn look(list: &Arc<Mutex<List, { rank::TIMER }>>, timers: &Arc<TimerService>) {
        let mut k = list.lock();
        let now = timers.clock().now();
        let n = k.due.iter().take_while(|(deadline, _)| *deadline <= now).count();
        let late: Vec<_> = k.due.drain(..n).collect();
        k.timer = (!k.due.is_empty()).then(|| List::look_at(list, timers, now.plus(KILL_GRACE)));
        drop(k);
        for space in late.iter().filter_map(|(_, space)| space.upgrade()) {
            space.kill();
        }
    }
}
