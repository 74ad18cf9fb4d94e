//! The changes as a layer of an image: a tar archive as the OCI image specification has it.
//!
//! A removed name is an empty file `.wh.NAME`, and a directory that hides one of the layers below has `.wh..wh..opq` in
//! it. Extended attributes are PAX records `SCHILY.xattr.*`. Directories on the way to a change are part of the layer,
//! because a layer contains their attributes.

use crate::disk::is_written;
use crate::path::Place;
use changes::{Kind, Meta, Reader, Record, State};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::{Builder, EntryType, Header};

/// Before the name of what was removed.
const WHITEOUT: &[u8] = b".wh.";
/// Says that a directory hides those of that name below.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What a layer cannot hold, and was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Unix sockets.
    pub sockets: u64,
    /// Names and devices that stand for something else in a layer.
    pub whiteouts: u64,
    /// Extended attributes that belong to a host, and those with names that are no text.
    pub xattrs: u64,
    /// Objects that lie too deep, and attributes of objects that have too many.
    pub omitted: u64,
}

/// A node of the stream, for as long as its attributes come.
struct Object {
    path: Vec<u8>,
    kind: Kind,
    state: State,
    hides: bool,
    id: u64,
    meta: Meta,
    target: Vec<u8>,
    xattrs: Vec<(String, Vec<u8>)>,
}

/// Reads the changes and writes them as an archive. The stream has to be one for a layer ([`changes::Purpose::Layer`]).
pub fn pack(from: impl Read, to: impl Write) -> io::Result<Omissions> {
    let mut packer = Packer {
        reader: Reader::new(from),
        place: Place::default(),
        archive: Builder::new(to),
        named: HashMap::new(),
        left: Omissions::default(),
    };
    while packer.step()? {}
    packer.archive.into_inner()?.flush()?;
    Ok(packer.left)
}

struct Packer<R: Read, W: Write> {
    reader: Reader<R>,
    place: Place,
    archive: Builder<W>,
    /// Paths of objects that may have further names.
    named: HashMap<u64, Vec<u8>>,
    left: Omissions,
}

fn long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a path is too long")
}

impl<R: Read, W: Write> Packer<R, W> {
    /// Takes one object, or a name that is gone; false at the end.
    fn step(&mut self) -> io::Result<bool> {
        let object = match self.reader.next_record()? {
            Record::Node(node) => Object {
                path: self.place.node(&node).ok_or_else(long)?.to_vec(),
                kind: node.kind(),
                state: node.state,
                hides: node.hides,
                id: node.id,
                meta: node.meta,
                target: node.target.to_vec(),
                xattrs: Vec::new(),
            },
            Record::Removed { name } => {
                let whiteout = [WHITEOUT, name].concat();
                let path = self.place.name(&whiteout).ok_or_else(long)?.to_vec();
                if whiteout.len() > changes::NAME_MAX || name.starts_with(WHITEOUT) {
                    self.left.whiteouts += 1;
                } else {
                    self.empty(&path)?;
                }
                return Ok(true);
            }
            Record::Up => {
                self.place.up();
                return Ok(true);
            }
            Record::Xattr { .. } | Record::Data { .. } => return Ok(true),
            Record::Omitted { count } => {
                self.left.omitted += count;
                return Ok(true);
            }
            Record::End => return Ok(false),
            Record::Abort => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        self.object(object)?;
        Ok(true)
    }

    fn object(&mut self, mut object: Object) -> io::Result<()> {
        let name = object.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let device = object.kind == Kind::Char && object.meta.rdev as u32 == 0;
        if name.starts_with(WHITEOUT) || device {
            self.left.whiteouts += 1;
            if object.kind == Kind::Directory {
                self.pass_over()?;
            }
            return Ok(());
        }
        if object.kind == Kind::Socket {
            self.left.sockets += 1;
            return Ok(());
        }
        if object.state == State::Link {
            // Its first name may have been left out.
            let Some(first) = self.named.get(&object.id) else {
                self.left.whiteouts += 1;
                return Ok(());
            };
            let mut header = header(&object.meta, EntryType::Link, 0)?;
            return self.archive.append_link(&mut header, path(&object.path), path(first));
        }
        while let Record::Xattr { name, value } = self.reader.next_record()? {
            let text = std::str::from_utf8(name).ok().filter(|text| !text.contains('='));
            match text.filter(|text| is_written(text.as_bytes())) {
                Some(text) => object.xattrs.push((format!("SCHILY.xattr.{text}"), value.to_vec())),
                None => self.left.xattrs += 1,
            }
        }
        self.reader.put_back();
        if object.path.is_empty() {
            if object.state == State::Kept {
                return Ok(());
            }
            object.path = b".".to_vec();
        }
        self.append(&object)?;
        if object.id != 0 {
            self.named.insert(object.id, object.path.clone());
        }
        if object.kind == Kind::Directory && object.hides {
            self.empty(&[&object.path, &b"/"[..], OPAQUE].concat())?;
        }
        Ok(())
    }

    /// Leaves out what is in a directory, too.
    fn pass_over(&mut self) -> io::Result<()> {
        let mut depth = 1;
        while depth > 0 {
            match self.reader.next_record()? {
                Record::Node(node) => {
                    self.place.node(&node).ok_or_else(long)?;
                    self.left.whiteouts += 1;
                    depth += usize::from(node.kind() == Kind::Directory && node.state != State::Link);
                }
                Record::Up => {
                    self.place.up();
                    depth -= 1;
                }
                Record::Abort => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn append(&mut self, object: &Object) -> io::Result<()> {
        let mut records: Vec<(&str, &[u8])> =
            object.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let (sec, nsec) = object.meta.mtime;
        // Whole seconds before 1970 and parts of a second have no place in the header.
        let exact = match sec {
            0.. => format!("{sec}.{nsec:09}"),
            _ => format!("{:.9}", sec as f64 + f64::from(nsec) / 1e9),
        };
        if sec < 0 || nsec != 0 {
            records.push(("mtime", exact.as_bytes()));
        }
        if !records.is_empty() {
            self.archive.append_pax_extensions(records)?;
        }
        let (kind, size) = match object.kind {
            Kind::Regular => (EntryType::Regular, object.meta.size),
            Kind::Directory => (EntryType::Directory, 0),
            Kind::Symlink => (EntryType::Symlink, 0),
            Kind::Char => (EntryType::Char, 0),
            Kind::Block => (EntryType::Block, 0),
            Kind::Fifo | Kind::Socket => (EntryType::Fifo, 0),
        };
        let mut header = header(&object.meta, kind, size)?;
        let at = path(&object.path);
        match object.kind {
            Kind::Symlink => self.archive.append_link(&mut header, at, path(&object.target)),
            Kind::Directory => {
                let with_slash = [&object.path, &b"/"[..]].concat();
                self.archive.append_data(&mut header, path(&with_slash), io::empty())
            }
            Kind::Regular => {
                let content = Content { reader: &mut self.reader, at: 0, size, ready: None };
                self.archive.append_data(&mut header, at, content)
            }
            _ => self.archive.append_data(&mut header, at, io::empty()),
        }
    }

    /// An empty file that stands for something.
    fn empty(&mut self, at: &[u8]) -> io::Result<()> {
        let mut header = header(&Meta { mode: 0o100000, ..Meta::default() }, EntryType::Regular, 0)?;
        self.archive.append_data(&mut header, path(at), io::empty())
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn header(meta: &Meta, kind: EntryType, size: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(meta.mode & 0o7777);
    header.set_uid(meta.uid.into());
    header.set_gid(meta.gid.into());
    header.set_mtime(u64::try_from(meta.mtime.0).unwrap_or(0));
    if matches!(kind, EntryType::Char | EntryType::Block) {
        let (major, minor) = (libc::major(meta.rdev), libc::minor(meta.rdev));
        header.set_device_major(major)?;
        header.set_device_minor(minor)?;
    }
    header.set_cksum();
    Ok(header)
}

/// The content of the last node, its holes filled with zeros.
struct Content<'a, R: Read> {
    reader: &'a mut Reader<R>,
    at: u64,
    size: u64,
    /// Data that begin at an offset, and how many of their bytes were given.
    ready: Option<(u64, usize)>,
}

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.size || buf.is_empty() {
            return Ok(0);
        }
        let record = self.reader.next_record()?;
        let n = match record {
            Record::Data { offset, .. } if offset > self.at => {
                let n = usize::try_from(offset - self.at).unwrap_or(usize::MAX).min(buf.len());
                buf[..n].fill(0);
                self.reader.put_back();
                n
            }
            Record::Data { offset, bytes } => {
                let done = self.ready.filter(|(of, _)| *of == offset).map_or(0, |(_, done)| done);
                let n = (bytes.len() - done).min(buf.len());
                buf[..n].copy_from_slice(&bytes[done..done + n]);
                let whole = done + n == bytes.len();
                self.ready = (!whole).then_some((offset, done + n));
                if !whole {
                    self.reader.put_back();
                }
                n
            }
            _ => {
                self.reader.put_back();
                let n = usize::try_from(self.size - self.at).unwrap_or(usize::MAX).min(buf.len());
                buf[..n].fill(0);
                n
            }
        };
        self.at += n as u64;
        Ok(n)
    }
}
