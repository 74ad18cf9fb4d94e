//! Requests, one by one.

use super::{Connection, Listing, MAX_LISTINGS, ROOT};
use crate::again::told;
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};
use abi::time::Timespec;
use abi::{Errno, Result};
use fileproto::{
    Access, Entry, Found, HEADER, Handle, Kind, MAX_MESSAGE, Reply, Request, Rights, Source, Target, VERSION,
    is_name, is_text,
};
use hostsys::fanotify;
use hostsys::fs as host;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// What the sentry gets.
type Answer = (Reply, Vec<OwnedFd>);

/// Bytes of a listing that are not its entries: header, error, cookie and count.
const LIST: usize = HEADER + 4 + 8 + 4;
/// A longest name as the host has it in a listing, and more.
const RECORD: usize = 512;
/// An entry with its attributes has at most as many times the bytes of the host's record: 24 bytes for four of the
/// name.
const ATTR_FACTOR: usize = 7;

impl Connection {
    /// What comes of a request.
    pub(super) fn serve(
        self: &Arc<Self>,
        request: &Request<'_>,
        descriptor: Option<OwnedFd>,
    ) -> Result<Answer> {
        let reply = match *request {
            Request::Attach { version } => self.attach(version)?,
            Request::Channel => return Ok((Reply::Done, vec![self.open_channel()?])),
            Request::Walk { dir, path, keep } => self.walk(dir, path, keep)?,
            Request::Stat { dir } => Reply::Attr(told(host::stat(&*self.dir(dir)?)?)),
            Request::Open { dir, name, access } => return self.open(dir, name, access),
            Request::OpenDirectory { dir } => return self.opened(host::open_self(&*self.dir(dir)?)?),
            Request::Create { dir, name, rights } => {
                self.writable()?;
                let fd = host::create_at(&*self.dir(dir)?, name, host::Access::ReadWrite, rights.mode)?;
                own(&fd, rights)?;
                return self.opened(fd);
            }
            Request::CreateUnnamed { dir, rights } => {
                self.writable()?;
                let fd = host::create_unnamed(&*self.dir(dir)?, rights.mode)?;
                own(&fd, rights)?;
                return self.opened(fd);
            }
            Request::Make { dir, name, kind, rights } => self.make(dir, name, kind, rights)?,
            Request::Link { from, dir, name } => {
                self.writable()?;
                let dir = self.dir(dir)?;
                match from {
                    Source::Named { dir: from, name: old } => {
                        host::link_at(&*self.dir(from)?, old, &*dir, name)?
                    }
                    Source::Descriptor => host::link_open(self.sent(descriptor, &[S_IFREG])?, &*dir, name)?,
                }
                Reply::Done
            }
            Request::Unlink { dir, name, directory } => {
                self.writable()?;
                host::unlink_at(&*self.dir(dir)?, name, directory)?;
                Reply::Done
            }
            Request::Rename { from_dir, from, to_dir, to, flags } => {
                self.writable()?;
                host::rename_at(&*self.dir(from_dir)?, from, &*self.dir(to_dir)?, to, flags)?;
                Reply::Done
            }
            Request::ReadLink { dir, name } => self.read_link(dir, name)?,
            Request::List { dir, cookie, attributes } => self.list(dir, cookie, attributes)?,
            Request::SetAttr { ref target, ref changes } => {
                Reply::Attr(told(self.set_attr(target, changes, descriptor)?))
            }
            Request::GetXattr { ref target, name } => {
                Reply::Bytes(host::get_xattr(self.readable(target, descriptor)?, name)?)
            }
            Request::SetXattr { ref target, name, value, flags } => {
                self.writable()?;
                may_change(name)?;
                let flags = i32::try_from(flags).map_err(|_| Errno::EINVAL)?;
                host::set_xattr(self.readable(target, descriptor)?, name, value, flags)?;
                Reply::Done
            }
            Request::ListXattr { ref target } => {
                let names = host::list_xattr(self.readable(target, descriptor)?)?;
                Reply::Bytes(names.iter().flat_map(|name| [&name[..], b"\0"]).flatten().copied().collect())
            }
            Request::RemoveXattr { ref target, name } => {
                self.writable()?;
                may_change(name)?;
                host::remove_xattr(self.readable(target, descriptor)?, name)?;
                Reply::Done
            }
            Request::StatFs { dir } => Reply::StatFs(host::statfs(&*self.dir(dir)?)?),
            Request::Mark { ref target, mask, remove } => {
                if *target == Target::Descriptor || mask & !(fanotify::MASK | fanotify::DIRECTORY_MASK) != 0 {
                    return Err(Errno::EINVAL);
                }
                let (group, object) = (descriptor.ok_or(Errno::EBADF)?, self.readable(target, None)?);
                Reply::Bytes(match remove {
                    false => fanotify::mark(group, object, mask)?.into(),
                    true => fanotify::unmark(group, object, mask).map(|()| Vec::new())?,
                })
            }
            Request::Look { dir, places, ref names } => return self.look(dir, places, names),
            Request::OpenAgain { access } => return self.open_again(descriptor, access),
            Request::ReadLinkAgain => {
                let place = self.sent(descriptor, &[S_IFLNK])?;
                link_at(host::stat(&place)?, place)?
            }
            Request::Close { ref handles } => {
                self.close(handles);
                Reply::Done
            }
        };
        Ok((reply, Vec::new()))
    }

    /// The reply with a descriptor.
    fn opened(&self, fd: OwnedFd) -> Result<Answer> {
        Ok((Reply::Opened(told(self.given(&fd)?)), vec![fd]))
    }

    fn attach(&self, version: u32) -> Result<Reply> {
        if version != VERSION {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let (attr, statfs) = (told(host::stat(&*self.root)?), host::statfs(&*self.root)?);
        Ok(Reply::Attached { version: VERSION, root: ROOT, attr, statfs })
    }

    fn walk(&self, dir: Handle, path: &[u8], keep: bool) -> Result<Reply> {
        let mut at = self.dir(dir)?;
        let own = told(host::stat(&*at)?);
        let mut attrs = Vec::new();
        let ended = |attrs, errno: Errno| Reply::Walked { own, attrs, errno: errno.raw() as u32, handle: 0 };
        let mut names = path.split(|c| *c == b'/').peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let found = if is_last && !keep { stat_at(&at, name) } else { place_at(&at, name) };
            let (attr, place) = match found {
                Ok(found) => found,
                Err(errno) => return Ok(ended(attrs, errno)),
            };
            attrs.push(told(attr));
            match place {
                _ if !attr.is_dir() && !is_last => return Ok(ended(attrs, Errno::ENOTDIR)),
                Some(place) if attr.is_dir() && is_last => {
                    return Ok(match self.keep(place) {
                        Ok(handle) => Reply::Walked { own, attrs, errno: 0, handle },
                        Err(errno) => ended(attrs, errno),
                    });
                }
                Some(place) => at = Arc::new(place),
                None => {}
            }
        }
        Ok(Reply::Walked { own, attrs, errno: 0, handle: 0 })
    }

    fn look(&self, dir: Handle, places: bool, names: &[&[u8]]) -> Result<Answer> {
        let dir = self.dir(dir)?;
        let mut fds = Vec::new();
        let mut look = |name: &&[u8]| {
            let found = match places {
                true => place_at(&dir, name).or_else(|_| stat_at(&dir, name)),
                false => stat_at(&dir, name),
            };
            match found {
                Ok((attr, place)) => {
                    let place = place.filter(|_| attr.file_type() == S_IFREG);
                    let placed = place.is_some();
                    fds.extend(place);
                    Found::Object { attr: told(attr), placed }
                }
                Err(errno) => Found::Failed(errno.raw()),
            }
        };
        let found = names.iter().map(&mut look).collect();
        Ok((Reply::Looked(found), fds))
    }

    fn open(&self, dir: Handle, name: &[u8], access: Access) -> Result<Answer> {
        let dir = self.dir(dir)?;
        let access = match access {
            Access::Place => return self.opened(host::open_at(&*dir, name, host::Access::Place)?),
            Access::Directory => return self.opened(host::open_at(&*dir, name, host::Access::Directory)?),
            Access::Read => host::Access::Read,
            Access::Write => host::Access::Write,
            Access::ReadWrite => host::Access::ReadWrite,
        };
        let kind = self.may_open(&host::identity_at(&*dir, name)?)?;
        if kind == S_IFREG && access != host::Access::Read {
            self.writable()?;
        }
        let fd = host::open_at(&*dir, name, access)?;
        let attr = self.given(&fd)?;
        // Another object may have got the name meanwhile. The mounts of the trees let no device be opened.
        self.may_open(&attr)?;
        Ok((Reply::Opened(told(attr)), vec![fd]))
    }

    fn open_again(&self, descriptor: Option<OwnedFd>, access: Access) -> Result<Answer> {
        if access != Access::Read {
            self.writable()?;
        }
        let file = self.sent(descriptor, &[S_IFREG])?;
        self.opened(self.own.as_ref().ok_or(Errno::ESTALE)?.open_again(&file, access)?)
    }

    /// Only regular files, and FIFOs where that was asked for, are opened; the type.
    fn may_open(&self, attr: &Attr) -> Result<u32> {
        match attr.file_type() {
            S_IFREG => Ok(S_IFREG),
            S_IFIFO if self.options.fifos => Ok(S_IFIFO),
            S_IFDIR => Err(Errno::EISDIR),
            S_IFLNK => Err(Errno::ELOOP),
            _ => Err(Errno::ENXIO),
        }
    }

    fn make(&self, dir: Handle, name: &[u8], kind: Kind<'_>, rights: Rights) -> Result<Reply> {
        self.writable()?;
        let dir = self.dir(dir)?;
        let started = host::now();
        match kind {
            Kind::Directory => host::mkdir_at(&*dir, name, rights.mode)?,
            Kind::Fifo => host::mknod_at(&*dir, name, false, rights.mode)?,
            Kind::Socket => host::mknod_at(&*dir, name, true, rights.mode)?,
            Kind::Whiteout => host::whiteout_at(&*dir, name, rights.mode)?,
            Kind::Symlink(text) => host::symlink_at(text, &*dir, name)?,
        }
        adopt(&dir, name, started, rights).map(|attr| Reply::Attr(told(attr)))
    }

    fn read_link(&self, dir: Handle, name: &[u8]) -> Result<Reply> {
        let (attr, place) = place_at(&*self.dir(dir)?, name)?;
        if !attr.is_symlink() {
            return Err(Errno::EINVAL);
        }
        link_at(attr, place.ok_or(Errno::EIO)?)
    }

    fn list(&self, handle: Handle, cookie: u64, attributes: bool) -> Result<Reply> {
        let dir = self.dir(handle)?;
        let fd = match self.take_listing(handle, cookie) {
            Some(fd) => fd,
            None => {
                let fd = host::open_self(&*dir)?;
                if cookie != 0 {
                    host::seek_list(&fd, cookie)?;
                }
                fd
            }
        };
        let (mut entries, mut next, mut room) = (Vec::new(), cookie, MAX_MESSAGE - LIST);
        loop {
            // Whatever the host tells at once must fit, so that the next request goes on where the host is.
            let records = if attributes { room / ATTR_FACTOR } else { room };
            if records < RECORD {
                break;
            }
            let more = host::list_some(fd.as_fd(), records, |entry| {
                next = entry.next;
                if !is_name(entry.name) {
                    return;
                }
                let attr = if attributes { host::stat_at(&*dir, entry.name).ok().map(told) } else { None };
                let entry = Entry { ino: entry.ino, kind: entry.kind, name: entry.name.into(), attr };
                room = room.saturating_sub(entry.size());
                entries.push(entry);
            })?;
            if !more {
                return Ok(Reply::Entries { next: 0, entries });
            }
        }
        if next == 0 {
            // It would be taken for the end.
            return Err(Errno::EIO);
        }
        self.keep_listing(Listing { dir: handle, next, fd });
        Ok(Reply::Entries { next, entries })
    }

    /// The directory of a listing that goes on.
    fn take_listing(&self, dir: Handle, cookie: u64) -> Option<OwnedFd> {
        let mut listings = self.listings();
        let at = listings.iter().position(|listing| (listing.dir, listing.next) == (dir, cookie))?;
        Some(listings.remove(at).fd)
    }

    fn keep_listing(&self, listing: Listing) {
        let mut listings = self.listings();
        let oldest = if listings.len() >= MAX_LISTINGS { Some(listings.remove(0)) } else { None };
        listings.push(listing);
        drop(listings);
        drop(oldest);
    }
}

/// The text of a link with these attributes.
fn link_at(attr: Attr, place: OwnedFd) -> Result<Reply> {
    let text = host::readlink_place(place)?;
    if is_text(&text) { Ok(Reply::Link { attr: told(attr), text }) } else { Err(Errno::EIO) }
}

/// Attributes of a name.
fn stat_at(dir: &OwnedFd, name: &[u8]) -> Result<(Attr, Option<OwnedFd>)> {
    Ok((host::stat_at(dir, name)?, None))
}

/// The same, with an O_PATH descriptor of the object.
fn place_at(dir: &OwnedFd, name: &[u8]) -> Result<(Attr, Option<OwnedFd>)> {
    let place = host::open_at(dir, name, host::Access::Place)?;
    Ok((host::stat(&place)?, Some(place)))
}

/// The IDs that differ from what they should be; u32::MAX stands for any.
fn other_owner(attr: &Attr, rights: Rights) -> Option<(Option<u32>, Option<u32>)> {
    let other = |is: u32, wanted: u32| (is != wanted && wanted != u32::MAX).then_some(wanted);
    let owner = (other(attr.uid, rights.uid), other(attr.gid, rights.gid));
    (owner != (None, None)).then_some(owner)
}

/// Gives a file that was just made the mode and owner asked for.
fn own(fd: &OwnedFd, rights: Rights) -> Result<()> {
    let attr = host::identity(fd)?;
    if let Some((uid, gid)) = other_owner(&attr, rights) {
        // Without the privilege (rootless) everything belongs to the one user that the gofer is.
        let _ = host::chown(fd, uid, gid);
    }
    // chown(2) takes set-ID bits away.
    let lost = rights.mode & 0o6000 != 0 && other_owner(&attr, rights).is_some();
    if lost || attr.mode & 0o7777 != rights.mode {
        host::chmod(fd, rights.mode)?;
    }
    Ok(())
}

/// The same for an object of another kind, which has a name only; its attributes.
fn adopt(dir: &OwnedFd, name: &[u8], started: Timespec, rights: Rights) -> Result<Attr> {
    let attr = host::stat_at(dir, name)?;
    let owner = other_owner(&attr, rights);
    let other_mode = !attr.is_symlink() && attr.mode & 0o7777 != rights.mode;
    if owner.is_none() && !other_mode {
        return Ok(attr);
    }
    let (made, place) = place_at(dir, name)?;
    let place = place.ok_or(Errno::EIO)?;
    // By way of another tree the name may be exchanged for an older object.
    if (made.dev, made.ino) != (attr.dev, attr.ino) || made.btime.is_some_and(|b| b.sec + 1 < started.sec) {
        return Err(Errno::ESTALE);
    }
    if let Some((uid, gid)) = owner {
        // As above.
        let _ = host::chown_place(&place, uid, gid);
    }
    if other_mode {
        match host::chmod_place(&place, rights.mode) {
            // Linux before 6.6.
            Err(Errno::ENOSYS) if attr.is_dir() => host::chmod(host::open_self(&place)?, rights.mode)?,
            // The mounts of the trees follow no link that takes the name's place.
            Err(Errno::ENOSYS) => host::chmod_at(dir, name, rights.mode)?,
            done => done?,
        }
    }
    host::stat(&place)
}

/// `user.` attributes, the capabilities of programs and access control lists may be changed: to the others the host's kernel or its security modules
/// give a meaning.
fn may_change(name: &[u8]) -> Result<()> {
    match name {
        b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default" => Ok(()),
        _ if name.starts_with(b"user.") => Ok(()),
        _ if name.starts_with(b"system.") => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EPERM),
    }
}
