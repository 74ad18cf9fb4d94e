//! Extended attributes: those of the object below. Overlayfs's own attributes are hidden. When a program sets one under
//! such a name, it is stored with one more `overlay.` in the name, so that an instance can be a layer of another one.

use crate::copy_up::Content;
use crate::core::Core;
use crate::node::Node;
use abi::{Errno, Result};
use rights::mode::{MAY_READ, MAY_WRITE};
use vfs::{AclInode, Caller, XattrInode};

const AGAIN: &[u8] = b"overlay.";

impl Core {
    /// The name of an attribute below.
    fn name_below(&self, name: &[u8]) -> Result<Vec<u8>> {
        let Some(rest) = name.strip_prefix(self.prefix) else { return Ok(name.to_vec()) };
        let below = [self.prefix, AGAIN, rest].concat();
        if below.len() > namei::xattr::NAME_MAX { Err(Errno::EOPNOTSUPP) } else { Ok(below) }
    }

    /// The name of an attribute as it is shown; `None` for one of overlayfs's own.
    pub(crate) fn name_above(&self, below: Vec<u8>) -> Option<Vec<u8>> {
        match below.strip_prefix(self.prefix) {
            None => Some(below),
            Some(rest) => rest.strip_prefix(AGAIN).map(|rest| [self.prefix, rest].concat()),
        }
    }
}

impl XattrInode for Node {
    fn as_acls(&self) -> Option<&dyn AclInode> {
        self.real().inode.as_acls().map(|_| self as &dyn AclInode)
    }
    fn get_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<Vec<u8>> {
        let over = self.core.over(cx);
        let (real, name) = (&self.real().inode, self.core.name_below(name)?);
        namei::xattr::check(&over, real, &name, MAY_READ)?;
        real.xattrs()?.get_xattr(&over, &name)
    }
    fn set_xattr(&self, cx: &dyn Caller, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        let over = self.core.over(cx);
        let name = self.core.name_below(name)?;
        let upper = self.writable(cx, Content::All)?;
        namei::xattr::check(&over, upper, &name, MAY_WRITE)?;
        upper.xattrs()?.set_xattr(&over, &name, value, flags)
    }
    fn list_xattr(&self, cx: &dyn Caller) -> Result<Vec<Vec<u8>>> {
        let Some(real) = self.real().inode.as_xattrs() else { return Ok(Vec::new()) };
        let names = real.list_xattr(&self.core.over(cx))?;
        Ok(names.into_iter().filter_map(|name| self.core.name_above(name)).collect())
    }
    fn remove_xattr(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        let over = self.core.over(cx);
        let name = self.core.name_below(name)?;
        // What is not there need not be copied up.
        self.real().inode.xattrs()?.get_xattr(&over, &name)?;
        let upper = self.writable(cx, Content::All)?;
        namei::xattr::check(&over, upper, &name, MAY_WRITE)?;
        upper.xattrs()?.remove_xattr(&over, &name)
    }
}
