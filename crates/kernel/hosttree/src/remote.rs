//! Directories that a gofer reaches, by the protocol of `fileproto`: this process makes no call with a path.
//!
//! Key type: [`Connection`], to the gofer of one tree. It has several channels; a thread that has a question takes one that is
//! not in use, and the last one that is free asks for another one first, so that a slow answer holds up no other question.
//!
//! The gofer is not trusted: what cannot be decoded ends the connection, and what it hands over is used only when it is of the kind that
//! was asked for. One that says nothing for [`PATIENCE`] makes the question fail with EIO and loses that channel.
//!
//! Locks: the channels, the handles to be given back, the types of file systems; all are leaves, and no question is asked with one
//! held.

use crate::{Changes, Directory, DirectoryRef, Kind, Looked, Rights, Source, Target, same};
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use fileproto::{
    Found, Handle, MAX_CHANNELS, MAX_CLOSE, MAX_COMPONENTS, MAX_LOOK, MAX_MESSAGE, MAX_NAME, MAX_PATH, Reply,
    Request,
};
use hostsys::fs::{self as host, Access, ListEntry};
use hostsys::one_fd::{self, Wait};
use hostsys::{cpu, fanotify, many_fds};
use lock_order::{Condvar, Mutex};
use std::any::Any;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long an answer of others is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a listing may take, and how many bytes of names it may have.
const LISTING: (Duration, usize) = (Duration::from_secs(600), 256 << 20);

/// How far a gofer is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// The container's own.
    Own,
    /// A program of others: it gets no descriptor of the kernel's, and a bounded time.
    Others,
}

/// Handles that are given back together.
const GIVEN_BACK: usize = 64;

/// File systems of a tree of which the type is kept.
const MAX_FILE_SYSTEMS: usize = 256;

/// Answers without names that are taken before the end of a directory.
const MAX_EMPTY: usize = 64;

/// A socket to the gofer, and room for an answer.
struct Channel {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The processor on which an answer was waited for last.
    processor: Option<u32>,
}

impl Channel {
    fn new(socket: OwnedFd) -> Channel {
        Channel { socket, buffer: vec![0; MAX_MESSAGE], processor: None }
    }
}

struct Channels {
    free: Vec<Channel>,
    /// All of them, those in use as well.
    count: usize,
}

/// A connection to the gofer of a tree.
pub struct Connection {
    channels: Mutex<Channels>,
    /// A channel is free, or there is none any more.
    freed: Condvar,
    sequence: AtomicU32,
    /// Handles that are not used any more.
    unused: Mutex<Vec<Handle>>,
    /// The gofer has ended, or said something that makes no sense.
    ended: AtomicBool,
    /// What the log calls the tree.
    name: String,
    /// The log has what went wrong first.
    reported: AtomicBool,
    /// It gives no further channel.
    full: AtomicBool,
    trust: Trust,
    /// The types of the tree's file systems, by device numbers.
    file_systems: Mutex<BTreeMap<u64, i64>>,
    /// How long it may take to answer. The container's own waits for the host's file system, as a call of this process would.
    patience: Option<Duration>,
}

/// A reply, and the descriptors that came along.
type Answer = (Reply, Vec<OwnedFd>);

/// What a channel is not good for any more.
enum Failure {
    /// This question: the channel is as good as before.
    Question(Errno),
    /// Anything: the channel goes.
    Channel(&'static str),
    /// The whole connection: its answer of so many bytes makes no sense.
    Connection(usize),
}

impl Connection {
    fn new(channel: OwnedFd, trust: Trust, name: &str, patience: Option<Duration>) -> Arc<Connection> {
        Arc::new(Connection {
            channels: Mutex::new(Channels { free: vec![Channel::new(channel)], count: 1 }),
            freed: Condvar::new(),
            sequence: AtomicU32::new(1),
            unused: Mutex::default(),
            ended: AtomicBool::new(false),
            name: name.to_owned(),
            reported: AtomicBool::new(false),
            full: AtomicBool::new(false),
            trust,
            file_systems: Mutex::default(),
            patience,
        })
    }

    /// A channel that is free, and whether no other one is while there may be more.
    fn take(&self, processor: Option<u32>) -> Result<(Channel, bool)> {
        let mut channels = self.channels.lock();
        loop {
            // The gofer's thread is there already.
            let near = channels.free.iter().position(|channel| channel.processor == processor);
            let channel = match near {
                Some(at) => Some(channels.free.swap_remove(at)),
                None => channels.free.pop(),
            };
            if let Some(channel) = channel {
                return Ok((channel, channels.free.is_empty() && channels.count < MAX_CHANNELS));
            }
            if channels.count == 0 {
                return Err(Errno::EIO);
            }
            self.freed.wait(&mut channels);
        }
    }

    fn give(&self, channel: Channel, is_new: bool) {
        let mut channels = self.channels.lock();
        channels.free.push(channel);
        channels.count += usize::from(is_new);
        drop(channels);
        self.freed.notify_one();
    }

    /// A channel is gone.
    fn lose(&self, channel: Channel, all: bool) {
        drop(channel);
        let mut channels = self.channels.lock();
        channels.count -= 1;
        let gone = if all {
            channels.count -= channels.free.len();
            std::mem::take(&mut channels.free)
        } else {
            Vec::new()
        };
        drop(channels);
        drop(gone);
        self.freed.notify_all();
    }

    /// Asks the gofer. Errors are the gofer's; EIO when there is none any more.
    fn ask(&self, request: &Request<'_>, with: Option<BorrowedFd<'_>>) -> Result<Answer> {
        // A gofer of others need not come here.
        let processor = if self.trust == Trust::Own { cpu::stay() } else { None };
        let (mut channel, last) = self.take(processor)?;
        channel.processor = processor;
        let attaches = matches!(request, Request::Attach { .. });
        let prepared = if attaches { Ok(()) } else { self.prepare(&mut channel, last) };
        let asked = prepared.and_then(|()| self.ask_on(&mut channel, request, with));
        let why = match asked {
            Ok(answer) => {
                // After an error of the whole connection nothing is kept.
                if self.ended.load(Ordering::Acquire) {
                    self.lose(channel, true)
                } else {
                    self.give(channel, false)
                }
                return Ok(answer);
            }
            Err(Failure::Question(errno)) => {
                self.give(channel, false);
                return Err(errno);
            }
            Err(Failure::Channel(why)) => {
                self.lose(channel, false);
                why.to_owned()
            }
            Err(Failure::Connection(bytes)) => {
                self.ended.store(true, Ordering::Release);
                self.lose(channel, true);
                format!("has sent a malformed reply of {bytes} bytes")
            }
        };
        if !self.reported.swap(true, Ordering::AcqRel) {
            log::error!("the gofer of {} {why}; request: {}", self.name, name_of(request));
        }
        Err(Errno::EIO)
    }

    /// Before a question: gives back what is not used any more, and asks for another channel when this is the `last` free one.
    fn prepare(&self, channel: &mut Channel, last: bool) -> std::result::Result<(), Failure> {
        let refused = |failure| match failure {
            Failure::Question(_) => Ok(None),
            failure => Err(failure),
        };
        let handles = {
            let mut unused = self.unused.lock();
            if unused.len() < GIVEN_BACK { Vec::new() } else { std::mem::take(&mut *unused) }
        };
        for handles in handles.chunks(MAX_CLOSE) {
            let close = Request::Close { handles: handles.to_vec() };
            self.ask_on(channel, &close, None).map(Some).or_else(refused)?;
        }
        if !last || self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.ask_on(channel, &Request::Channel, None).map(Some).or_else(refused)? {
            // What is no socket is no channel; there is this one.
            Some((Reply::Done, mut fds))
                if fds.iter().any(|more| host::stat(more).is_ok_and(|a| a.file_type() == S_IFSOCK)) =>
            {
                fds.drain(..).take(1).for_each(|more| self.give(Channel::new(more), true));
            }
            _ => self.full.store(true, Ordering::Relaxed),
        }
        Ok(())
    }

    fn ask_on(
        &self,
        channel: &mut Channel,
        request: &Request<'_>,
        with: Option<BorrowedFd<'_>>,
    ) -> std::result::Result<Answer, Failure> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let processor = channel.processor.and_then(|at| u16::try_from(at + 1).ok()).unwrap_or(0);
        let bytes = request.encode_on(sequence, processor);
        if bytes.len() > MAX_MESSAGE {
            return Err(Failure::Question(Errno::E2BIG));
        }
        let Channel { socket, buffer, .. } = channel;
        // A gofer that has both ends of a channel could let a call wait for good.
        let wait = if self.patience.is_some() { Wait::No } else { Wait::Yes };
        let sent = match with {
            None => one_fd::tell(&*socket, &bytes, wait),
            Some(_) => one_fd::send_or(&*socket, &bytes, with, wait),
        };
        sent.map_err(|error| match error {
            Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN => Failure::Channel("has ended"),
            Errno::EAGAIN => Failure::Channel("takes no question"),
            // Nothing was sent.
            error => Failure::Question(error),
        })?;
        if let Some(patience) = self.patience
            && !host::poll_for(&*socket, u32::from(libc::POLLIN.cast_unsigned()), patience)
        {
            return Err(Failure::Channel("does not answer"));
        }
        let received = match request {
            Request::Look { .. } => many_fds::receive(&*socket, buffer),
            _ => one_fd::receive_or(&*socket, buffer, wait).map(Into::into),
        };
        let packet = received.map_err(|_| Failure::Channel("has ended"))?;
        if packet.len == 0 {
            return Err(Failure::Channel("has ended"));
        }
        let reply = buffer.get(..packet.len).filter(|_| !packet.is_cut);
        let reply = reply.and_then(|bytes| Reply::decode(bytes, sequence, request.operation()));
        match reply.ok_or(Failure::Connection(packet.len))? {
            // Another process has a lease of the file.
            Reply::Failed(libc::EAGAIN)
                if self.trust == Trust::Own && matches!(request, Request::Open { .. }) =>
            {
                Err(Failure::Question(Errno::EAGAIN))
            }
            Reply::Failed(errno) => Err(Failure::Question(error(errno))),
            _ if packet.fd_is_lost => Err(Failure::Question(Errno::ENFILE)),
            reply => Ok((reply, packet.fds)),
        }
    }

    /// The same for an answer without fields.
    fn tell(&self, request: &Request<'_>, with: Option<BorrowedFd<'_>>) -> Result<()> {
        match self.ask(request, with)?.0 {
            Reply::Done => Ok(()),
            _ => Err(Errno::EIO),
        }
    }

    /// The same for attributes.
    fn attr(&self, request: &Request<'_>, with: Option<BorrowedFd<'_>>) -> Result<Attr> {
        match self.ask(request, with)?.0 {
            Reply::Attr(attr) => Ok(attr),
            _ => Err(Errno::EIO),
        }
    }

    /// The same for an open file, which must be of the kind that its attributes say.
    fn open(&self, request: &Request<'_>, with: Option<BorrowedFd<'_>>) -> Result<(OwnedFd, Attr)> {
        let (Reply::Opened(attr), mut fds) = self.ask(request, with)? else { return Err(Errno::EIO) };
        let fd = fds.pop().ok_or(Errno::EIO)?;
        let kind = host::stat(&fd)?.mode & S_IFMT;
        if kind == attr.mode & S_IFMT { Ok((fd, attr)) } else { Err(Errno::EIO) }
    }

    /// Opens the regular file behind a descriptor of a tree of the gofer's once more.
    pub(crate) fn open_again(&self, file: &OwnedFd, access: Access) -> Result<OwnedFd> {
        if self.trust == Trust::Others {
            // It gets no descriptor.
            return Err(Errno::ESTALE);
        }
        let request = Request::OpenAgain { access: told(access) };
        let (again, attr) = self.open(&request, Some(file.as_fd()))?;
        let is_same = host::stat(file).is_ok_and(|a| (a.dev, a.ino) == (attr.dev, attr.ino));
        if is_same && attr.file_type() == S_IFREG { Ok(again) } else { Err(Errno::EIO) }
    }

    /// A connection that only opens files once more, for a process that reaches the trees themselves.
    pub fn for_opening_again(channel: OwnedFd) -> Arc<Connection> {
        Connection::new(channel, Trust::Own, "the container's own files", None)
    }

    /// A directory is not used any more.
    fn give_back(&self, handle: Handle) {
        // The next question takes them along: this may be under locks of others.
        self.unused.lock().push(handle);
    }
}

/// What a gofer tells of a path.
struct Walked {
    /// Attributes of the directory where it begins.
    own: Attr,
    /// Those of its names, as far as there are any.
    attrs: Vec<Attr>,
    /// Why they end.
    errno: i32,
    /// The directory at the end, if it was to be kept.
    end: Option<DirectoryRef>,
}

/// What a line of the log calls a request.
fn name_of(request: &Request<'_>) -> String {
    let text = format!("{request:?}");
    text.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase()
}

/// A directory that a gofer has open.
pub struct Remote {
    connection: Arc<Connection>,
    handle: Handle,
    /// Device number of its file system.
    dev: u64,
    /// The tree's root: its handle is never given back.
    is_root: bool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.is_root {
            self.connection.give_back(self.handle);
        }
    }
}

impl Remote {
    /// The root of the tree that the gofer at the other end of `channel` serves; the log calls it `name`. EIO for one that speaks
    /// another version.
    pub fn attach(channel: OwnedFd, trust: Trust, name: &str) -> Result<DirectoryRef> {
        Remote::attach_waiting(channel, trust, name, (trust == Trust::Others).then_some(PATIENCE))
    }

    /// The same; `patience`: how long it may take to answer.
    pub fn attach_within(channel: OwnedFd, trust: Trust, patience: Duration) -> Result<DirectoryRef> {
        Remote::attach_waiting(channel, trust, "a tree", Some(patience))
    }

    fn attach_waiting(
        channel: OwnedFd,
        trust: Trust,
        name: &str,
        patience: Option<Duration>,
    ) -> Result<DirectoryRef> {
        let connection = Connection::new(channel, trust, name, patience);
        match connection.ask(&Request::Attach { version: fileproto::VERSION }, None)?.0 {
            Reply::Attached { version: fileproto::VERSION, root, attr, statfs } => {
                connection.file_systems.lock().insert(attr.dev, statfs.f_type);
                Ok(Arc::new(Remote { connection, handle: root, dev: attr.dev, is_root: true }))
            }
            Reply::Attached { version, .. } => {
                log::error!(
                    "the gofer of {name} speaks version {version} of the protocol, not {}",
                    fileproto::VERSION
                );
                Err(Errno::EIO)
            }
            _ => Err(Errno::EIO),
        }
    }

    /// Walks a path of any length. Attributes of its names as far as there are any, why they end, and with `keep` the directory at
    /// the end.
    fn walk_along(&self, path: &[u8], keep: bool) -> Result<Walked> {
        check_path(path)?;
        let mut names = path;
        let mut from: Option<Remote> = None;
        let (mut attrs, mut start) = (Vec::new(), None);
        loop {
            let (part, rest) = split_path(names);
            let dir = from.as_ref().map_or(self.handle, |from| from.handle);
            let keeps = keep || !rest.is_empty();
            let request = Request::Walk { dir, path: part, keep: keeps };
            let Reply::Walked { own, attrs: told, errno, handle } = self.connection.ask(&request, None)?.0
            else {
                return Err(Errno::EIO);
            };
            let asked = part.split(|c| *c == b'/').count();
            // All of them, or a reason.
            if told.len() > asked || (told.len() < asked && errno == 0) {
                return Err(Errno::EIO);
            }
            let complete = told.len() == asked;
            let own = *start.get_or_insert(own);
            attrs.extend(told);
            let dev = attrs.last().map_or(0, |attr: &Attr| attr.dev);
            from = (handle != 0).then(|| self.at(handle, dev));
            if !complete || rest.is_empty() || from.is_none() {
                let errno =
                    if complete && !rest.is_empty() && errno == 0 { libc::ENOTDIR } else { errno as i32 };
                let end = if rest.is_empty() { from } else { None };
                return Ok(Walked { own, attrs, errno, end: end.map(|dir| Arc::new(dir) as DirectoryRef) });
            }
            names = rest;
        }
    }

    fn at(&self, handle: Handle, dev: u64) -> Remote {
        Remote { connection: self.connection.clone(), handle, dev, is_root: false }
    }

    /// The target as a message has it, and the descriptor that goes with it.
    fn target<'a>(&self, target: Target<'a>) -> Result<(fileproto::Target<'a>, Option<BorrowedFd<'a>>)> {
        Ok(match target {
            Target::This => (fileproto::Target::Directory(self.handle), None),
            Target::Open(fd) | Target::Place(fd) => (fileproto::Target::Descriptor, Some(fd.as_fd())),
            Target::Named { name, key: (dev, ino) } => {
                let key = fileproto::Key { dev, ino };
                (fileproto::Target::Named { dir: self.handle, name: check_name(name)?, key }, None)
            }
        })
    }

    fn bytes(&self, request: &Request<'_>, with: Option<BorrowedFd<'_>>) -> Result<Vec<u8>> {
        match self.connection.ask(request, with)?.0 {
            Reply::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::EIO),
        }
    }
}

/// An access as a message has it.
fn told(access: Access) -> fileproto::Access {
    match access {
        Access::Place => fileproto::Access::Place,
        Access::Read => fileproto::Access::Read,
        Access::Write => fileproto::Access::Write,
        Access::ReadWrite => fileproto::Access::ReadWrite,
        Access::Directory => fileproto::Access::Directory,
    }
}

fn check_name(name: &[u8]) -> Result<&[u8]> {
    match name {
        _ if name.len() > MAX_NAME => Err(Errno::ENAMETOOLONG),
        _ if fileproto::is_name(name) => Ok(name),
        _ => Err(Errno::EINVAL),
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    path.split(|c| *c == b'/').try_for_each(|name| check_name(name).map(drop))
}

/// The part of a path that one message takes, and the rest.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    let mut end = 0;
    for (count, name) in path.split(|c| *c == b'/').enumerate() {
        let next = end + usize::from(count != 0) + name.len();
        if count == MAX_COMPONENTS || next > MAX_PATH {
            return (&path[..end], &path[end + 1..]);
        }
        end = next;
    }
    (path, b"")
}

/// A gofer's error. One that would have a program wait or start again is none that a file has.
fn error(errno: i32) -> Errno {
    match errno {
        libc::EINTR | libc::EAGAIN | libc::ERESTART | libc::EINPROGRESS => Errno::EIO,
        1..=libc::EHWPOISON => Errno::from_raw(errno),
        _ => Errno::EIO,
    }
}

impl Directory for Remote {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn attr(&self) -> Result<Attr> {
        self.connection.attr(&Request::Stat { dir: self.handle }, None)
    }

    fn statfs(&self) -> Result<StatFs> {
        match self.connection.ask(&Request::StatFs { dir: self.handle }, None)?.0 {
            Reply::StatFs(statfs) => Ok(statfs),
            _ => Err(Errno::EIO),
        }
    }

    fn file_system(&self) -> Result<i64> {
        let known = self.connection.file_systems.lock().get(&self.dev).copied();
        known.map_or_else(
            || {
                let told = self.statfs()?.f_type;
                let mut known = self.connection.file_systems.lock();
                if known.len() < MAX_FILE_SYSTEMS {
                    known.insert(self.dev, told);
                }
                Ok(told)
            },
            Ok,
        )
    }

    fn look(&self, path: &[u8]) -> Result<Attr> {
        let Walked { attrs, errno, .. } = self.walk_along(path, false)?;
        let wanted = path.split(|c| *c == b'/').count();
        attrs.get(wanted - 1).copied().ok_or_else(|| error(errno))
    }

    fn look_along(&self, path: &[u8]) -> Option<(Attr, Vec<Result<Attr>>)> {
        let Walked { own, attrs, errno, .. } = self.walk_along(path, false).ok()?;
        let absent = (errno == libc::ENOENT).then_some(Err(Errno::ENOENT));
        Some((own, attrs.into_iter().map(Ok).chain(absent).collect()))
    }

    fn look_at_all(&self, names: &[&[u8]], places: bool) -> Option<Vec<Looked>> {
        let sound =
            (1..=MAX_LOOK).contains(&names.len()) && names.iter().all(|name| fileproto::is_name(name));
        if self.connection.trust == Trust::Others || !sound {
            return None;
        }
        let request = Request::Look { dir: self.handle, places, names: names.to_vec() };
        let Ok((Reply::Looked(found), fds)) = self.connection.ask(&request, None) else { return None };
        let mut fds = fds.into_iter();
        let looked = |found: &Found| match *found {
            Found::Failed(errno) => (Err(error(errno)), None),
            Found::Object { attr, placed } => (Ok(attr), placed.then(|| fds.next()).flatten()),
        };
        (found.len() == names.len()).then(|| found.iter().map(looked).collect())
    }

    fn walk(&self, path: &[u8]) -> Result<(DirectoryRef, Attr)> {
        let Walked { attrs, errno, end, .. } = self.walk_along(path, true)?;
        match (end, attrs.last().copied()) {
            (Some(dir), Some(attr)) if attr.is_dir() => Ok((dir, attr)),
            (Some(_), _) => Err(Errno::EIO),
            (None, _) if errno == 0 => Err(Errno::ENOTDIR),
            (None, _) => Err(error(errno)),
        }
    }

    fn open(&self, name: &[u8], access: Access) -> Result<(OwnedFd, Attr)> {
        let request = Request::Open { dir: self.handle, name: check_name(name)?, access: told(access) };
        let opened = self.connection.open(&request, None)?;
        let is_right = match (access, opened.1.file_type()) {
            (Access::Place, _) | (Access::Directory, S_IFDIR) => true,
            (Access::Read | Access::Write | Access::ReadWrite, kind) => matches!(kind, S_IFREG | S_IFIFO),
            (Access::Directory, _) => false,
        };
        if is_right { Ok(opened) } else { Err(Errno::EIO) }
    }

    fn open_self(&self) -> Result<OwnedFd> {
        let (fd, attr) = self.connection.open(&Request::OpenDirectory { dir: self.handle }, None)?;
        if attr.file_type() == S_IFDIR { Ok(fd) } else { Err(Errno::EIO) }
    }

    fn open_again(&self, file: &OwnedFd, access: Access) -> Result<OwnedFd> {
        self.connection.open_again(file, access)
    }

    fn attr_open(&self, file: &OwnedFd) -> Result<Attr> {
        let attr = host::stat(file)?;
        Ok(match self.connection.trust {
            Trust::Own => attr,
            // The file has the content of the gofer's object. Owner, mode and names are what the gofer says.
            Trust::Others => Attr { dev: u64::MAX, ino: u64::MAX, ..attr },
        })
    }

    fn list(&self) -> Result<Vec<ListEntry>> {
        let (most_time, most_bytes) = LISTING;
        let (mut names, mut cookie, mut empty, mut bytes) = (Vec::new(), 0, 0, 0);
        let begun = Instant::now();
        loop {
            let request = Request::List { dir: self.handle, cookie, attributes: false };
            let Reply::Entries { next, entries } = self.connection.ask(&request, None)?.0 else {
                return Err(Errno::EIO);
            };
            let entry = |e: fileproto::Entry| ListEntry { ino: e.ino, kind: e.kind, name: e.name.into() };
            empty += usize::from(entries.is_empty());
            bytes += entries.iter().map(fileproto::Entry::size).sum::<usize>();
            names.extend(entries.into_iter().map(entry));
            if next == 0 {
                return Ok(names);
            }
            // One that goes round in circles would never end.
            if empty > MAX_EMPTY || bytes > most_bytes || begun.elapsed() > most_time {
                return Err(Errno::EIO);
            }
            cookie = next;
        }
    }

    fn read_link(&self, name: &[u8]) -> Result<(Vec<u8>, Option<Attr>)> {
        match self.connection.ask(&Request::ReadLink { dir: self.handle, name: check_name(name)? }, None)?.0 {
            Reply::Link { attr, text } => Ok((text, Some(attr))),
            _ => Err(Errno::EIO),
        }
    }

    fn read_link_at(&self, place: &OwnedFd) -> Result<Vec<u8>> {
        if self.connection.trust == Trust::Others {
            return Err(Errno::ESTALE);
        }
        match self.connection.ask(&Request::ReadLinkAgain, Some(place.as_fd()))?.0 {
            Reply::Link { text, .. } => Ok(text),
            _ => Err(Errno::EIO),
        }
    }

    fn create(&self, name: &[u8], rights: Rights) -> Result<(OwnedFd, Attr)> {
        let made = self
            .connection
            .open(&Request::Create { dir: self.handle, name: check_name(name)?, rights }, None)?;
        if made.1.file_type() == S_IFREG { Ok(made) } else { Err(Errno::EIO) }
    }

    fn create_unnamed(&self, rights: Rights) -> Result<(OwnedFd, Attr)> {
        let made = self.connection.open(&Request::CreateUnnamed { dir: self.handle, rights }, None)?;
        if made.1.file_type() == S_IFREG { Ok(made) } else { Err(Errno::EIO) }
    }

    fn make(&self, name: &[u8], kind: Kind<'_>, rights: Rights) -> Result<Attr> {
        if let Kind::Symlink(text) = kind
            && !fileproto::is_text(text)
        {
            return Err(if text.is_empty() { Errno::ENOENT } else { Errno::ENAMETOOLONG });
        }
        self.connection.attr(&Request::Make { dir: self.handle, name: check_name(name)?, kind, rights }, None)
    }

    fn adopt(&self, name: &[u8], since: Timespec, rights: Rights) -> Result<Attr> {
        let found = self.look(name)?;
        if found.btime.is_some_and(|made| made.sec + 1 < since.sec) {
            return Err(Errno::ESTALE);
        }
        let Some(changes) = crate::towards(rights, &found) else { return Ok(found) };
        let target = Target::Named { name, key: (found.dev, found.ino) };
        // Without the privilege (rootless) everything belongs to the one user that the gofer is.
        match self.set_attr(target, &changes) {
            Err(Errno::EPERM) if changes.mode.is_some() => {
                self.set_attr(target, &Changes { mode: changes.mode, ..Changes::default() })?;
            }
            Err(Errno::EPERM) => {}
            done => done?,
        }
        self.look(name)
    }

    fn link(&self, from: Source<'_>, name: &[u8]) -> Result<()> {
        let (from, with) = match from {
            Source::Open(file) => (fileproto::Source::Descriptor, Some(file.as_fd())),
            Source::Named(dir, name) => {
                let dir = same::<Remote>(dir)?.handle;
                (fileproto::Source::Named { dir, name: check_name(name)? }, None)
            }
        };
        self.connection.tell(&Request::Link { from, dir: self.handle, name: check_name(name)? }, with)
    }

    fn unlink(&self, name: &[u8], directory: bool) -> Result<()> {
        self.connection.tell(&Request::Unlink { dir: self.handle, name: check_name(name)?, directory }, None)
    }

    fn rename(&self, name: &[u8], to: &dyn Directory, new_name: &[u8], flags: u32) -> Result<()> {
        let to_dir = same::<Remote>(to)?.handle;
        let (from, to) = (check_name(name)?, check_name(new_name)?);
        self.connection.tell(&Request::Rename { from_dir: self.handle, from, to_dir, to, flags }, None)
    }

    fn set_attr(&self, target: Target<'_>, changes: &Changes) -> Result<()> {
        let (target, with) = self.target(target)?;
        self.connection.attr(&Request::SetAttr { target, changes: *changes }, with).map(drop)
    }

    fn get_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<Vec<u8>> {
        let (target, with) = self.target(target)?;
        self.bytes(&Request::GetXattr { target, name: check_xattr(name)? }, with)
    }

    fn list_xattr(&self, target: Target<'_>) -> Result<Vec<Vec<u8>>> {
        let (target, with) = self.target(target)?;
        let names = self.bytes(&Request::ListXattr { target }, with)?;
        Ok(names.split(|c| *c == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn set_xattr(&self, target: Target<'_>, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        if value.len() > fileproto::MAX_VALUE {
            return Err(Errno::E2BIG);
        }
        let (target, with) = self.target(target)?;
        let flags = u32::try_from(flags).map_err(|_| Errno::EINVAL)?;
        self.connection.tell(&Request::SetXattr { target, name: check_xattr(name)?, value, flags }, with)
    }

    fn remove_xattr(&self, target: Target<'_>, name: &[u8]) -> Result<()> {
        let (target, with) = self.target(target)?;
        self.connection.tell(&Request::RemoveXattr { target, name: check_xattr(name)? }, with)
    }

    fn mark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<fanotify::Handle> {
        if self.connection.trust == Trust::Others {
            return Err(Errno::EOPNOTSUPP);
        }
        let (target, None) = self.target(target)? else { return Err(Errno::EINVAL) };
        self.bytes(&Request::Mark { target, mask, remove: false }, Some(group)).map(Into::into)
    }

    fn unmark(&self, target: Target<'_>, group: BorrowedFd<'_>, mask: u64) -> Result<()> {
        if self.connection.trust == Trust::Others {
            return Err(Errno::EOPNOTSUPP);
        }
        let (target, None) = self.target(target)? else { return Err(Errno::EINVAL) };
        self.bytes(&Request::Mark { target, mask, remove: true }, Some(group)).map(drop)
    }

    fn is_another_process(&self) -> bool {
        true
    }
}

fn check_xattr(name: &[u8]) -> Result<&[u8]> {
    if fileproto::is_xattr_name(name) { Ok(name) } else { Err(Errno::ERANGE) }
}
