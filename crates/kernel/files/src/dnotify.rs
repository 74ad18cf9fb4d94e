//! Signals for changes in a directory: F_NOTIFY. See fcntl(2), "File and directory change notification (dnotify)".
//!
//! The receivers of signals about a directory are an attachment of it, which listens to its events. Lock: a leaf, not
//! held while signals are sent. A checkpoint keeps a [`DirectoryWatchState`] of each open directory; renames have none, as both
//! events of one come out of one call.

use abi::{Errno, Result};
use lock_order::Mutex;
use locks::leases::Tell;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use vfs::Caller;
use vfs::dentry::Dentry;
use vfs::file::{F_OWNER_PID, OpenFile};
use vfs::notify::{self, Listener, Watch, event};

const DN_MULTISHOT: u32 = 0x8000_0000;

/// A rename inside the directory: both of its events are about it.
const RENAMED: u32 = 0x1000_0000;
/// Renames that may still get their second event.
const RENAMES: usize = 16;

/// What each of the DN_* bits is among the events of inotify(7).
const EVENTS: [(u32, u32); 6] = [
    (0x01, event::ACCESS),
    (0x02, event::MODIFY),
    (0x04, event::CREATE | event::MOVED_TO),
    (0x08, event::DELETE | event::MOVED_FROM),
    (0x10, RENAMED),
    (0x20, event::ATTRIB),
];

/// One open directory that wants signals.
struct DirectoryWatch {
    file: Weak<OpenFile>,
    mask: u32,
    again: bool,
    tell: Tell,
}

/// The wishes about one directory.
#[derive(Default)]
struct DirectoryWatches(Mutex<State>);

#[derive(Default)]
struct State {
    list: Vec<DirectoryWatch>,
    /// Cookies of the last renames out of it.
    moved: VecDeque<u32>,
}

impl State {
    /// The events of [`EVENTS`] that an event of inotify(7) is.
    fn events(&mut self, mask: u32, cookie: u32) -> u32 {
        let mut events = mask & event::ALL;
        if mask & event::MOVED_FROM != 0 {
            self.moved.truncate(RENAMES - 1);
            self.moved.push_front(cookie);
        }
        if mask & event::MOVED_TO != 0 && self.moved.contains(&cookie) {
            events |= RENAMED;
        }
        events
    }
}

/// Wishes that are told of events, for as long as the directory is in memory.
struct Listening {
    wishes: Arc<DirectoryWatches>,
    watch: Arc<Watch>,
}

impl Listening {
    fn new(dentry: &Dentry) -> Listening {
        let wishes = Arc::new(DirectoryWatches::default());
        let to: Weak<DirectoryWatches> = Arc::downgrade(&wishes);
        Listening { wishes, watch: Watch::new(dentry, 0, event::ALL, to) }
    }
}

impl Listener for DirectoryWatches {
    fn event(&self, _watch: i32, mask: u32, cookie: u32, _name: &[u8]) {
        let mut told = Vec::new();
        let mut state = self.0.lock();
        let events = state.events(mask, cookie);
        state.list.retain(|wish| {
            let Some(file) = wish.file.upgrade() else { return false };
            let hit = wish.mask & events != 0;
            // All of them go without the lock: the last use of a file is an event of its directory.
            told.push((file, hit.then(|| wish.tell.clone())));
            wish.again || !hit
        });
        drop(state);
        for (file, tell) in told {
            if let Some(tell) = tell {
                tell.tell(&file);
            }
        }
    }
    fn gone(&self, _watch: i32) {}
}

/// What an open directory wants, as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DirectoryWatchState {
    /// DN_* bits.
    pub bits: u32,
    /// The descriptor through which it was asked for.
    pub fd: i32,
}

/// What an open directory wants, if it wants signals.
pub fn state(file: &Arc<OpenFile>) -> Option<DirectoryWatchState> {
    let listening = file.inode.as_ref()?.attachments()?.get::<Listening>()?;
    let state = listening.wishes.0.lock();
    let wish = state.list.iter().find(|wish| wish.file.as_ptr() == Arc::as_ptr(file))?;
    let again = if wish.again { DN_MULTISHOT } else { 0 };
    let bits = EVENTS.iter().filter(|(_, events)| wish.mask & events == *events);
    Some(DirectoryWatchState { bits: bits.fold(again, |all, (bit, _)| all | bit), fd: wish.tell.fd() })
}

/// F_NOTIFY with these DN_* bits; without any the signals end. ENOTDIR, EINVAL for a directory that tells of nothing.
pub fn set(cx: &dyn Caller, file: &Arc<OpenFile>, bits: u32, tell: Tell) -> Result<()> {
    let inode = file.inode.as_ref();
    if bits & !DN_MULTISHOT == 0 {
        let listening = inode.and_then(|inode| inode.attachments()?.get::<Listening>());
        if let Some(listening) = listening {
            listening.wishes.0.lock().list.retain(|wish| wish.file.as_ptr() != Arc::as_ptr(file));
        }
        return Ok(());
    }
    let inode = inode.filter(|i| i.kind() == libc::S_IFDIR).ok_or(Errno::ENOTDIR)?;
    let dentry = &file.path.as_ref().ok_or(Errno::EINVAL)?.dentry;
    let attachments = inode.attachments().ok_or(Errno::EINVAL)?;
    let mask = EVENTS.iter().filter(|(bit, _)| bits & bit != 0).fold(0, |mask, (_, events)| mask | events);
    let mut made = false;
    let listening = attachments.get_or(|| {
        made = true;
        Listening::new(dentry)
    });
    if made {
        notify::add(inode, listening.watch.clone());
    }
    {
        let mut owner = file.owner.lock();
        if owner.id == 0 {
            owner.set(F_OWNER_PID, cx.pid(), &cx.creds());
        }
    }
    let list = &mut listening.wishes.0.lock().list;
    list.retain(|wish| wish.file.strong_count() != 0);
    let again = bits & DN_MULTISHOT != 0;
    match list.iter_mut().find(|wish| wish.file.as_ptr() == Arc::as_ptr(file)) {
        Some(wish) => {
            wish.mask |= mask;
            wish.again |= again;
            wish.tell = tell;
        }
        None => list.push(DirectoryWatch { file: Arc::downgrade(file), mask, again, tell }),
    }
    Ok(())
}
