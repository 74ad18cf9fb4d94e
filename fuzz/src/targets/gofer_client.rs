//! What a gofer answers a sentry about files. Whatever it says, the sentry ends each question, and keeps no descriptor of another
//! kind than it asked for.
//!
//! An input begins with a byte that tells whose gofer it is. Then it has the answers in turn: a byte for the form of each, and its
//! fields. What the input lacks is zeros, which make an answer that is sound. So most inputs get past the first question.

use super::{Bytes, outcome};
use abi::stat::{Attr, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use fileproto::{Changes, Entry, Found, HEADER, Header, Kind, MAX_COMPONENTS, Reply, Request, Rights};
use hostsys::fs::{Access, stat};
use hostsys::{many_fds, one_fd};
use hosttree::remote::{Remote, Trust};
use hosttree::{DirectoryRef, Source, Target};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub(super) const WORDS: &[&str] = &["\u{1}\0\0\0", "\0\0\0\0", "a", "..", "a/b", "\u{2}\0\0\0\0\0\0\0"];

/// How long a gofer may be silent.
const PATIENCE: Duration = Duration::from_millis(20);
/// Answers with fields of the input. Zeros follow.
const MOST: usize = 64;
/// Longest text or value of an answer, and most names.
const LONGEST: usize = 300;

/// Attributes of a kind that the input says; 0 is `likely`.
fn attr(bytes: &mut Bytes<'_>, likely: u32) -> Attr {
    let more = bytes.byte();
    let kind = match more & 7 {
        0..=3 => likely,
        4 => S_IFREG,
        5 => S_IFDIR,
        6 => S_IFLNK,
        _ => S_IFIFO,
    };
    let mut attr = Attr { mode: kind | 0o644, dev: 1, ino: 1, nlink: 1, ..Attr::default() };
    if more & 8 != 0 {
        attr.dev = u64::from(bytes.byte());
        attr.ino = bytes.long();
    }
    if more & 16 != 0 {
        attr.mode = bytes.word();
        attr.size = bytes.long();
        attr.nlink = bytes.long();
    }
    if more & 32 != 0 {
        (attr.uid, attr.gid, attr.rdev) = (bytes.word(), bytes.word(), bytes.long());
    }
    if more & 64 != 0 {
        attr.btime = Some(Timespec { sec: bytes.long().cast_signed(), nsec: bytes.word().into() });
    }
    attr
}

/// A text that the input says; without one it is `a`.
fn text(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let length = usize::from(bytes.byte()) % LONGEST;
    let (text, rest) = bytes.0.split_at(length.min(bytes.0.len()));
    bytes.0 = rest;
    if text.is_empty() { b"a".to_vec() } else { text.to_vec() }
}

/// Which of `most` the input means: zero stands for all of them.
fn count(bytes: &mut Bytes<'_>, most: usize) -> usize {
    let fewer = usize::from(bytes.byte());
    if fewer == 255 { MAX_COMPONENTS } else { most.saturating_sub(fewer) }
}

/// The reply to a request, and how many descriptors belong to it.
fn reply(request: &Request<'_>, bytes: &mut Bytes<'_>) -> (Reply, usize) {
    let done = |reply| (reply, 0);
    match request {
        Request::Attach { version } => done(Reply::Attached {
            version: version + u32::from(bytes.byte() & 1),
            root: 1 + u64::from(bytes.byte()),
            attr: attr(bytes, S_IFDIR),
            statfs: StatFs { f_type: bytes.long().cast_signed(), ..StatFs::default() },
        }),
        Request::Channel => (Reply::Done, 1),
        Request::Walk { path, keep, .. } => {
            let names = count(bytes, path.split(|c| *c == b'/').count());
            done(Reply::Walked {
                own: attr(bytes, S_IFDIR),
                attrs: (0..names).map(|_| attr(bytes, S_IFDIR)).collect(),
                errno: bytes.byte().into(),
                handle: if *keep { 2 + u64::from(bytes.byte()) } else { bytes.byte().into() },
            })
        }
        Request::Stat { .. } => done(Reply::Attr(attr(bytes, S_IFDIR))),
        Request::Make { .. } => done(Reply::Attr(attr(bytes, S_IFLNK))),
        Request::SetAttr { .. } => done(Reply::Attr(attr(bytes, S_IFREG))),
        Request::OpenDirectory { .. } => (Reply::Opened(attr(bytes, S_IFDIR)), 1),
        Request::Open { access: fileproto::Access::Directory, .. } => {
            (Reply::Opened(attr(bytes, S_IFDIR)), 1)
        }
        Request::Open { .. }
        | Request::Create { .. }
        | Request::CreateUnnamed { .. }
        | Request::OpenAgain { .. } => (Reply::Opened(attr(bytes, S_IFREG)), 1),
        Request::ReadLink { .. } | Request::ReadLinkAgain => {
            done(Reply::Link { attr: attr(bytes, S_IFLNK), text: text(bytes) })
        }
        Request::List { .. } => {
            let entries = usize::from(bytes.byte());
            let entry =
                |_| Entry { ino: bytes.byte().into(), kind: bytes.byte(), name: text(bytes), attr: None };
            let entries = (0..entries % LONGEST).map(entry).collect();
            done(Reply::Entries { next: bytes.byte().into(), entries })
        }
        Request::GetXattr { .. } | Request::ListXattr { .. } | Request::Mark { .. } => {
            done(Reply::Bytes(text(bytes)))
        }
        Request::StatFs { .. } => {
            let (f_type, f_bsize) = (bytes.long().cast_signed(), bytes.long().cast_signed());
            done(Reply::StatFs(StatFs { f_type, f_bsize, ..StatFs::default() }))
        }
        Request::Look { names, places, .. } => {
            let names = count(bytes, names.len());
            let mut found = |_| match bytes.byte() {
                0 => Found::Object { attr: attr(bytes, S_IFREG), placed: *places },
                errno @ 1..=200 => Found::Failed(errno.into()),
                placed => Found::Object { attr: attr(bytes, S_IFDIR), placed: placed & 1 != 0 },
            };
            let found: Vec<Found> = (0..names).map(&mut found).collect();
            let placed = found.iter().filter(|f| matches!(f, Found::Object { placed: true, .. })).count();
            (Reply::Looked(found), placed)
        }
        Request::Link { .. }
        | Request::Unlink { .. }
        | Request::Rename { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::Close { .. } => done(Reply::Done),
    }
}

/// The bytes of a reply and how many descriptors belong to it; nothing for silence.
fn message(form: u8, question: &[u8], bytes: &mut Bytes<'_>) -> Option<(Vec<u8>, usize)> {
    let (Header { sequence, operation, .. }, request) = Request::decode(question)?;
    let (mut said, mut fds) = match form & 7 {
        5 => (Reply::Failed(i32::from(bytes.byte()).max(1)), 0),
        _ => reply(&request, bytes),
    };
    // What asks for nothing gets something, too.
    if fds == 0 && form & 0x40 != 0 {
        fds = 1;
    }
    if form & 7 == 6 && matches!(said, Reply::Done) {
        said = Reply::Attr(attr(bytes, S_IFREG));
    }
    let mut said = said.encode(sequence, operation);
    if form & 7 == 7 {
        let (at, change) = (bytes.word() as usize % said.len(), bytes.byte());
        match change {
            0 => said.truncate(at),
            255 => said.extend(text(bytes)),
            change => said[at] ^= change,
        }
    }
    (form != 0xff).then_some((said, fds))
}

/// Answers until the sentry has ended.
fn answer(channel: &OwnedFd, input: &[u8]) {
    let mut bytes = Bytes(input);
    let mut question = vec![0; fileproto::MAX_MESSAGE];
    let (Ok(file), Ok(null), Ok(directory)) =
        (File::open("/proc/self/exe"), File::open("/dev/null"), File::open("/"))
    else {
        return;
    };
    for turn in 0.. {
        if turn == MOST {
            bytes.0 = &[];
        }
        let Ok(packet) = one_fd::receive(channel, &mut question) else { return };
        if packet.len < HEADER {
            return;
        }
        let form = bytes.byte();
        let Some((said, wanted)) = message(form, &question[..packet.len], &mut bytes) else { continue };
        let is_directory = Request::decode(&question[..packet.len]).is_some_and(|(_, request)| {
            matches!(
                request,
                Request::OpenDirectory { .. } | Request::Open { access: fileproto::Access::Directory, .. }
            )
        });
        let fd = match form >> 3 & 7 {
            0..=3 if is_directory => directory.as_fd(),
            0..=3 => file.as_fd(),
            4 => null.as_fd(),
            5 => channel.as_fd(),
            6 => directory.as_fd(),
            _ => file.as_fd(),
        };
        // One of the forms has fewer than were told of, another one more.
        let fds = match form >> 6 {
            2 => wanted.saturating_sub(1),
            3 if wanted > 0 => wanted + 1,
            _ => wanted,
        };
        let fds: Vec<BorrowedFd<'_>> = vec![fd; fds.min(many_fds::MAX)];
        if many_fds::send(channel, &said, &fds).is_err() {
            return;
        }
    }
}

/// What came of all questions.
#[derive(Default)]
struct Came(Vec<i64>);

impl Came {
    /// Adds a number for a result.
    fn add<T>(&mut self, result: Result<T>, number: impl FnOnce(&T) -> i64) -> Option<T> {
        self.0.push(match &result {
            Ok(value) => number(value),
            Err(error) => -i64::from(error.raw()),
        });
        result.ok()
    }
}

fn kind_of(attr: &Attr) -> i64 {
    i64::from(attr.file_type() >> 12)
}

/// Asks everything that a sentry can.
fn ask(root: &DirectoryRef, came: &mut Came) {
    let rights = Rights { mode: 0o644, uid: 0, gid: 0 };
    came.add(root.attr(), kind_of);
    came.add(root.look(b"a/b"), kind_of);
    let along = root.look_along(b"a/b/c").ok_or(Errno::EIO);
    came.add(along, |(own, rest)| kind_of(own) + i64::try_from(rest.len()).unwrap_or(0) * 16);
    let all = root.look_at_all(&[b"a", b"b", b"c"], true).ok_or(Errno::EIO);
    if let Some(found) =
        came.add(all, |found| found.iter().filter(|(_, place)| place.is_some()).count() as i64)
    {
        assert_eq!(found.len(), 3);
    }
    if let Some((dir, attr)) = came.add(root.walk(b"a"), |(_, attr)| kind_of(attr)) {
        assert!(attr.is_dir());
        came.add(dir.statfs(), |statfs| i64::from(statfs.f_type != 0));
        came.add(dir.file_system(), |kind| i64::from(*kind != 0));
        came.add(root.rename(b"a", &*dir, b"b", 0), |()| 0);
        came.add(dir.link(Source::Named(&**root, b"a"), b"b"), |()| 0);
    }
    for access in [Access::Read, Access::ReadWrite, Access::Place, Access::Directory] {
        let Some((fd, attr)) = came.add(root.open(b"a", access), |(_, attr)| kind_of(attr)) else { continue };
        let kind = stat(&fd).map_or(0, |own| own.file_type());
        assert_eq!(kind, attr.file_type(), "a descriptor is of the kind that was told");
        match access {
            Access::Directory => assert_eq!(kind, S_IFDIR),
            Access::Place => {}
            _ => assert!(matches!(kind, S_IFREG | S_IFIFO), "{kind:o} is open for reading"),
        }
        let changes = Changes { mode: Some(0o600), ..Changes::default() };
        came.add(root.set_attr(Target::Open(&fd), &changes), |()| 0);
        came.add(root.get_xattr(Target::Open(&fd), b"user.a"), |value| value.len() as i64);
        came.add(root.attr_open(&fd), kind_of);
    }
    if let Some(fd) = came.add(root.open_self(), |_| 0) {
        assert_eq!(stat(&fd).map_or(0, |own| own.file_type()), S_IFDIR);
    }
    for made in [root.create(b"new", rights), root.create_unnamed(rights)] {
        if let Some((fd, _)) = came.add(made, |(_, attr)| kind_of(attr)) {
            assert_eq!(stat(&fd).map_or(0, |own| own.file_type()), S_IFREG);
        }
    }
    came.add(root.make(b"link", Kind::Symlink(b"a"), rights), kind_of);
    came.add(root.adopt(b"link", Timespec::default(), rights), kind_of);
    if let Some((text, _)) = came.add(root.read_link(b"link"), |(text, _)| text.len() as i64) {
        assert!(fileproto::is_text(&text));
    }
    if let Some(names) = came.add(root.list(), |names| names.len() as i64) {
        assert!(names.iter().all(|entry| fileproto::is_name(&entry.name)));
    }
    came.add(root.list_xattr(Target::This), |names| names.len() as i64);
    came.add(root.set_xattr(Target::This, b"user.a", b"value", 0), |()| 0);
    came.add(root.remove_xattr(Target::This, b"user.a"), |()| 0);
    came.add(root.unlink(b"a", false), |()| 0);
}

pub(super) fn run(input: &[u8]) -> u64 {
    let Ok((ours, theirs)) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
    else {
        return outcome("no sockets");
    };
    let mut bytes = Bytes(input);
    let trust = if bytes.byte() & 1 == 0 { Trust::Own } else { Trust::Others };
    std::thread::scope(|scope| {
        scope.spawn(move || answer(&theirs, bytes.0));
        let Ok(root) = Remote::attach_within(ours, trust, PATIENCE) else {
            return outcome("not attached");
        };
        let mut came = Came::default();
        ask(&root, &mut came);
        drop(root);
        outcome(came.0)
    })
}
