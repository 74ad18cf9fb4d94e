//! What a thread uses at every call and others look at now and then: memory, descriptor table, file system context.
//!
//! The thread's half is a [`ThreadHandle`] in `Current`, read without a lock; the others' half is a [`TaskSlot`] in
//! `Task`. Both name the same object. The rule that keeps them alike: only the thread itself changes either, with
//! [`ThreadHandle::replace`] or [`ThreadHandle::give_up`], which change both. So the thread's half is never stale, and
//! a change needs no notification. Calls as fstat(2) thus take no lock and write to no reference count that other
//! threads write to.

use lock_order::RwLock;
use std::ops::Deref;
use std::sync::Arc;
use vfs::{InUse, Shared};

/// The half of an object in use that other threads read. `V` is `Arc<T>`, or `Option<Arc<T>>` for what a thread gives up when
/// it leaves. Lock: a leaf.
pub(crate) struct TaskSlot<V>(RwLock<V>);

impl<V: Clone> TaskSlot<V> {
    /// Of a thread that begins with this object.
    pub(crate) fn new(object: V) -> TaskSlot<V> {
        TaskSlot(RwLock::new(object))
    }

    /// The object as it is now.
    pub(crate) fn get(&self) -> V {
        self.0.read().clone()
    }
}

/// The half of an object in use that belongs to its thread. `H` is the thread's handle, which may count users.
pub struct ThreadHandle<H>(H);

/// A handle of an object.
pub trait Handle {
    /// The kind of object.
    type Object;
    /// The object.
    fn object(&self) -> &Arc<Self::Object>;
}

impl<T> Handle for Arc<T> {
    type Object = T;
    fn object(&self) -> &Arc<T> {
        self
    }
}

impl<T: Shared> Handle for InUse<T> {
    type Object = T;
    fn object(&self) -> &Arc<T> {
        self
    }
}

impl<H: Handle> ThreadHandle<H> {
    /// Of a thread with a task that was made with the same object.
    pub(crate) fn new(handle: H) -> ThreadHandle<H> {
        ThreadHandle(handle)
    }

    /// Changes what the thread uses, for itself and for others; gives the old handle.
    pub(crate) fn replace<V: From<Arc<H::Object>>>(&mut self, slot: &TaskSlot<V>, new: H) -> H {
        let old = std::mem::replace(&mut *slot.0.write(), new.object().clone().into());
        drop(old);
        std::mem::replace(&mut self.0, new)
    }

    /// The thread leaves: others find nothing any more.
    pub(crate) fn give_up(self, slot: &TaskSlot<Option<Arc<H::Object>>>) -> H {
        let old = slot.0.write().take();
        drop(old);
        self.0
    }
}

impl<H> Deref for ThreadHandle<H> {
    type Target = H;
    fn deref(&self) -> &H {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_name_the_same_object() {
        let (a, b) = (Arc::new(1), Arc::new(2));
        let slot = TaskSlot::new(Some(a.clone()));
        let mut handle = ThreadHandle::new(a);
        assert_eq!(*handle.replace(&slot, b), 1);
        assert_eq!((**handle, slot.get()), (2, Some(Arc::new(2))));
        assert_eq!((*handle.give_up(&slot), slot.get()), (2, None));
    }
}
