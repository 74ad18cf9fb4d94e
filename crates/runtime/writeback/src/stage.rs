//! The first half of a write-back: all new objects go to the staging directory, and the operations on them to the
//! journal. Nothing else in the root changes.

use crate::disk::{self, Xattrs, failed, is_refused, split};
use crate::journal::{self, Op};
use crate::path::Place;
use crate::skipped::Skipped;
use crate::staging::{PART, Staging};
use abi::Errno;
use hostsys::fs::{self as host, Access};
use overlay_diff::{Kind, Meta, Node, Reader, Record, State};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::fd::OwnedFd;

/// Names in the root that begin with this are not the container's.
const RESERVED: &[u8] = b".ringfence.";

/// Where the first name of an object with several is.
enum First {
    /// In the staging directory, below `new`.
    Staged(Vec<u8>),
    /// At a path of the root.
    InPlace(Vec<u8>),
    /// It was left out.
    Nowhere,
}

/// A directory that is entered.
enum Dir {
    /// It is there already; attributes that it gets, once what is in it is done.
    InPlace(Option<(Meta, Xattrs)>),
    /// It is staged: open, under this path below `new`, with its attributes, and whether its names change later.
    Staged { open: OwnedFd, path: Vec<u8>, meta: Meta, xattrs: Xattrs, linked: bool },
    /// It is left out, with all that is in it.
    Skipped,
}

/// What is known of a node once its attributes have come.
struct Object {
    name: Vec<u8>,
    kind: Kind,
    state: State,
    hides: bool,
    id: u64,
    meta: Meta,
    target: Vec<u8>,
    xattrs: Xattrs,
    path: Vec<u8>,
}

impl Object {
    /// Takes set-ID bits and capabilities from a regular file; whether there were any. In a directory set-group-ID gives no rights.
    fn drop_rights(&mut self) -> bool {
        if self.kind != Kind::Regular || self.state == State::Link {
            return false;
        }
        let (mode, count) = (self.meta.mode, self.xattrs.len());
        self.meta.mode &= !(libc::S_ISUID | libc::S_ISGID);
        self.xattrs.retain(|(name, _)| name != b"security.capability");
        (mode, count) != (self.meta.mode, self.xattrs.len())
    }
}

struct Stage<'a, R: Read> {
    staging: &'a Staging<'a>,
    /// What gives rights on the host is written back, too.
    privileged: bool,
    reader: &'a mut Reader<R>,
    journal: journal::Writer<BufWriter<File>>,
    place: Place,
    dirs: Vec<Dir>,
    named: HashMap<u64, First>,
    next: u64,
    skipped: Skipped,
    /// The root's attributes, if they change.
    root: Option<Meta>,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("changes of an overlay: {what}"))
}

/// Reads the changes to the end. With what was skipped come the root's own attributes, if they change. Unless `privileged`, what the
/// container chose and what would give rights on the host is left out: devices, set-ID bits and capabilities of files.
pub(crate) fn all<R: Read>(
    staging: &Staging<'_>,
    privileged: bool,
    reader: &mut Reader<R>,
) -> io::Result<(Skipped, Option<Meta>)> {
    let journal = host::create_at(&staging.dir, PART, Access::Write, 0o600)
        .map_err(|error| failed("cannot make", PART, error))?;
    let mut stage = Stage {
        staging,
        privileged,
        reader,
        journal: journal::Writer::new(BufWriter::new(File::from(journal)), &staging.entry.key),
        place: Place::default(),
        dirs: Vec::new(),
        named: HashMap::new(),
        next: 0,
        skipped: Skipped::default(),
        root: None,
    };
    while stage.step()? {}
    let Stage { journal, skipped, root, .. } = stage;
    journal.end()?;
    Ok((skipped, root))
}

impl<R: Read> Stage<'_, R> {
    fn op(&mut self, op: &Op) -> io::Result<()> {
        self.journal.write(op)
    }

    /// Takes one object, or a name that is gone; false at the end.
    fn step(&mut self) -> io::Result<bool> {
        let long = || wrong("a path is too long");
        match self.reader.next_record()? {
            Record::Node(node) => {
                let path = self.place.node(&node).ok_or_else(long)?.to_vec();
                let Node { state, hides, id, meta, .. } = node;
                let (name, target, kind) = (node.name.to_vec(), node.target.to_vec(), node.kind());
                self.object(Object { name, kind, state, hides, id, meta, target, path, xattrs: Vec::new() })?;
            }
            Record::Removed { name } => {
                let path = self.place.name(name).ok_or_else(long)?.to_vec();
                let reserved = self.dirs.len() == 1 && name.starts_with(RESERVED);
                match self.dirs.last() {
                    Some(Dir::InPlace(_)) if !reserved => self.op(&Op::Remove { path })?,
                    Some(Dir::Staged { .. }) => return Err(wrong("removed from what is new")),
                    _ => self.skipped.reserved += 1,
                }
            }
            Record::Up => {
                let path = self.place.up().to_vec();
                self.leave(path)?;
            }
            Record::End => {
                self.leave(Vec::new())?;
                return Ok(false);
            }
            Record::Xattr { .. } => return Err(wrong("an attribute of nothing")),
            Record::Abort => return Err(wrong("the sandbox could not tell them")),
            Record::Omitted { count } => self.skipped.omitted += count,
            // Of what is left out.
            Record::Data { .. } => {}
        }
        Ok(true)
    }

    fn object(&mut self, mut object: Object) -> io::Result<()> {
        while let Record::Xattr { name, value } = self.reader.next_record()? {
            object.xattrs.push((name.to_vec(), value.to_vec()));
        }
        self.reader.put_back();
        let reserved = self.dirs.len() == 1 && object.name.starts_with(RESERVED);
        let whiteout = object.kind == Kind::Char && object.meta.rdev as u32 == 0;
        if reserved || whiteout || matches!(self.dirs.last(), Some(Dir::Skipped)) {
            return self.skip(&object);
        }
        if !self.privileged {
            if matches!(object.kind, Kind::Char | Kind::Block) {
                let (top, name, number) = self.spot(&object.name);
                return self.refuse(top, &name, &object, number);
            }
            self.skipped.rights += u64::from(object.drop_rights());
        }
        match object.state {
            State::Link => self.link(&object),
            State::New => self.new_object(object),
            State::Kept => {
                self.dirs.push(Dir::InPlace(None));
                Ok(())
            }
            State::Changed if object.kind == Kind::Directory => {
                if object.path.is_empty() {
                    self.root = Some(object.meta);
                }
                self.dirs.push(Dir::InPlace(Some((object.meta, object.xattrs))));
                Ok(())
            }
            State::Changed => {
                self.note(object.id, || First::InPlace(object.path.clone()));
                self.op(&Op::Attributes { path: object.path, meta: object.meta, xattrs: object.xattrs })
            }
            State::Rewritten { shared: false } => {
                self.note(object.id, || First::InPlace(object.path.clone()));
                self.new_object(Object { id: 0, ..object })
            }
            State::Rewritten { shared: true } => {
                self.note(object.id, || First::InPlace(object.path.clone()));
                let (number, name) = self.number();
                let plain = Meta { mode: libc::S_IFREG | 0o600, ..object.meta };
                match self.regular(Top::New, &name, &plain)? {
                    Ok(_) => {}
                    Err(error) if is_refused(error) => return self.refuse(Top::New, &name, &object, None),
                    Err(error) => return Err(failed("cannot prepare", &object.path, error)),
                }
                self.op(&Op::Content { path: object.path.clone(), number })?;
                self.op(&Op::Attributes { path: object.path, meta: object.meta, xattrs: object.xattrs })
            }
        }
    }

    fn skip(&mut self, object: &Object) -> io::Result<()> {
        self.skipped.reserved += 1;
        self.note(object.id, || First::Nowhere);
        if object.kind == Kind::Directory {
            self.dirs.push(Dir::Skipped);
        }
        Ok(())
    }

    fn note(&mut self, id: u64, first: impl FnOnce() -> First) {
        if id != 0 {
            self.named.entry(id).or_insert_with(first);
        }
    }

    fn number(&mut self) -> (u64, Vec<u8>) {
        self.next += 1;
        (self.next, self.next.to_string().into_bytes())
    }

    /// Where something new is staged: in the directory that is new itself, or by a number; and the number then.
    fn spot(&mut self, name: &[u8]) -> (Top, Vec<u8>, Option<u64>) {
        match self.dirs.last() {
            Some(Dir::Staged { .. }) => (Top::Current, name.to_vec(), None),
            _ => {
                let (number, name) = self.number();
                (Top::New, name, Some(number))
            }
        }
    }

    fn base(&self, top: Top) -> (&OwnedFd, &[u8]) {
        match (top, self.dirs.last()) {
            (Top::Current, Some(Dir::Staged { open, path, .. })) => (open, path),
            _ => (&self.staging.new, b""),
        }
    }

    fn new_object(&mut self, object: Object) -> io::Result<()> {
        let (top, name, number) = self.spot(&object.name);
        let (dir, below) = self.base(top);
        let below = if below.is_empty() { name.clone() } else { [below, &b"/"[..], &name].concat() };
        let made = match object.kind {
            Kind::Regular => self.regular(top, &name, &object.meta)?.map(Some),
            _ => disk::make(dir, &name, &object.meta, &object.target),
        };
        let described = made.and_then(|open| match open {
            Some(open) if object.kind == Kind::Directory => Ok(Some(open)),
            open => self.describe(top, &name, open.as_ref(), &object).map(|()| None),
        });
        match described {
            Ok(Some(open)) => {
                let Object { meta, xattrs, .. } = object;
                self.dirs.push(Dir::Staged { open, path: below, meta, xattrs, linked: false });
                self.put(object.path, number)
            }
            Ok(None) => {
                self.note(object.id, || First::Staged(below));
                self.put(object.path, number)
            }
            Err(error) if is_refused(error) => self.refuse(top, &name, &object, number),
            Err(error) => Err(failed("cannot prepare", &object.path, error)),
        }
    }

    /// Leaves out what the host cannot hold. What it would have taken the place of goes all the same.
    fn refuse(&mut self, top: Top, name: &[u8], object: &Object, number: Option<u64>) -> io::Result<()> {
        let _ = host::unlink_at(self.base(top).0, name, object.kind == Kind::Directory);
        match object.kind {
            Kind::Char | Kind::Block => self.skipped.devices += 1,
            _ => self.skipped.refused += 1,
        }
        if object.state != State::Link {
            self.note(object.id, || First::Nowhere);
            if object.kind == Kind::Directory {
                self.dirs.push(Dir::Skipped);
            }
        }
        match number {
            Some(_) if object.hides => self.op(&Op::Remove { path: object.path.clone() }),
            _ => Ok(()),
        }
    }

    fn put(&mut self, path: Vec<u8>, number: Option<u64>) -> io::Result<()> {
        number.map_or(Ok(()), |number| self.op(&Op::Put { path, number }))
    }

    /// Makes a regular file with the content that comes next. The inner error is the host's; the content is read then, too.
    fn regular(&mut self, top: Top, name: &[u8], meta: &Meta) -> io::Result<abi::Result<OwnedFd>> {
        let made = disk::make(self.base(top).0, name, meta, b"");
        let mut made = made.and_then(|open| {
            let open = open.ok_or(Errno::EINVAL)?;
            host::truncate(&open, meta.size)?;
            Ok(open)
        });
        while let Record::Data { offset, bytes } = self.reader.next_record()? {
            if let Err(error) = made.as_ref().map_or(Ok(()), |open| disk::write(open, bytes, offset)) {
                made = Err(error);
            }
        }
        self.reader.put_back();
        Ok(made)
    }

    fn describe(
        &mut self,
        top: Top,
        name: &[u8],
        open: Option<&OwnedFd>,
        object: &Object,
    ) -> abi::Result<()> {
        let place = host::open_within(self.base(top).0, name, Access::Place)?;
        self.skipped.add(disk::describe(&place, open, &object.meta, &object.xattrs)?);
        Ok(())
    }

    /// One more name of an object.
    fn link(&mut self, object: &Object) -> io::Result<()> {
        let staged = match self.named.get(&object.id) {
            Some(First::Staged(path)) => Some(path.clone()),
            Some(First::InPlace(of)) => {
                let op = Op::Link { path: object.path.clone(), of: of.clone() };
                if let Some(Dir::Staged { linked, .. }) = self.dirs.last_mut() {
                    *linked = true;
                }
                return self.op(&op);
            }
            Some(First::Nowhere) => None,
            None => return Err(wrong("a link to nothing")),
        };
        let Some(first) = staged else {
            self.skipped.reserved += 1;
            return Ok(());
        };
        let told = |error| failed("cannot prepare", &object.path, error);
        let (top, name, number) = self.spot(&object.name);
        let (dir, of) = split(&first);
        let from = disk::open_dir(&self.staging.new, dir).map_err(told)?;
        match host::link_at(&from, of, self.base(top).0, &name) {
            Err(error) if is_refused(error) => return self.refuse(top, &name, object, number),
            linked => linked.map_err(told)?,
        }
        self.put(object.path.clone(), number)
    }

    /// The current directory, at this path, is done.
    fn leave(&mut self, path: Vec<u8>) -> io::Result<()> {
        match self.dirs.pop() {
            Some(Dir::InPlace(Some((meta, xattrs)))) => self.op(&Op::Attributes { path, meta, xattrs }),
            Some(Dir::Staged { open, meta, xattrs, linked, .. }) => {
                match disk::describe(&open, Some(&open), &meta, &xattrs) {
                    Ok(left) => self.skipped.add(left),
                    Err(error) if is_refused(error) => self.skipped.refused += 1,
                    Err(error) => return Err(failed("cannot prepare", &path, error)),
                }
                // A name that comes later changes its times.
                if linked { self.op(&Op::Attributes { path, meta, xattrs }) } else { Ok(()) }
            }
            Some(Dir::InPlace(None) | Dir::Skipped) => Ok(()),
            None => Err(wrong("up from the root")),
        }
    }
}

/// Which directory something is staged in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    /// That of numbers.
    New,
    /// The current one, which is new itself.
    Current,
}
