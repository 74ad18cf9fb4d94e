//! What limits a connection, and for how long: the times of `TCP_INFO`.

use ktime::Ktime;
use std::time::Duration;

/// What holds the sender up; a later one hides those before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub(crate) enum Limit {
    /// There is nothing to send.
    #[default]
    Idle,
    /// The network.
    Busy,
    /// The peer's window.
    Window,
    /// The send buffer.
    Buffer,
}

/// The times of each. Plain data.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Chrono {
    now: Limit,
    since: Ktime,
    spent: [Duration; 4],
}

impl Chrono {
    /// Whether a saved one can be calculated with.
    pub(super) fn check(&self, longest: Duration) -> bool {
        self.spent.iter().all(|time| *time <= longest)
    }

    fn set(&mut self, limit: Limit, now: Ktime) {
        self.spent[self.now as usize] += now.since(self.since);
        (self.now, self.since) = (limit, now);
    }

    /// The sender is held up by this, if by nothing that hides it.
    pub(crate) fn start(&mut self, limit: Limit, now: Ktime) {
        if limit > self.now {
            self.set(limit, now);
        }
    }

    /// This no longer holds the sender up; `empty` says that nothing is left to send.
    pub(crate) fn stop(&mut self, limit: Limit, now: Ktime, empty: bool) {
        if empty && self.now != Limit::Idle {
            self.set(Limit::Idle, now);
        } else if limit == self.now && limit > Limit::Busy {
            self.set(Limit::Busy, now);
        }
    }

    /// Time with something to send, and what of it was spent waiting for the peer's window and for the send buffer.
    pub(crate) fn totals(&self, now: Ktime) -> (Duration, Duration, Duration) {
        let mut at_end = *self;
        at_end.set(self.now, now);
        let [_, busy, window, buffer] = at_end.spent;
        (busy + window + buffer, window, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_limit_counts() {
        let at = |ms| Ktime::ZERO.plus(Duration::from_millis(ms));
        let mut chrono = Chrono::default();
        chrono.start(Limit::Busy, at(10));
        chrono.start(Limit::Window, at(15));
        chrono.start(Limit::Busy, at(16));
        chrono.stop(Limit::Buffer, at(17), false);
        chrono.stop(Limit::Window, at(18), false);
        chrono.start(Limit::Buffer, at(20));
        chrono.stop(Limit::Buffer, at(24), true);
        let ms = Duration::from_millis;
        assert_eq!(chrono.totals(at(50)), (ms(14), ms(3), ms(4)));
    }
}
