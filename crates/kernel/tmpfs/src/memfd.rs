//! Files of memfd_create(2) and their seals (fcntl(2), F_ADD_SEALS).

use crate::content::{Content, SEAL_EXEC, SEAL_FUTURE_WRITE, SEAL_GROW, SEAL_SEAL, SEAL_SHRINK, SEAL_WRITE};
use crate::fs::TmpFs;
use crate::memfile::MemFiles;
use crate::node::{Body, Node};
use crate::open_file::File;
use crate::options::Options;
use abi::{Errno, Result};
use caller::DeviceNumbers;
use std::sync::Arc;
use vfs::{Caller, Dentry, FileSystem, InodeRef, Mount, MountFlags, OpenFile, Path};

const MFD_ALLOW_SEALING: u32 = 2;
const MFD_NOEXEC_SEAL: u32 = 8;

/// The memfds of a kernel, and what else is such a file without being called so: shared anonymous memory, System V segments.
pub struct Memfds {
    fs: Arc<TmpFs>,
    /// Nothing can walk to it.
    mount: Arc<Mount>,
}

impl Memfds {
    /// None yet; their content lives in `memory`.
    pub fn new(memory: &Arc<MemFiles>) -> Arc<Memfds> {
        let fs = TmpFs::new(memory, Options { size: None, inodes: None, ..Options::default() });
        Arc::new(Memfds { fs: fs.clone(), mount: Mount::of(fs, MountFlags::empty(), b"tmpfs") })
    }

    /// What the files are on.
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// The device numbers of the kernel's file systems.
    pub fn device_numbers(&self) -> &DeviceNumbers {
        &self.fs.storage.memory.device_numbers
    }

    /// The open file that memfd_create(2) gives for valid flags.
    pub fn memfd(&self, cx: &dyn Caller, name: &[u8], flags: u32) -> Result<Arc<OpenFile>> {
        self.file(cx, &[b"memfd:", name].concat(), flags)
    }

    /// As [`Memfds::memfd`] with the name as it is shown: `dev/zero` for shared anonymous memory, `SYSV00000000`.
    pub fn file(&self, cx: &dyn Caller, shown: &[u8], flags: u32) -> Result<Arc<OpenFile>> {
        let mut c = Content::empty();
        c.sealable = flags & (MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL) != 0;
        if c.sealable {
            c.seals = 0;
        }
        let mut mode = 0o100777;
        if flags & MFD_NOEXEC_SEAL != 0 {
            mode = 0o100666;
            c.seals |= SEAL_EXEC;
        }
        self.fs.charge_inode()?;
        let creds = cx.creds();
        let node = Node::new(self.fs.clone(), Body::file(c), mode, creds.fsuid, creds.fsgid, 0, 0);
        let inode: InodeRef = node.clone();
        let dentry = Dentry::detached(cx.vfs().dcache(), inode.clone(), shown);
        let path = Path { mount: self.mount.clone(), dentry };
        Ok(OpenFile::new(Some(path), Some(inode), Arc::new(File::new(node)), libc::O_RDWR | 0o100000))
    }
}

/// The node, unless its file system is not a tmpfs to the program (an overlay).
fn node_of(file: &OpenFile) -> Result<&Node> {
    file.inode.as_ref().and_then(Node::of).filter(|n| n.fs.kind() == "tmpfs").ok_or(Errno::EINVAL)
}

/// F_GET_SEALS; EINVAL for files that know no seals.
pub fn get_seals(file: &OpenFile) -> Result<u32> {
    match &node_of(file)?.body {
        Body::File(c) => Ok(c.read().seals),
        _ => Err(Errno::EINVAL),
    }
}

/// F_ADD_SEALS.
pub fn add_seals(file: &OpenFile, seals: u32) -> Result<()> {
    if !file.writable() {
        return Err(Errno::EPERM);
    }
    let known = SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE | SEAL_EXEC;
    if seals & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let node = node_of(file)?;
    let Body::File(c) = &node.body else { return Err(Errno::EINVAL) };
    let mut c = c.write();
    if c.seals & SEAL_SEAL != 0 {
        return Err(Errno::EPERM);
    }
    let mut seals = seals;
    if seals & SEAL_EXEC != 0 && node.mode() & 0o111 != 0 {
        seals |= SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE;
    }
    if let Some(fd) = c.fd() {
        // The host answers EBUSY when a writable mapping exists.
        hostsys::fs::add_seals(&fd, seals & (SEAL_SHRINK | SEAL_GROW | SEAL_WRITE | SEAL_FUTURE_WRITE))?;
    }
    c.seals |= seals;
    Ok(())
}
