//! Things other subsystems hang on an inode: the endpoint bound to a socket
//! inode, the pipe behind a FIFO, lock records. Keyed by type.

use crate::busy::Users;
use ranked::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// A small type-indexed map that lives in an inode, and who uses its content. Lock rank: leaf.
#[derive(Default)]
pub struct Attachments(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>, Users);

impl Attachments {
    pub(crate) fn users(&self) -> &Users {
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
