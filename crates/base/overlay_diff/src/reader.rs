//! Reading a stream from a writer that is not trusted.

use crate::{DEPTH_MAX, FRAME_MAX, Kind, Node, Record, SHARED_MAX, State, XATTRS_MAX};
use std::collections::HashMap;
use std::io::{self, Read};

/// What may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The root.
    Start,
    /// Names of the current directory.
    Names,
    /// Nothing.
    Over,
}

/// The last node, for what belongs to it.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// It may have extended attributes: as many bytes of them.
    xattrs: Option<usize>,
    /// It may have content from here on, up to its size.
    content: Option<(u64, u64)>,
}

/// Reads records and checks them.
pub struct Reader<R: Read> {
    from: R,
    frame: Vec<u8>,
    /// The record in the frame is to come once more.
    again: bool,
    place: Place,
    /// States of the directories that are entered.
    open: Vec<State>,
    last: Last,
    /// Types of objects that may have further names.
    shared: HashMap<u64, Kind>,
    /// What was left out has been told.
    omitted: bool,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("changes of an overlay: {what}"))
}

impl<R: Read> Reader<R> {
    /// A stream that comes from `from`.
    pub fn new(from: R) -> Self {
        Self {
            from,
            frame: Vec::new(),
            again: false,
            place: Place::Start,
            open: Vec::new(),
            last: Last::default(),
            shared: HashMap::new(),
            omitted: false,
        }
    }

    /// The next record; after [`Record::End`] and [`Record::Abort`] there is none. UnexpectedEof when the stream ends
    /// without it.
    pub fn next_record(&mut self) -> io::Result<Record<'_>> {
        if std::mem::take(&mut self.again) {
            return Record::decode(&self.frame).ok_or_else(|| invalid("not a record"));
        }
        if self.place == Place::Over {
            return Err(invalid("more than there may be"));
        }
        let mut len = [0; 4];
        self.from.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if !(1..=FRAME_MAX).contains(&len) {
            return Err(invalid("length of a record"));
        }
        self.frame.resize(len, 0);
        self.from.read_exact(&mut self.frame)?;
        let frame = std::mem::take(&mut self.frame);
        let checked = match Record::decode(&frame) {
            Some(record) => self.check(&record),
            None => Err(invalid("not a record")),
        };
        self.frame = frame;
        checked?;
        Record::decode(&self.frame).ok_or_else(|| invalid("not a record"))
    }

    /// Whether the stream has come to its end.
    pub fn is_over(&self) -> bool {
        self.place == Place::Over && !self.again
    }

    /// Has the last record come once more.
    pub fn put_back(&mut self) {
        self.again = !self.frame.is_empty();
    }

    /// Whether the record may come now.
    fn check(&mut self, record: &Record<'_>) -> io::Result<()> {
        if *record == Record::Abort {
            self.place = Place::Over;
            return Ok(());
        }
        if self.place == Place::Start {
            return match record {
                Record::Node(node) if node.name.is_empty() => self.root(node),
                _ => Err(invalid("no root")),
            };
        }
        match record {
            Record::Node(node) => self.node(node),
            Record::Xattr { name, value } => {
                let left = self.last.xattrs.as_mut().ok_or_else(|| invalid("attribute of nothing"))?;
                *left = left
                    .checked_sub(name.len() + value.len())
                    .ok_or_else(|| invalid("too many extended attributes"))?;
                Ok(())
            }
            Record::Data { offset, bytes } => {
                let (from, size) = self.last.content.ok_or_else(|| invalid("content of nothing"))?;
                let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= size);
                let end =
                    end.filter(|_| *offset >= from).ok_or_else(|| invalid("content in the wrong place"))?;
                self.last = Last { xattrs: None, content: Some((end, size)) };
                Ok(())
            }
            Record::Removed { .. } => {
                self.last = Last::default();
                match self.open.last() {
                    Some(State::New) => Err(invalid("removed from what is new")),
                    _ => Ok(()),
                }
            }
            Record::Up => {
                self.last = Last::default();
                match self.open.len() {
                    0 | 1 => Err(invalid("up from the root")),
                    _ => {
                        self.open.pop();
                        Ok(())
                    }
                }
            }
            Record::Omitted { .. } if self.open.len() == 1 && !self.omitted => {
                (self.last, self.omitted) = (Last::default(), true);
                Ok(())
            }
            Record::Omitted { .. } => Err(invalid("what is left out, in the wrong place")),
            Record::End if self.open.len() == 1 => {
                self.place = Place::Over;
                Ok(())
            }
            Record::End | Record::Abort => Err(invalid("the end in the middle")),
        }
    }

    fn root(&mut self, node: &Node<'_>) -> io::Result<()> {
        if node.kind() != Kind::Directory || !matches!(node.state, State::Kept | State::Changed) {
            return Err(invalid("not a root"));
        }
        self.place = Place::Names;
        self.enter(node)
    }

    fn node(&mut self, node: &Node<'_>) -> io::Result<()> {
        if node.name.is_empty() {
            return Err(invalid("an object without a name"));
        }
        let new = matches!(node.state, State::New | State::Link);
        if self.open.last() == Some(&State::New) && (!new || node.hides) || node.hides && !new {
            return Err(invalid("an object in the wrong place"));
        }
        match (node.state, node.id) {
            (State::Link, id) => {
                if self.shared.get(&id) != Some(&node.kind()) {
                    return Err(invalid("a link to nothing"));
                }
            }
            (_, 0) => {}
            (_, id) => {
                if node.kind() == Kind::Directory || self.shared.insert(id, node.kind()).is_some() {
                    return Err(invalid("a number of two objects"));
                }
                if self.shared.len() > SHARED_MAX {
                    return Err(invalid("too many objects with several names"));
                }
            }
        }
        self.enter(node)
    }

    fn enter(&mut self, node: &Node<'_>) -> io::Result<()> {
        let described = node.state != State::Link;
        self.last = Last {
            xattrs: described.then_some(XATTRS_MAX),
            content: node.has_content().then_some((0, node.meta.size)),
        };
        if node.kind() == Kind::Directory {
            if self.open.len() >= DEPTH_MAX {
                return Err(invalid("too many directories below each other"));
            }
            self.open.push(node.state);
        }
        Ok(())
    }
}
