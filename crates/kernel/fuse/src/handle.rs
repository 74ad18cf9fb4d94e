//! File handles: what a daemon calls an open file or directory.

use crate::conn::Call;
use crate::node::{Node, shown_flags};
use crate::wire::{self, Room, op};
use abi::Result;
use abi::stat::S_IFDIR;
use std::sync::Arc;
use vfs::Caller;

/// A file handle. The daemon is told when it is closed (FUSE_RELEASE, FUSE_RELEASEDIR).
pub(crate) struct Handle {
    pub node: Arc<Node>,
    /// The daemon's number for it; 0 where the daemon does not know that the file is open.
    pub fh: u64,
    told: bool,
    flags: i32,
}

impl Handle {
    /// Opens a file or directory with these flags of open(2); also gives the daemon's flags for it.
    pub fn open(cx: &dyn Caller, node: Arc<Node>, flags: i32) -> Result<(Handle, u32)> {
        let opcode = if node.kind == S_IFDIR { op::OPENDIR } else { op::OPEN };
        let body = wire::OpenIn { flags: shown_flags(flags), open_flags: 0 };
        let call = Call::new(opcode, node.nodeid, &body, Room::of::<wire::OpenOut>());
        let Some(answer) = node.optional(cx, call) else {
            return Ok((Handle { node, fh: 0, told: false, flags }, 0));
        };
        let opened = wire::decode::<wire::OpenOut>(&answer?)?.0;
        Ok((Handle::of(node, opened.fh, flags), opened.open_flags))
    }

    /// The handle of a file that the daemon has opened.
    pub fn of(node: Arc<Node>, fh: u64, flags: i32) -> Handle {
        Handle { node, fh, told: true, flags }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.told {
            return;
        }
        let node = &self.node;
        let opcode = if node.kind == S_IFDIR { op::RELEASEDIR } else { op::RELEASE };
        let flags = shown_flags(self.flags);
        let body = wire::ReleaseIn { fh: self.fh, flags, release_flags: 0, lock_owner: 0 };
        node.fs.conn.tell(Call::new(opcode, node.nodeid, &body, Room::NONE));
    }
}
