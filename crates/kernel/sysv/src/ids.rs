//! A table of objects: ids made of an index and a sequence number, and keys.

use crate::perm::Perm;
use crate::{IPC_PRIVATE, perm};
use abi::{Errno, Result};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::Caller;

/// Most indices (IPCMNI).
const MAX_INDEX: usize = 32768;
/// Indices are used in turn within at least this many.
const MIN_CYCLE: usize = 64;

/// Something with an id.
pub(crate) trait Object {
    /// Its owner and mode now.
    fn perm(&self) -> Perm;
}

/// A table as plain data, for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TableState<S> {
    /// The objects, in the order of their indices. Each knows its ID and key.
    pub objects: Vec<S>,
    /// The index that was given last, and the sequence number that goes with the next one.
    pub position: (usize, i32),
}

pub(crate) struct Ids<T> {
    user_ns: Arc<UserNamespace>,
    items: BTreeMap<usize, Arc<T>>,
    keys: HashMap<i32, usize>,
    last: usize,
    seq: i32,
}

impl<T: Object> Ids<T> {
    /// An empty table of a namespace that `user_ns` owns.
    pub fn new(user_ns: &Arc<UserNamespace>) -> Self {
        Ids {
            user_ns: user_ns.clone(),
            items: BTreeMap::new(),
            keys: HashMap::new(),
            last: MAX_INDEX,
            seq: 0,
        }
    }

    /// As plain data, each object by `save`.
    pub fn state<S>(&self, save: impl Fn(&T) -> S) -> TableState<S> {
        let objects = self.items.values().map(|object| save(object)).collect();
        TableState { objects, position: (self.last, self.seq) }
    }

    /// Takes over the objects of plain data, each made by `load`. EINVAL for IDs, keys and a position that cannot be.
    pub fn restore<S>(&mut self, saved: &TableState<S>, load: impl Fn(&S) -> Result<T>) -> Result<()> {
        for one in &saved.objects {
            let object = load(one)?;
            let Perm { id, key, .. } = object.perm();
            let index = usize::try_from(id).map_err(|_| Errno::EINVAL)? % MAX_INDEX;
            let twice = self.items.insert(index, Arc::new(object)).is_some()
                || key != IPC_PRIVATE && self.keys.insert(key, index).is_some();
            if twice {
                return Err(Errno::EINVAL);
            }
        }
        let (last, seq) = saved.position;
        if last > MAX_INDEX || !(0..=0xffff).contains(&seq) {
            return Err(Errno::EINVAL);
        }
        (self.last, self.seq) = (last, seq);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Objects in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<T>)> {
        self.items.iter().map(|(i, o)| (*i, o))
    }

    /// The highest index in use, 0 when there is none.
    pub fn highest(&self) -> i32 {
        self.items.keys().next_back().map_or(0, |i| *i as i32)
    }

    fn new_id(&mut self, limit: usize, want: i32) -> Result<i32> {
        if want >= 0 {
            let (index, seq) = (want as usize % MAX_INDEX, want >> 15);
            if !self.items.contains_key(&index) {
                return Ok(seq << 15 | index as i32);
            }
        }
        let cycle = (self.items.len() * 3 / 2).max(MIN_CYCLE).min(limit.max(1)).min(MAX_INDEX);
        let from = if self.last >= cycle { 0 } else { self.last + 1 };
        let index =
            (from..cycle).chain(0..cycle).find(|i| !self.items.contains_key(i)).ok_or(Errno::ENOSPC)?;
        if self.last != MAX_INDEX && index <= self.last {
            self.seq = (self.seq + 1) & 0xffff;
        }
        self.last = index;
        Ok(self.seq << 15 | index as i32)
    }

    /// The object of shmget(2) and its relatives: found by key, or made. `fits` judges one that exists.
    pub fn get(
        &mut self,
        cx: &dyn Caller,
        (key, flags): (i32, i32),
        (limit, next): (u64, &std::sync::atomic::AtomicI32),
        fits: impl FnOnce(&T) -> Result<()>,
        make: impl FnOnce(Perm) -> Result<T>,
    ) -> Result<i32> {
        if key != IPC_PRIVATE
            && let Some(o) = self.keys.get(&key).and_then(|i| self.items.get(i))
        {
            if flags & libc::IPC_CREAT != 0 && flags & libc::IPC_EXCL != 0 {
                return Err(Errno::EEXIST);
            }
            fits(o)?;
            o.perm().check(cx, &self.user_ns, flags as u32 & 0o777)?;
            return Ok(o.perm().id);
        }
        if key != IPC_PRIVATE && flags & libc::IPC_CREAT == 0 {
            return Err(Errno::ENOENT);
        }
        if self.items.len() as u64 >= limit {
            return Err(Errno::ENOSPC);
        }
        let (last, seq) = (self.last, self.seq);
        let want = next.swap(-1, std::sync::atomic::Ordering::Relaxed);
        let id = self.new_id(limit as usize, want)?;
        match make(Perm::new(cx, id, key, flags)) {
            Ok(o) => {
                let index = id as usize % MAX_INDEX;
                self.items.insert(index, Arc::new(o));
                if key != IPC_PRIVATE {
                    self.keys.insert(key, index);
                }
                Ok(id)
            }
            Err(e) => {
                (self.last, self.seq) = (last, seq);
                Err(e)
            }
        }
    }

    /// The object with an id: EINVAL when there never was one, EIDRM when it is another one by now.
    pub fn find(&self, id: i32) -> Result<Arc<T>> {
        let index = usize::try_from(id).map_err(|_| Errno::EINVAL)? % MAX_INDEX;
        let o = self.items.get(&index).ok_or(Errno::EINVAL)?;
        if o.perm().id == id { Ok(o.clone()) } else { Err(Errno::EIDRM) }
    }

    /// The object at an index (SHM_STAT), for the reading of which `any` needs no permission.
    pub fn at(&self, cx: &dyn Caller, index: i32, any: bool) -> Result<Arc<T>> {
        let index = usize::try_from(index).map_err(|_| Errno::EINVAL)?;
        let o = self.items.get(&index).ok_or(Errno::EINVAL)?;
        if !any {
            o.perm().check(cx, &self.user_ns, perm::READ)?;
        }
        Ok(o.clone())
    }

    /// The object cannot be found by its key any more.
    pub fn forget_key(&mut self, key: i32) {
        self.keys.remove(&key);
    }

    /// Takes an object out.
    pub fn remove(&mut self, p: &Perm) {
        self.items.remove(&(p.id as usize % MAX_INDEX));
        self.keys.remove(&p.key);
    }
}
