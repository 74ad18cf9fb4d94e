//! The changes as a list of names, as container engines show it.

use crate::path::Place;
use overlay_diff::{Reader, Record, State};
use std::io::{self, Read};

/// What became of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It, or something below it, is another.
    Changed,
    /// It is gone.
    Removed,
}

impl Change {
    /// The letter for it.
    pub fn letter(self) -> char {
        match self {
            Change::Added => 'A',
            Change::Changed => 'C',
            Change::Removed => 'D',
        }
    }
}

/// Reads the changes and tells each name but the root's, as an absolute path. Of what was removed only the topmost is
/// there.
pub fn list(from: impl Read, tell: &mut dyn FnMut(Change, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let long = || io::Error::new(io::ErrorKind::InvalidData, "a path is too long");
    let mut reader = Reader::new(from);
    let mut place = Place::default();
    let mut line = Vec::new();
    loop {
        let (change, path) = match reader.next_record()? {
            Record::Node(node) => {
                let change = match node.state {
                    State::New | State::Link if !node.hides => Change::Added,
                    _ => Change::Changed,
                };
                (change, place.node(&node).ok_or_else(long)?)
            }
            Record::Removed { name } => (Change::Removed, place.name(name).ok_or_else(long)?),
            Record::Up => {
                place.up();
                continue;
            }
            Record::Xattr { .. } | Record::Data { .. } | Record::Omitted { .. } => continue,
            Record::End => return Ok(()),
            Record::Abort => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        if !path.is_empty() {
            line.clear();
            line.push(b'/');
            line.extend_from_slice(path);
            tell(change, &line)?;
        }
    }
}
