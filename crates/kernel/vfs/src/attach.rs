//! Things other subsystems hang on an inode: the endpoint bound to a socket
//! inode, the pipe behind a FIFO, lock records. Keyed by type.

use lock_order::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use wait::{Events, WaitQueue};

/// Open files and programs that use an inode, and the leases that some of them have on it.
#[derive(Default)]
pub struct InodeUsers {
    /// Open files that write, or the negative number of uses as a running program.
    pub(crate) writers: AtomicI32,
    /// Open files that only read.
    pub(crate) readers: AtomicI32,
    /// An open file has, or had, a lease on it: without one there are no leases to look for.
    leased: AtomicBool,
    /// Notified when a use ends of an inode that may be leased.
    ended: OnceLock<WaitQueue>,
}

impl InodeUsers {
    /// Notes that an open file is about to have a lease; `queue` is notified whenever a use ends from now on.
    pub fn lease(&self, queue: &WaitQueue) {
        let _ = self.ended.set(queue.clone());
        self.leased.store(true, Ordering::SeqCst);
    }

    /// There may be leases.
    pub fn may_be_leased(&self) -> bool {
        self.leased.load(Ordering::SeqCst)
    }

    /// Open files that write (or the negative number of running programs), and those that only read.
    pub fn count(&self) -> (i32, i32) {
        (self.writers.load(Ordering::SeqCst), self.readers.load(Ordering::SeqCst))
    }

    /// A use has ended.
    pub(crate) fn end(&self) {
        if let Some(queue) = self.ended.get() {
            queue.notify(Events::ALL);
        }
    }
}

/// A small type-indexed map that lives in an inode, and the uses of its content. Lock rank: leaf.
#[derive(Default)]
pub struct Attachments(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>, InodeUsers);

impl Attachments {
    /// Open files and programs that use the inode.
    pub fn users(&self) -> &InodeUsers {
        &self.1
    }

    /// The attachment of type `T`, if any.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.0.lock().get(&TypeId::of::<T>()).cloned().and_then(|a| a.downcast().ok())
    }

    /// The attachment of type `T`, made by `make` when absent.
    pub fn get_or<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut m = self.0.lock();
        let a = m.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(make())).clone();
        match a.downcast() {
            Ok(v) => v,
            Err(_) => unreachable!("keyed by type"),
        }
    }

    /// Replaces or removes the attachment of type `T`.
    pub fn set<T: Any + Send + Sync>(&self, v: Option<Arc<T>>) {
        let mut m = self.0.lock();
        match v {
            Some(v) => m.insert(TypeId::of::<T>(), v),
            None => m.remove(&TypeId::of::<T>()),
        };
    }
}
