//! Renaming. The object has been copied up before (`Inode::about_to_move`). A directory with a part in a lower layer
//! cannot be renamed: EXDEV, so that programs copy it.

use crate::listing;
use crate::node::{LayerObjects, Node};
use abi::{Errno, Result};
use namei::rename::{EXCHANGE, NOREPLACE, WHITEOUT};
use namei::stack;
use vfs::{Caller, Path};

impl Node {
    pub(crate) fn move_to(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        to: &Node,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        if flags & !(NOREPLACE | EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let exchange = flags & EXCHANGE != 0;
        let core = &self.core;
        let over = &core.over(cx);
        let src = self.find(over, name)?;
        let dst = match to.find(over, new_name) {
            Ok(found) => Some(found),
            Err(Errno::ENOENT) => None,
            Err(e) => return Err(e),
        };
        if is_rooted_below(&src) || exchange && dst.as_ref().is_some_and(is_rooted_below) {
            return Err(Errno::EXDEV);
        }
        let replaced_dir = dst.as_ref().filter(|d| !exchange && is_dir(d));
        if let Some(dir) = replaced_dir {
            listing::check_empty(core, over, cx.creds().uid, dir)?;
        }
        let (from_dir, to_dir) = (self.upper_dir(cx)?, to.upper_dir(cx)?);
        stack::writable(&from_dir.mount)?;
        // Both are the upper layer's by now.
        let moved = src.upper.as_ref().ok_or(Errno::ESTALE)?;
        if moved.is_dir() && to.is_merged() {
            core.set_opaque(over, &moved.inode, Errno::EXDEV)?;
        }
        let (a, b) = ((&from_dir, name), (&to_dir, new_name));
        if exchange {
            let other = dst.as_ref().and_then(|d| d.upper.as_ref()).ok_or(Errno::ESTALE)?;
            if other.is_dir() && self.is_merged() {
                core.set_opaque(over, &other.inode, Errno::EXDEV)?;
            }
            stack::rename(over, a, b, EXCHANGE)?;
        } else {
            self.overwrite(over, a, b, dst.as_ref(), moved.is_dir())?;
        }
        for (found, dir) in [(Some(&src), &to_dir), (dst.as_ref().filter(|_| exchange), &from_dir)] {
            let copy = found.and_then(|f| f.upper.as_ref());
            if copy.is_some_and(|copy| core.origin(over, &copy.inode).is_some()) {
                core.set_impure(over, dir.inode())?;
            }
        }
        self.changed();
        to.changed();
        Ok(())
    }

    /// Moves a name, which leaves a whiteout where a lower layer has it, over what `dst` says or a whiteout.
    fn overwrite(
        &self,
        over: &dyn Caller,
        a: (&Path, &[u8]),
        b: (&Path, &[u8]),
        dst: Option<&LayerObjects>,
        directory: bool,
    ) -> Result<()> {
        let core = &self.core;
        let leaves = self.is_below(over, a.1)?;
        let upper = dst.and_then(|d| d.upper.as_ref());
        let whited_out = dst.is_none() && self.is_whited_out(over, b.0, b.1)?;
        if whited_out && (leaves || directory) {
            stack::rename(over, a, b, EXCHANGE)?;
            if !leaves {
                stack::remove(over, a.0, a.1, false)?;
            }
            return Ok(());
        }
        // A directory with whiteouts in it is moved away first, since nothing moves over it.
        let mut aside = None;
        if let Some(upper) = upper
            && upper.is_dir()
            && !listing::is_bare(over, upper)?
        {
            let temp = core.temp_name();
            stack::rename(over, b, (core.work()?, &temp), NOREPLACE)?;
            aside = Some(temp);
        }
        let done = if leaves { self.leave_whiteout(over, a, b) } else { stack::rename(over, a, b, 0) };
        match (done, &aside) {
            (Ok(()), Some(temp)) => core.clean(over, temp),
            (Err(e), Some(temp)) => {
                let _ = stack::rename(over, (core.work()?, temp), b, NOREPLACE);
                return Err(e);
            }
            (done, None) => return done,
        }
        Ok(())
    }

    /// In one step where the file system can do that. Otherwise in two, and no other thread sees the first.
    fn leave_whiteout(&self, over: &dyn Caller, a: (&Path, &[u8]), b: (&Path, &[u8])) -> Result<()> {
        match stack::rename(over, a, b, WHITEOUT) {
            Err(Errno::EINVAL) => {}
            done => return done,
        }
        let core = &self.core;
        let temp = core.make_whiteout(over)?;
        let done = stack::rename(over, a, b, 0)
            .and_then(|()| stack::rename(over, (core.work()?, &temp), a, NOREPLACE));
        if done.is_err() {
            core.clean(over, &temp);
        }
        done
    }
}

fn is_dir(found: &LayerObjects) -> bool {
    found.top().is_ok_and(|top| top.is_dir())
}

/// A directory that a lower layer has a part in.
fn is_rooted_below(found: &LayerObjects) -> bool {
    is_dir(found) && !found.is_pure_upper()
}
