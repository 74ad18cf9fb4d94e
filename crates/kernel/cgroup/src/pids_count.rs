//! What pids.* of a group say. A checkpoint keeps it.

/// The largest limit that is a number (PID_MAX_LIMIT).
pub const MOST_PIDS: u64 = 4 << 20;

/// What pids.* say.
#[derive(Clone, Copy, Debug)]
pub struct Pids {
    /// Tasks now, including those that have not been waited for.
    pub current: u64,
    /// The limit; `u64::MAX` for none.
    pub max: u64,
    /// Most tasks since the controller was enabled.
    pub peak: u64,
    /// How often the limit, here or below, refused a task.
    pub events: u64,
    /// How often the limit of this group did.
    pub events_local: u64,
}

impl Default for Pids {
    fn default() -> Pids {
        Pids { current: 0, max: u64::MAX, peak: 0, events: 0, events_local: 0 }
    }
}

impl Pids {
    /// Counts a task.
    pub(crate) fn add(&mut self) {
        self.current += 1;
        self.peak = self.peak.max(self.current);
    }

    /// The controller has been disabled: a next one starts anew.
    pub(crate) fn reset(&mut self) {
        *self = Pids { current: self.current, peak: self.current, ..Pids::default() };
    }
}
