//! name_to_handle_at(2), open_by_handle_at(2).

use crate::arg::{DirFd, PathPtr, Ptr};
use crate::at::{self, At};
use crate::files::own_handles;
use abi::Errno;
use caller::{Failure, HasCredentials};
use namei::handles::{self, COMPARED, OPENED};
use namei::{Lookup, OpenHow};
use rights::Cap;
use task::{Current, SysResult};
use vfs::FileLayer;
use vfs::dentry::{HANDLE_SIZE, Handle};

/// The mount is told by its unique ID, 64 bits of it.
const AT_HANDLE_MNT_ID_UNIQUE: i32 = 0x001;
/// A handle by which a file's name can be found.
const AT_HANDLE_CONNECTABLE: i32 = 0x002;
/// A handle that tells objects apart will do.
const AT_HANDLE_FID: i32 = 0x200;
/// FILEID_INVALID: what a handle has for its type when there is no room for it.
const TOO_SMALL: i32 = 0xff;
/// MAX_HANDLE_SZ
const MOST: u32 = 128;
/// Of `struct file_handle`, before the bytes of the handle.
const HEADER: u64 = 8;
/// FILEID_IS_CONNECTABLE, of a handle's type.
const IS_CONNECTABLE: i32 = 0x1_0000;
/// FILEID_IS_DIR: it leads to a directory.
const IS_DIR: i32 = 0x2_0000;
/// What of a handle's type is not its file system's.
const USER_FLAGS: i32 = 0x7fff_0000;

/// `handle_bytes` and `handle_type`.
fn header(c: &Current, handle: Ptr) -> abi::Result<(u32, i32)> {
    let mut raw = [0; HEADER as usize];
    c.read_bytes(handle.0, &mut raw)?;
    let [b0, b1, b2, b3, t0, t1, t2, t3] = raw;
    Ok((u32::from_ne_bytes([b0, b1, b2, b3]), i32::from_ne_bytes([t0, t1, t2, t3])))
}

pub fn name_to_handle_at(
    c: &mut Current,
    dir: DirFd,
    path: PathPtr,
    handle: Ptr,
    mount_id: Ptr,
    flags: i32,
) -> SysResult {
    let of_name = AT_HANDLE_FID | AT_HANDLE_CONNECTABLE | AT_HANDLE_MNT_ID_UNIQUE;
    let known = libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH | of_name;
    let connectable = flags & AT_HANDLE_CONNECTABLE != 0;
    if flags & !known != 0 || connectable && flags & (AT_HANDLE_FID | libc::AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut look = Lookup::empty();
    look.set(Lookup::FOLLOW, flags & libc::AT_SYMLINK_FOLLOW != 0);
    look.set(Lookup::EMPTY_PATH, flags & libc::AT_EMPTY_PATH != 0);
    let place = At::with_flags(c, dir, path, flags)?.lookup(c, look)?;
    let compared = flags & AT_HANDLE_FID != 0;
    let own = own_handles::encode(place.inode()).filter(|_| !connectable);
    // No file system here finds names by handles, as tmpfs of Linux does not.
    if connectable || own.is_none() && !compared && !place.mount.sb.fs.opens_by_handle() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (room, _) = header(c, handle)?;
    if room > MOST {
        return Err(Errno::EINVAL.into());
    }
    let size = own.as_ref().map_or(HANDLE_SIZE, |(_, bytes)| bytes.len());
    let mut raw = (size as u32).to_ne_bytes().to_vec();
    let fits = room as usize >= size;
    if let Some((kind, bytes)) = own.filter(|_| fits) {
        raw.extend(kind.to_ne_bytes());
        raw.extend(bytes);
    } else if fits {
        let (made, opens) = handles::encode(&place, compared)?;
        raw.extend(if opens { OPENED } else { COMPARED }.to_ne_bytes());
        raw.extend(made.to_bytes());
    } else {
        raw.extend(TOO_SMALL.to_ne_bytes());
    }
    if flags & AT_HANDLE_MNT_ID_UNIQUE != 0 {
        c.write_bytes(mount_id.0, &place.mount.unique_id().to_ne_bytes())?;
    } else {
        c.write_bytes(mount_id.0, &place.mount.id().to_ne_bytes())?;
    }
    c.write_bytes(handle.0, &raw)?;
    if fits { Ok(0) } else { Err(Errno::EOVERFLOW.into()) }
}

/// What follows the header.
fn handle_bytes(c: &Current, handle: Ptr, size: u32) -> abi::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let start = handle.0.checked_add(HEADER).ok_or(Errno::EFAULT)?;
    c.read_bytes(start, &mut bytes)?;
    Ok(bytes)
}

pub fn open_by_handle_at(c: &mut Current, mount: DirFd, handle: Ptr, flags: i32) -> SysResult {
    let (size, kind) = header(c, handle)?;
    if size == 0 || size > MOST || kind < 0 || kind & USER_FLAGS & !(IS_CONNECTABLE | IS_DIR) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if let Some(of) = own_handles::named_by(c, mount) {
        let bytes = handle_bytes(c, handle, size)?;
        let slot = c.fd_table().reserve(crate::files::open::limit(c))?;
        let file = own_handles::open(c, of, (kind, &bytes), flags)?;
        return Ok(slot.commit(file, flags & libc::O_CLOEXEC != 0) as u64);
    }
    let mount = if mount == at::CWD {
        c.fs().view().cwd.mount.clone()
    } else {
        let file = at::real_file(c, crate::arg::Fd(mount.0))?;
        match &file.path {
            Some(path) => path.mount.clone(),
            None => c.vfs().anonymous().clone(),
        }
    };
    if !c.creds().capable(Cap::DAC_READ_SEARCH) {
        return Err(Errno::EPERM.into());
    }
    let bytes = handle_bytes(c, handle, size)?;
    let handle = Handle::from_bytes(&bytes).filter(|_| kind & !USER_FLAGS == OPENED).ok_or(Errno::ESTALE)?;
    let place = handles::decode(&mount, handle)?;
    if kind & IS_DIR != 0 && !place.is_dir() {
        return Err(Errno::ESTALE.into());
    }
    let how = OpenHow::legacy(flags, 0)?;
    let slot = c.fd_table().reserve(crate::files::open::limit(c))?;
    let file = namei::open::open_decoded(c, place, &how).map_err(|failure| match failure {
        // It has gone since its handle was looked up.
        Failure::Errno(Errno::ENOENT) => Failure::Errno(Errno::ESTALE),
        other => other,
    })?;
    Ok(slot.commit(file, how.flags() & libc::O_CLOEXEC != 0) as u64)
}
