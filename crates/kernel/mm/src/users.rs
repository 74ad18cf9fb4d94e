//! The users of an address space: thread groups, which are counted here only. CLONE_VM without CLONE_THREAD makes it
//! more than one. Lock: a leaf.

use ranked::Mutex;

#[derive(Clone, Copy)]
struct Counts {
    groups: usize,
    /// How many of them are ending.
    ending: usize,
    /// A second thread has ever used it.
    threads: bool,
    /// Processor time that groups that left have taken with them, in nanoseconds.
    taken: u64,
}

/// The thread groups that use an address space.
pub struct Users(Mutex<Counts>);

/// What is left when a thread group has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingUsers {
    /// No group is left.
    pub none: bool,
    /// No group is left but such as are ending.
    pub only_ending: bool,
}

impl Default for Users {
    /// One group with one thread.
    fn default() -> Users {
        Users(Mutex::new(Counts { groups: 1, ending: 0, threads: false, taken: 0 }))
    }
}

impl Users {
    /// One more thread; of one more group if it is not of one that is counted already.
    pub fn join(&self, new_group: bool) {
        let mut c = self.0.lock();
        c.groups += usize::from(new_group);
        c.threads = true;
    }

    /// Whether more than one group uses it.
    pub fn shared(&self) -> bool {
        self.0.lock().groups > 1
    }

    /// Whether no group uses it any more.
    pub fn none(&self) -> bool {
        self.0.lock().groups == 0
    }

    /// Whether it has only ever had one thread.
    pub fn single(&self) -> bool {
        !self.0.lock().threads
    }

    /// A group begins to end. True when all are ending.
    pub fn begin_end(&self) -> bool {
        let mut c = self.0.lock();
        c.ending += 1;
        c.ending >= c.groups
    }

    /// A group is gone; `ending` says whether [`Users::begin_end`] was called for it.
    pub fn leave(&self, ending: bool) -> RemainingUsers {
        let mut c = self.0.lock();
        c.groups = c.groups.saturating_sub(1);
        c.ending = c.ending.saturating_sub(usize::from(ending));
        RemainingUsers { none: c.groups == 0, only_ending: c.ending >= c.groups }
    }

    /// Processor time that is no longer the remaining groups', in nanoseconds.
    pub fn taken(&self) -> u64 {
        self.0.lock().taken
    }

    /// A group takes its processor time with it.
    pub fn take(&self, ns: u64) {
        self.0.lock().taken += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_and_go() {
        let u = Users::default();
        assert!(u.single() && !u.shared());
        u.join(true);
        assert!(u.shared() && !u.single());
        assert!(!u.begin_end());
        assert_eq!(u.leave(false), RemainingUsers { none: false, only_ending: true });
        assert_eq!(u.leave(true), RemainingUsers { none: true, only_ending: true });
    }

    #[test]
    fn all_ending_is_noticed_once_the_last_begins() {
        let u = Users::default();
        u.join(true);
        assert!(!u.begin_end());
        assert!(u.begin_end());
    }
}
