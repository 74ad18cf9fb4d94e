//! Files that nearly all programs map: stub processes have them open from the start, which saves a question to the listener for
//! each mapping.
//!
//! Any guest can read such a file by its descriptor. So the kernel names only files that everybody may read. A file
//! goes when the kernel has let go of it; processes close it before they serve another program, and the zygote before it forks.

use parking_lot::{Mutex, RwLock};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

/// Most files.
const MOST: usize = 24;

/// The files, in the order in which processes are given them.
#[derive(Default)]
pub(crate) struct Common(Mutex<Vec<Weak<OwnedFd>>>);

impl Common {
    /// One more file, unless there are too many.
    pub(crate) fn add(&self, fd: &Arc<OwnedFd>) {
        let mut files = self.0.lock();
        files.retain(|file| file.strong_count() > 0);
        if files.len() < MOST && !files.iter().any(|file| is_of(file, fd)) {
            files.push(Arc::downgrade(fd));
        }
    }

    /// A file that a process does not have yet.
    pub(crate) fn missing(&self, held: &Held) -> Option<Arc<OwnedFd>> {
        let files = self.0.lock();
        files.iter().filter_map(Weak::upgrade).find(|fd| held.number_of(fd).is_none())
    }
}

fn is_of(file: &Weak<OwnedFd>, fd: &Arc<OwnedFd>) -> bool {
    std::ptr::eq(file.as_ptr(), Arc::as_ptr(fd))
}

/// What a process has of them, and the numbers there. A guest that closes them harms itself.
#[derive(Default)]
pub(crate) struct Held(RwLock<Vec<(Weak<OwnedFd>, u64)>>);

impl Held {
    /// What a copy of the process has.
    pub(crate) fn copy(&self) -> Held {
        Held(RwLock::new(self.0.read().clone()))
    }

    /// The number of a file.
    pub(crate) fn number_of(&self, fd: &Arc<OwnedFd>) -> Option<u64> {
        self.0.read().iter().find(|(file, _)| is_of(file, fd)).map(|(_, number)| *number)
    }

    /// The process has been given a file.
    pub(crate) fn add(&self, fd: &Arc<OwnedFd>, number: u64) {
        self.0.write().push((Arc::downgrade(fd), number));
    }

    /// Numbers of files that are gone; the process must close them.
    pub(crate) fn take_gone(&self) -> Vec<u64> {
        let gone = |(file, _): &(Weak<OwnedFd>, u64)| file.strong_count() == 0;
        if !self.0.read().iter().any(gone) {
            return Vec::new();
        }
        self.0.write().extract_if(.., |entry| gone(entry)).map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/").unwrap().into())
    }

    #[test]
    fn a_file_is_missing_until_it_is_held() {
        let (common, held, fd) = (Common::default(), Held::default(), file());
        common.add(&fd);
        common.add(&fd);
        assert!(Arc::ptr_eq(&common.missing(&held).unwrap(), &fd));
        held.add(&fd, 7);
        assert!(common.missing(&held).is_none());
        assert_eq!((held.copy().number_of(&fd), held.number_of(&file())), (Some(7), None));
    }

    #[test]
    fn what_is_gone_makes_room() {
        let (common, held) = (Common::default(), Held::default());
        let files: Vec<_> = (0..=MOST).map(|_| file()).collect();
        for (fd, number) in files.iter().zip(0..) {
            common.add(fd);
            held.add(fd, number);
        }
        let [first, .., last] = &files[..] else { panic!() };
        assert!(common.missing(&Held::default()).is_some_and(|fd| Arc::ptr_eq(&fd, first)));
        assert!(common.0.lock().iter().all(|file| !is_of(file, last)));
        assert!(held.take_gone().is_empty());
        drop(files);
        assert_eq!(held.take_gone().len(), MOST + 1);
        common.add(&file());
        assert_eq!(common.0.lock().len(), 1);
    }
}
