//! Names made and removed.

use crate::copy_up::Content;
use crate::listing;
use crate::node::{LayerObjects, Node};
use abi::{Errno, Result};
use namei::rename::{EXCHANGE, NOREPLACE};
use namei::stack::{self, Start};
use std::sync::Arc;
use vfs::{Caller, Dentry, DirInode, InodeRef, NewNode, Path};

impl Node {
    /// What was made in the work directory takes the place of a whiteout.
    fn replace_whiteout(
        &self,
        over: &dyn Caller,
        temp: &[u8],
        (dir, name): (&Path, &[u8]),
        directory: bool,
    ) -> Result<Arc<Dentry>> {
        let core = &self.core;
        let flags = if directory { EXCHANGE } else { 0 };
        stack::rename(over, (core.work()?, temp), (dir, name), flags)?;
        if directory {
            core.clean(over, temp);
        }
        stack::find(over, &dir.dentry, name)
    }

    /// The inode of something new in the upper layer.
    fn newborn(&self, over: &dyn Caller, name: &[u8], dentry: Arc<Dentry>) -> Result<InodeRef> {
        self.changed();
        let found = LayerObjects { upper: Some(dentry), lower: Vec::new() };
        Ok(self.of(over, name, found)?)
    }

    fn take_away(&self, cx: &dyn Caller, name: &[u8], directory: bool) -> Result<()> {
        let core = &self.core;
        let over = core.over(cx);
        let found = self.find(&over, name)?;
        if directory {
            listing::check_empty(core, &over, cx.creds().uid, &found)?;
        }
        let dir = self.upper_dir(cx)?;
        stack::writable(&dir.mount)?;
        let below = self.is_below(&over, name)?;
        match &found.upper {
            None if !below => return Err(Errno::ESTALE),
            Some(upper) if !below => {
                if directory && !listing::is_bare(&over, upper)? {
                    // Whiteouts are left in it: it goes in one step.
                    let temp = core.temp_name();
                    stack::rename(&over, (&dir, name), (core.work()?, &temp), NOREPLACE)?;
                    core.clean(&over, &temp);
                } else {
                    stack::remove(&over, &dir, name, directory)?;
                }
            }
            upper => {
                let flags = match upper {
                    None => NOREPLACE,
                    Some(upper) if upper.is_dir() => EXCHANGE,
                    Some(_) => 0,
                };
                let temp = core.make_whiteout(&over)?;
                let moved = stack::rename(&over, (core.work()?, &temp), (&dir, name), flags);
                if moved.is_err() || flags == EXCHANGE {
                    core.clean(&over, &temp);
                }
                moved?;
            }
        }
        self.changed();
        Ok(())
    }
}

impl DirInode for Node {
    fn lookup(&self, cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        let over = self.core.over(cx);
        let found = self.find(&over, name)?;
        Ok(self.of(&over, name, found)?)
    }
    fn create(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        node: &NewNode,
        mode: u32,
        uid: u32,
        gid: u32,
    ) -> Result<InodeRef> {
        // A whiteout would not show.
        if *node == NewNode::Char(0) {
            return Err(Errno::EPERM);
        }
        let core = &self.core;
        let over = core.over(cx);
        let dir = self.upper_dir(cx)?;
        let start = Start { mode, uid, gid };
        let directory = *node == NewNode::Directory;
        if !self.is_whited_out(&over, &dir, name)? {
            let made = stack::make(&over, &dir, name, node, start)?;
            if directory && self.is_merged() {
                // Nothing is below: lookups need not look for it. Without, they will.
                let _ = core.set_opaque(&over, &made.inode, Errno::EIO);
            }
            return self.newborn(&over, name, made);
        }
        let temp = core.temp_name();
        let made = stack::make(&over, core.work()?, &temp, node, start)?;
        let opaque = if directory { core.set_opaque(&over, &made.inode, Errno::EIO) } else { Ok(()) };
        match opaque.and_then(|()| self.replace_whiteout(&over, &temp, (&dir, name), directory)) {
            Ok(made) => self.newborn(&over, name, made),
            Err(e) => {
                core.clean(&over, &temp);
                Err(e)
            }
        }
    }

    fn create_unnamed(&self, cx: &dyn Caller, mode: u32, uid: u32, gid: u32) -> Result<InodeRef> {
        let over = self.core.over(cx);
        let dir = self.upper_dir(cx)?;
        let made = stack::make_unnamed(&over, &dir, Start { mode, uid, gid })?;
        Ok(self.of(&over, b"", LayerObjects { upper: Some(made), lower: Vec::new() })?)
    }

    fn link(&self, cx: &dyn Caller, name: &[u8], target: &InodeRef) -> Result<()> {
        let core = &self.core;
        let target = self.behind(target)?;
        let old = target.copy_up(cx, Content::All)?;
        let over = core.over(cx);
        let dir = self.upper_dir(cx)?;
        if self.is_whited_out(&over, &dir, name)? {
            let temp = core.temp_name();
            stack::link(&over, old, core.work()?, &temp)?;
            let moved = self.replace_whiteout(&over, &temp, (&dir, name), false);
            if moved.is_err() {
                core.clean(&over, &temp);
            }
            moved?;
        } else {
            stack::link(&over, old, &dir, name)?;
        }
        if target.origin.get().is_some() {
            core.set_impure(&over, dir.inode())?;
        }
        self.changed();
        Ok(())
    }

    fn unlink(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.take_away(cx, name, false)
    }

    fn rmdir(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        self.take_away(cx, name, true)
    }

    fn rename(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        new_dir: &InodeRef,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        self.move_to(cx, name, self.behind(new_dir)?, new_name, flags)
    }
}
