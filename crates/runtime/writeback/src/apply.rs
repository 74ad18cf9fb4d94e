//! Carries out a journal. Every operation may be repeated, and so may the whole list.

use crate::disk::{failed, is_refused, open_dir, set_attributes, split, write};
use crate::journal::{self, Op};
use crate::remove::remove;
use crate::skipped::Skipped;
use crate::staging::{JOURNAL, Staging};
use crate::steps::step;
use abi::{Errno, Result};
use hostsys::fs::{self as host, Access};
use std::fs::File;
use std::io::{self, BufReader};

/// A name for what is on its way to its place.
const MOVING: &[u8] = b"moving";
/// Bytes that are copied at once.
const PIECE: usize = 256 << 10;

/// Does what the journal says. InvalidData when it is not ours, or not any more; nothing of it is done from there on.
pub(crate) fn all(staging: &Staging<'_>, skipped: &mut Skipped) -> io::Result<()> {
    let told = |path: &[u8], error| failed("cannot write back", path, error);
    let journal = host::open_within(&staging.dir, JOURNAL, Access::Read)
        .map_err(|error| failed("cannot read the journal of", JOURNAL, error))?;
    if host::stat(&journal).map_err(|error| told(JOURNAL, error))?.file_type() != libc::S_IFREG {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut journal = journal::Reader::new(BufReader::new(File::from(journal)), &staging.entry.key);
    while let Some(op) = journal.read()? {
        (staging.pace)().map_err(|error| told(op.path(), error))?;
        match one(staging, &op, skipped) {
            Ok(()) => {}
            Err(error) if is_refused(error) => skipped.refused += 1,
            Err(error) => return Err(told(op.path(), error)),
        }
    }
    Ok(rustix::fs::syncfs(&staging.dir)?)
}

/// Does one thing.
fn one(staging: &Staging<'_>, op: &Op, skipped: &mut Skipped) -> Result<()> {
    match op {
        Op::Put { path, number } => put(staging, path, *number),
        Op::Link { path, of } => link(staging, path, of),
        Op::Remove { path } => {
            let (dir, name) = split(path);
            remove(&open_dir(&staging.root, dir)?, name, staging.pace)
        }
        Op::Attributes { path, meta, xattrs } => {
            let (dir, name) = split(path);
            let left = if path.is_empty() {
                let open = host::open_self(&staging.root)?;
                crate::disk::describe(&staging.root, Some(&open), meta, xattrs)?
            } else {
                set_attributes(open_dir(&staging.root, dir)?, name, meta, xattrs)?
            };
            skipped.add(left);
            Ok(())
        }
        Op::Content { path, number } => content(staging, path, *number),
    }
}

fn put(staging: &Staging<'_>, path: &[u8], number: u64) -> Result<()> {
    let staged = number.to_string().into_bytes();
    let new = match host::stat_at(&staging.new, &staged) {
        Ok(new) => new,
        // It is in its place.
        Err(Errno::ENOENT) => return Ok(()),
        Err(e) => return Err(e),
    };
    let (dir, name) = split(path);
    let dir = open_dir(&staging.root, dir)?;
    match host::stat_at(&dir, name) {
        // A file takes the place of another at once. The same goes for no directory that has names.
        Ok(old) if old.is_dir() || new.is_dir() => remove(&dir, name, staging.pace)?,
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    step()?;
    host::rename_at(&staging.new, &staged, &dir, name, 0)?;
    // Two names of one file: rename(2) does nothing.
    match host::unlink_at(&staging.new, &staged, false) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

fn link(staging: &Staging<'_>, path: &[u8], of: &[u8]) -> Result<()> {
    let (of_dir, of_name) = split(of);
    let of_dir = open_dir(&staging.root, of_dir)?;
    let object = host::stat_at(&of_dir, of_name)?;
    let (dir, name) = split(path);
    let dir = open_dir(&staging.root, dir)?;
    match host::stat_at(&dir, name) {
        Ok(there) if (there.dev, there.ino) == (object.dev, object.ino) => return Ok(()),
        Ok(there) if there.is_dir() => remove(&dir, name, staging.pace)?,
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    match host::unlink_at(&staging.dir, MOVING, false) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    step()?;
    host::link_at(&of_dir, of_name, &staging.dir, MOVING)?;
    step()?;
    host::rename_at(&staging.dir, MOVING, &dir, name, 0)
}

/// The file stays the same, with all its names; so its content is replaced piece by piece.
fn content(staging: &Staging<'_>, path: &[u8], number: u64) -> Result<()> {
    let from = host::open_within(&staging.new, &number.to_string().into_bytes(), Access::Read)?;
    let (dir, name) = split(path);
    let to = host::open_within(open_dir(&staging.root, dir)?, name, Access::Write)?;
    let (size, there) = (host::stat(&from)?.size, host::stat(&to)?);
    if there.file_type() != libc::S_IFREG {
        return Err(Errno::ESTALE);
    }
    step()?;
    // What is a hole now may have been data.
    host::truncate(&to, 0)?;
    step()?;
    host::truncate(&to, size)?;
    let mut buf = vec![0; PIECE];
    let mut at = 0;
    loop {
        at = match host::seek_data_hole(&from, at, true) {
            Ok(data) => data,
            Err(Errno::ENXIO) => return Ok(()),
            Err(e) => return Err(e),
        };
        let n = host::pread_full(&from, &mut buf, at)?;
        if n == 0 {
            return Ok(());
        }
        step()?;
        write(&to, &buf[..n], at)?;
        at += n as u64;
    }
}
