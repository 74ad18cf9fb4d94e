//! Objects with counted users, because something follows from their number.
//!
//! Tasks use descriptor tables and file system contexts, which end with their last task. Open files and file system
//! contexts use mounts, which umount(2) leaves alone meanwhile. A user holds an [`InUse`]. Others, as /proc, may hold the
//! object itself for a moment without being counted. Which user is the last one is decided once, when the guard leaves.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many users an object has.
#[derive(Default)]
pub struct Users(AtomicUsize);

impl Users {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) != 0
    }
}

/// An object with counted users.
pub trait Shared {
    /// Its count of users.
    fn users(&self) -> &Users;
}

/// One use of an object.
pub struct InUse<T: Shared> {
    object: Arc<T>,
    counted: bool,
}

impl<T: Shared> InUse<T> {
    /// Counts one more user.
    pub fn new(object: Arc<T>) -> InUse<T> {
        object.users().0.fetch_add(1, Ordering::SeqCst);
        InUse { object, counted: true }
    }

    /// How many tasks use it, this one included.
    pub fn tasks(&self) -> usize {
        self.object.users().0.load(Ordering::SeqCst)
    }

    /// Whether other tasks use it as well.
    pub fn is_shared(&self) -> bool {
        self.tasks() > 1
    }

    /// Ends the use; gives the object to the last task that used it.
    pub fn leave(mut self) -> Option<Arc<T>> {
        self.counted = false;
        let last = self.object.users().0.fetch_sub(1, Ordering::SeqCst) == 1;
        last.then(|| self.object.clone())
    }
}

impl<T: Shared> Deref for InUse<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: Shared> Drop for InUse<T> {
    fn drop(&mut self) {
        if self.counted {
            self.object.users().0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Thing(Users);

    impl Shared for Thing {
        fn users(&self) -> &Users {
            &self.0
        }
    }

    #[test]
    fn exactly_one_of_those_who_leave_together_is_the_last() {
        for _ in 0..200 {
            let thing = Arc::new(Thing::default());
            let users: Vec<_> = (0..4).map(|_| InUse::new(thing.clone())).collect();
            let threads: Vec<_> =
                users.into_iter().map(|u| std::thread::spawn(move || u.leave().is_some())).collect();
            let last = threads.into_iter().map(|t| t.join().unwrap()).filter(|l| *l).count();
            assert_eq!(last, 1);
        }
    }

    #[test]
    fn a_guard_that_is_dropped_counts_no_longer() {
        let thing = Arc::new(Thing::default());
        let a = InUse::new(thing.clone());
        let b = InUse::new(thing);
        assert!(a.is_shared());
        drop(b);
        assert!(!a.is_shared() && a.leave().is_some());
    }
}
