//! The files that samples fall into. The mapped files themselves are opened, and read within limits.
//!
//! A file of a container is opened through a process that maps it (/proc/PID/map_files). So no path is resolved that
//! the guest could change, and files without a path are found, too. When every process that mapped it has ended, the
//! path is looked up beneath the container's root as init shows it, where links cannot lead out.

use crate::records::{FileId, Mapping, parse_mapping};
use crate::symbols::{self, Image, Source};
use crate::unwind::{Rule, Tables};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, statat,
};
use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Most files that are held open; further ones have no names.
const MAX_OPEN: usize = 256;
/// Most bytes that are read of all files together.
const MAX_READ: u64 = 2 << 30;
/// Most bytes of unwind information that are kept of all files together.
const MAX_TABLES: usize = 256 << 20;
/// How many samples may try to open a file.
const MAX_TRIES: u8 = 16;
/// Longest list of mappings that is read.
pub(crate) const MAX_MAPS: u64 = 16 << 20;
/// Most bytes of such lists in all: a guest can have many files, and make its list long.
const MAX_MAPS_READ: u64 = 256 << 20;

/// What the host calls the twin of a file's text.
const TWIN: &str = "/memfd:ringfence-text";

/// A file that samples fell into.
struct Entry {
    id: FileId,
    path: String,
    file: Option<File>,
    /// Where in that file the one that is mapped begins: not 0 for the twin of a file's text.
    shift: u64,
    tables: Option<Tables>,
    tries: u8,
    /// The places of interest.
    offsets: BTreeSet<u64>,
}

/// All of them.
pub(crate) struct Files {
    entries: Vec<Entry>,
    index: HashMap<FileId, u32>,
    open: usize,
    /// How much more may be read, and kept of what was read.
    left: Cell<u64>,
    /// The same of lists of mappings.
    maps_left: Cell<u64>,
    room: usize,
    /// The pid namespace of the sandbox.
    namespace: CString,
    /// The container's root.
    root: Option<OwnedFd>,
}

impl Files {
    /// For the sandbox with that pid namespace, and a container's root.
    pub(crate) fn new(namespace: CString, root: Option<OwnedFd>) -> Self {
        let (entries, index) = (Vec::new(), HashMap::new());
        Self {
            entries,
            index,
            open: 0,
            left: Cell::new(MAX_READ),
            maps_left: Cell::new(MAX_MAPS_READ),
            room: MAX_TABLES,
            namespace,
            root,
        }
    }

    /// Notes a place in a file that this process maps; the file's number.
    pub(crate) fn note(&mut self, mapping: &Mapping, pid: i32, offset: u64) -> u32 {
        let next = self.entries.len() as u32;
        let number = *self.index.entry(mapping.file).or_insert(next);
        if number == next {
            let (id, path) = (mapping.file, mapping.path.clone());
            self.entries.push(Entry {
                id,
                path,
                file: None,
                shift: 0,
                tables: None,
                tries: 0,
                offsets: BTreeSet::new(),
            });
        }
        self.entries[number as usize].offsets.insert(offset);
        self.open(number as usize, pid);
        number
    }

    /// How to get from a noted place to its function's caller.
    pub(crate) fn rule(&mut self, number: u32, offset: u64) -> Rule {
        let entry = self.entries.get_mut(number as usize);
        let found = entry.and_then(|entry| Some((entry.shift, entry.tables.as_mut()?)));
        found.map_or(Rule::FramePointer, |(shift, tables)| tables.rule(offset.wrapping_add(shift)))
    }

    fn open(&mut self, number: usize, pid: i32) {
        let entry = &mut self.entries[number];
        if entry.file.is_some() || entry.tries >= MAX_TRIES || self.open >= MAX_OPEN {
            return;
        }
        entry.tries += 1;
        // A process may have ended since its sample.
        let file = mapped(pid, entry.id, &self.namespace, &self.maps_left);
        let beneath = || Some((beneath(self.root.as_ref()?.as_fd(), &entry.path)?, None));
        let Some((file, text_of)) = file.or_else(beneath) else { return };
        if let Some((path, shift)) = text_of {
            (entry.path, entry.shift) = (path, shift);
        }
        self.open += 1;
        entry.tables = Tables::read(&Limited { file: &file, left: &self.left })
            .filter(|tables| tables.size() <= self.room);
        self.room -= entry.tables.as_ref().map_or(0, Tables::size);
        entry.file = Some(file);
    }

    /// The names of the noted places of a file, by number and place, and the file's own name where there is none.
    pub(crate) fn names(self) -> Vec<(HashMap<u64, String>, String)> {
        let left = &self.left;
        let resolve = |entry: Entry| {
            let offsets: Vec<u64> = entry.offsets.into_iter().collect();
            let shifted: Vec<u64> = offsets.iter().map(|o| o.wrapping_add(entry.shift)).collect();
            let found = match entry.file {
                Some(file) => {
                    let symbols = own_symbols(&file);
                    let symbols = symbols.as_ref().map(|file| Limited { file, left });
                    symbols::names(&Limited { file: &file, left }, symbols.as_ref(), &shifted)
                }
                None => Vec::new(),
            };
            let names = offsets.into_iter().zip(found).filter_map(|(offset, name)| Some((offset, name?)));
            let path = entry.path.trim_end_matches(" (deleted)");
            let own = path.rsplit('/').next().unwrap_or_default().trim_start_matches("memfd:");
            (names.collect(), own.chars().take(80).collect())
        };
        self.entries.into_iter().map(resolve).collect()
    }
}

/// Opens a file that a process of the sandbox maps. For the twin of a file's text (systrap::twin) it is that file; the
/// part of the file before the text is mapped in front of the twin. Then the path and the place of the twin in the file
/// are returned as well.
fn mapped(
    pid: i32,
    id: FileId,
    namespace: &CString,
    left: &Cell<u64>,
) -> Option<(File, Option<(String, u64)>)> {
    // What is reached through this descriptor is of that process, even when another one gets its id.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).ok()?;
    if readlinkat(&process, "ns/pid", Vec::new()).ok()? != *namespace {
        return None;
    }
    let maps = openat(&process, "maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    let read = File::from(maps).take(MAX_MAPS.min(left.get())).read_to_end(&mut text);
    left.set(left.get() - text.len() as u64);
    read.ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut before: Option<Mapping> = None;
    let (mut mapping, mut text_of) = (None, None);
    for next in text.lines().filter_map(parse_mapping) {
        if next.file == id {
            let front =
                before.filter(|b| next.path.starts_with(TWIN) && b.end == next.start && b.file.inode != 0);
            text_of = front.as_ref().map(|b| {
                let at = (b.offset + (b.end - b.start)).wrapping_sub(next.offset);
                (b.path.clone(), at)
            });
            mapping = Some(front.unwrap_or(next));
            break;
        }
        before = Some(next);
    }
    let mapping = mapping?;
    let name = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let file = regular(openat(&process, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?)?;
    Some((file, text_of))
}

/// Opens a file of the container's root file system, by its path as the host shows it: the gofer's tree 0.
fn beneath(root: BorrowedFd<'_>, path: &str) -> Option<File> {
    let path = path.strip_prefix("/0/")?;
    let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    regular(openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside).ok()?)
}

/// The symbols of our own program, which stand in a file beside it or, where it is installed, in `../lib/debug`, if `file` is
/// that program.
fn own_symbols(file: &File) -> Option<File> {
    let (own, it) = (statat(CWD, "/proc/self/exe", AtFlags::empty()).ok()?, fstat(file).ok()?);
    if (own.st_dev, own.st_ino) != (it.st_dev, it.st_ino) {
        return None;
    }
    let path = readlinkat(CWD, "/proc/self/exe", Vec::new()).ok()?.into_bytes();
    places_of_symbols(&path)
        .into_iter()
        .find_map(|place| regular(openat(CWD, place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?))
}

/// The functions at these addresses of this program, counted from its first byte.
pub fn own_functions(addresses: &[u64]) -> Vec<Option<String>> {
    let Ok(file) = File::open("/proc/self/exe") else { return Vec::new() };
    let left = Cell::new(MAX_READ);
    let symbols = own_symbols(&file);
    let symbols = symbols.as_ref().map(|file| Limited { file, left: &left });
    symbols::names_at(&Limited { file: &file, left: &left }, symbols.as_ref(), addresses)
}

/// The file with the symbols of this program, if they stand neither in the program nor in a file where they are looked for.
pub fn missing_symbols() -> Option<PathBuf> {
    let file = File::open("/proc/self/exe").ok()?;
    let source = Limited { file: &file, left: &Cell::new(MAX_READ) };
    let has_own = || Image::open(&source).is_some_and(|image| image.section(&source, ".symtab").is_some());
    if own_symbols(&file).is_some() || has_own() {
        return None;
    }
    let path = readlinkat(CWD, "/proc/self/exe", Vec::new()).ok()?.into_bytes();
    let place = places_of_symbols(&path).into_iter().next()?;
    Some(OsString::from_vec(place).into())
}

/// The build ID of this program, in hexadecimal.
pub fn own_build_id() -> Option<String> {
    let file = File::open("/proc/self/exe").ok()?;
    symbols::build_id(&Limited { file: &file, left: &Cell::new(MAX_READ) })
}

/// Where the symbols of the program of this path may be.
fn places_of_symbols(path: &[u8]) -> Vec<Vec<u8>> {
    let beside = [path, b".debug"].concat();
    let slash = path.iter().rposition(|&byte| byte == b'/');
    let installed = slash.map(|at| [&path[..at], b"/../lib/debug", &path[at..], b".debug"].concat());
    [Some(beside), installed].into_iter().flatten().collect()
}

/// Opens what a descriptor refers to for reading, if that is a regular file.
fn regular(place: OwnedFd) -> Option<File> {
    let stat = statat(&place, "", AtFlags::EMPTY_PATH).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty()).ok().map(File::from)
}

/// A file of which no more is read than what is left of the allowance.
struct Limited<'a> {
    file: &'a File,
    left: &'a Cell<u64>,
}

impl Source for Limited<'_> {
    fn read(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let size = self.file.metadata().ok()?.len();
        let end = offset.checked_add(len as u64)?;
        let left = self.left.get().checked_sub(len as u64)?;
        if end > size {
            return None;
        }
        self.left.set(left);
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_beside_or_in_the_library() {
        let places = places_of_symbols(b"/usr/bin/ringfence");
        assert_eq!(
            places,
            [b"/usr/bin/ringfence.debug".to_vec(), b"/usr/bin/../lib/debug/ringfence.debug".to_vec()]
        );
    }
}
