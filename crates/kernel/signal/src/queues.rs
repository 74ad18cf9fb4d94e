//! The number of objects that users have queued: signals with their information, and POSIX timers, which may become
//! signals. RLIMIT_SIGPENDING bounds the sum per real user ID, in all processes of the sandbox.

use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How many entries each user has.
#[derive(Default)]
pub struct Queues(Mutex<HashMap<u32, u64>>);

impl Queues {
    /// Charges one entry to a user; `None` when that exceeds `limit`.
    pub fn charge(self: &Arc<Self>, uid: u32, limit: u64) -> Option<Charge> {
        let mut users = self.0.lock();
        let now = users.get(&uid).copied().unwrap_or(0);
        if now >= limit {
            return None;
        }
        users.insert(uid, now + 1);
        Some(Charge { queues: self.clone(), uid })
    }

    /// How many entries a user has.
    pub fn of(&self, uid: u32) -> u64 {
        self.0.lock().get(&uid).copied().unwrap_or(0)
    }
}

/// One entry of a user; it counts until it is dropped.
pub struct Charge {
    queues: Arc<Queues>,
    uid: u32,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut users = self.queues.0.lock();
        if let Some(n) = users.get_mut(&self.uid) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit_of_its_own() {
        let q = Arc::new(Queues::default());
        let one = q.charge(5, 1);
        assert!(one.is_some() && q.charge(5, 1).is_none() && q.charge(6, 1).is_some());
        assert_eq!((q.of(5), q.of(6)), (1, 0));
        drop(one);
        assert!(q.charge(5, 1).is_some());
        assert!(q.0.lock().is_empty());
    }
}
