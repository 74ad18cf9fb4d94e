//! The sessions of `do`: a sandbox that is saved after each command, and goes back to any of these steps.
//!
//! ```text
//! DIR/NAME/command.json    as for snapshots: what the sandbox is
//!          lock            locked by the command that runs in it
//!          blocks, sums    pages of all steps, each once, and their SHA-256 sums
//!          head            the number of the step that the next command begins with
//!          N.json          a step: where it comes from, and its command. A step without this file is none
//!          N.metadata      the metadata of its image, compressed
//!          N.pages         the file of pages: for each page its block and 1, or 0 for zeros; compressed
//! DIR/~NUMBER-NAME        one that is being removed
//!     ~lock               held by a command while it finds, makes or removes one
//! ```
//!
//! A step takes what has changed: pages that an earlier one had are named. Steps stay until the session is deleted.

use crate::directory::valid_id;
use crate::image_files::ImageFiles;
use crate::packed_pages::without_name;
use crate::snapshots::{SavedCommand, check_own, lock, lock_all};
use crate::{Error, Result};
use image::packed::{Entry, pack, unpack};
use image::{PAGE, is_zero};
use rustix::fs::FlockOperation;
use sandbox::client::Client;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spec::AfterCheckpoint;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const COMMAND: &str = "command.json";
const HEAD: &str = "head";
const BLOCKS: &str = "blocks";
const SUMS: &str = "sums";
/// Sessions on their way out begin with this, which no name does.
const GOING: char = '~';
/// Bytes of a page, and of a checksum.
const BLOCK: usize = PAGE as usize;
const SUM: usize = 32;
/// Longest metadata that a sandbox may write.
const LONGEST_METADATA: u64 = 1 << 30;
/// Longest metadata or list of pages.
const LONGEST: u64 = 1 << 32;

/// What a session runs beside its commands: it waits.
pub const SESSION_PROGRAM: [&str; 2] = ["sleep", "infinity"];

/// A step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Its number.
    pub number: u32,
    /// The step that its command began with; nothing for the first one.
    pub parent: Option<u32>,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Exit status.
    pub status: u8,
    /// Blocks of the session when it was made.
    blocks: u32,
}

/// The directory of all sessions.
#[derive(Clone, Debug)]
pub struct Sessions {
    dir: PathBuf,
}

/// A session, which no other command uses meanwhile.
#[derive(Debug)]
pub struct Session {
    dir: PathBuf,
    _lock: File,
}

fn wrong(path: &Path, error: impl std::fmt::Display) -> Error {
    format!("session {}: {error}", path.file_name().unwrap_or_default().display()).into()
}

impl Sessions {
    /// In $XDG_STATE_HOME, which is ~/.local/state unless it is set; root's are in /var/lib.
    pub fn open() -> Result<Sessions> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| match rustix::process::geteuid().is_root() {
            true => Some("/var/lib".into()),
            false => absolute("HOME").map(|home| home.join(".local/state")),
        });
        let state = state.ok_or("there is no directory for sessions: set XDG_STATE_HOME to one")?;
        let dir = state.join("ringfence/sessions");
        check_own(&dir)?;
        Ok(Sessions { dir })
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        match valid_id(name) {
            true => Ok(self.dir.join(name)),
            false => {
                Err(format!("{name:?} is no name: use at most 200 letters, digits and any of _+-.").into())
            }
        }
    }

    /// The names of all sessions.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| valid_id(name)).collect();
        names.sort();
        names
    }

    /// A session that is there.
    pub fn find(&self, name: &str) -> Result<Session> {
        let _all = self.alone()?;
        self.find_alone(name)
    }

    /// No other command finds, makes or removes a session, until this is dropped.
    fn alone(&self) -> Result<Option<File>> {
        lock_all(&self.dir).map_err(|error| format!("sessions in {}: {error}", self.dir.display()).into())
    }

    fn find_alone(&self, name: &str) -> Result<Session> {
        let dir = self.path(name)?;
        if !dir.join(COMMAND).exists() {
            return Err(format!("there is no session {name}: see ringfence session list").into());
        }
        Session::locked(dir)
    }

    /// A session, and what its sandbox is; a new one is what `new` says.
    pub fn enter(
        &self,
        name: &str,
        new: impl FnOnce() -> Result<SavedCommand>,
    ) -> Result<(Session, SavedCommand)> {
        let dir = self.path(name)?;
        let there = |dir: &Path| -> Result<Option<SavedCommand>> {
            let Ok(text) = fs::read(dir.join(COMMAND)) else { return Ok(None) };
            serde_json::from_slice(&text).map(Some).map_err(|error| wrong(dir, error))
        };
        let saved = match there(&dir)? {
            Some(saved) => saved,
            None => new()?,
        };
        let make = |dir: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|error| wrong(dir, error))
        };
        make(&self.dir)?;
        let _all = self.alone()?;
        make(&dir)?;
        let session = Session::locked(dir)?;
        // Another command may have made, or made and deleted it meanwhile.
        if let Some(saved) = there(&session.dir)? {
            return Ok((session, saved));
        }
        session.write(COMMAND, &serde_json::to_vec(&saved)?).map_err(|error| wrong(&session.dir, error))?;
        Ok((session, saved))
    }

    /// Removes a session with all its steps.
    pub fn delete(&self, name: &str) -> Result<()> {
        let _all = self.alone()?;
        let session = self.find_alone(name)?;
        let removed = |error| wrong(&session.dir, error);
        // What a command that was killed leaves has no name any more, and goes with the next one.
        let going = self.dir.join(format!("{GOING}{}-{name}", std::process::id()));
        fs::rename(&session.dir, &going).map_err(removed)?;
        let entries = fs::read_dir(&self.dir).map_err(removed)?.flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(GOING)) {
            if entry.path().is_dir() {
                fs::remove_dir_all(entry.path()).map_err(removed)?;
            }
        }
        Ok(())
    }
}

impl Session {
    fn locked(dir: PathBuf) -> Result<Session> {
        match lock(&dir.join("lock"), FlockOperation::NonBlockingLockExclusive) {
            Ok(Some(lock)) => Ok(Session { dir, _lock: lock }),
            Ok(None) => Err(wrong(&dir, "another command runs in it")),
            Err(error) => Err(wrong(&dir, error)),
        }
    }

    /// A file that is whole whenever it is there.
    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let coming = self.dir.join(format!("~{name}"));
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&coming)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(coming, self.dir.join(name))?;
        File::open(&self.dir)?.sync_all()
    }

    fn write_packed(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let packed = pack(content);
        let mut bytes = (content.len() as u64).to_le_bytes().to_vec();
        bytes.extend(crc32fast::hash(&packed).to_le_bytes());
        bytes.extend(packed);
        self.write(name, &bytes)
    }

    fn read_packed(&self, name: &str) -> Result<Vec<u8>> {
        let bytes = fs::read(self.dir.join(name)).map_err(|error| wrong(&self.dir, error))?;
        let damaged = || wrong(&self.dir, format!("{name} is damaged"));
        let (len, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let (sum, packed) = rest.split_first_chunk().ok_or_else(damaged)?;
        let len = Some(u64::from_le_bytes(*len)).filter(|len| *len <= LONGEST).ok_or_else(damaged)?;
        let entry = Entry { offset: 0, len: packed.len() as u32, sum: u32::from_le_bytes(*sum) };
        let mut content = vec![0; len as usize];
        unpack(&entry, packed, &mut content).map_err(|_| damaged())?;
        Ok(content)
    }

    /// All steps, by number.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let entries = fs::read_dir(&self.dir).map_err(|error| wrong(&self.dir, error))?;
        let number = |name: &str| name.strip_suffix(".json")?.parse::<u32>().ok();
        let mut steps = Vec::new();
        for entry in entries.flatten() {
            if entry.file_name().to_str().and_then(number).is_some() {
                let text = fs::read(entry.path()).map_err(|error| wrong(&self.dir, error))?;
                let step: Step = serde_json::from_slice(&text).map_err(|error| wrong(&self.dir, error))?;
                steps.push(step);
            }
        }
        steps.sort_by_key(|step| step.number);
        Ok(steps)
    }

    /// The number of the step that the next command begins with; nothing before the first one.
    pub fn head(&self) -> Result<Option<u32>> {
        match fs::read_to_string(self.dir.join(HEAD)) {
            Ok(text) => Ok(Some(text.trim().parse().map_err(|error| wrong(&self.dir, error))?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(&self.dir, error)),
        }
    }

    /// Has the next command begin with a step.
    pub fn go_to(&self, number: u32) -> Result<()> {
        if !self.steps()?.iter().any(|step| step.number == number) {
            return Err(wrong(&self.dir, format!("there is no step {number}: see ringfence session log")));
        }
        self.write(HEAD, number.to_string().as_bytes()).map_err(|error| wrong(&self.dir, error))
    }

    /// Goes back by some steps; gives the number of the one that the next command begins with.
    pub fn undo(&self, count: u32) -> Result<u32> {
        let steps = self.steps()?;
        let Some(mut at) = self.head()? else { return Err(wrong(&self.dir, "there is no step yet")) };
        for back in 0..count {
            let parent = steps.iter().find(|step| step.number == at).and_then(|step| step.parent);
            at = parent
                .ok_or_else(|| wrong(&self.dir, format!("there are {back} steps to undo, not {count}")))?;
        }
        self.go_to(at)?;
        Ok(at)
    }

    /// The image of the present step; nothing before the first one.
    pub fn image(&self) -> Result<Option<ImageFiles>> {
        let Some(head) = self.head()? else { return Ok(None) };
        let metadata = self.read_packed(&format!("{head}.metadata"))?;
        let list = self.read_packed(&format!("{head}.pages"))?;
        let make = || -> io::Result<ImageFiles> {
            let (to, pages) = (without_name(&self.dir)?, without_name(&self.dir)?);
            (&to).write_all(&metadata)?;
            let blocks = File::open(self.dir.join(BLOCKS))?;
            pages.set_len(list.len() as u64 / 4 * PAGE)?;
            copy_blocks(&blocks, &list, &pages)?;
            Ok(ImageFiles { metadata: to.into(), pages: pages.into(), layers: Vec::new() })
        };
        make().map(Some).map_err(|error| wrong(&self.dir, error))
    }

    /// Saves a sandbox as a further step, with which the next command begins.
    pub(crate) fn save(
        &self,
        client: &Client,
        args: &[String],
        status: u8,
        then: AfterCheckpoint,
    ) -> Result<()> {
        let (metadata, pages) = (without_name(&self.dir)?, without_name(&self.dir)?);
        client.checkpoint(metadata.as_fd(), pages.as_fd(), then, false)?;
        self.add(&metadata, &pages, args, status)
    }

    fn add(&self, metadata: &File, pages: &File, args: &[String], status: u8) -> Result<()> {
        let failed = |error: io::Error| wrong(&self.dir, format!("the step is not saved: {error}"));
        let (steps, parent) = (self.steps()?, self.head()?);
        let number = steps.last().map_or(0, |step| step.number + 1);
        let known = steps.iter().map(|step| step.blocks).max().unwrap_or(0);
        let mut store = Store::open(&self.dir, known).map_err(failed)?;
        let list = store.add(pages).map_err(failed)?;
        let mut text = Vec::new();
        let len = metadata.metadata().map_err(failed)?.len();
        // A sandbox that a guest has taken over writes what it wants, sparse files as well.
        if len > LONGEST_METADATA {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        text.resize(len as usize, 0);
        metadata.read_exact_at(&mut text, 0).map_err(failed)?;
        let step = Step { number, parent, args: args.to_vec(), status, blocks: store.count };
        self.write_packed(&format!("{number}.pages"), &list).map_err(failed)?;
        self.write_packed(&format!("{number}.metadata"), &text).map_err(failed)?;
        self.write(&format!("{number}.json"), &serde_json::to_vec(&step)?).map_err(failed)?;
        self.go_to(number)
    }
}

/// Copies the pages of a list to a file of zeros, runs of blocks at once.
fn copy_blocks(blocks: &File, list: &[u8], to: &File) -> io::Result<()> {
    let (numbers, _) = list.as_chunks::<4>();
    let (mut at, mut buf) = (0, Vec::new());
    while let Some(first) = numbers.get(at).map(|n| u32::from_le_bytes(*n)) {
        let follows = |(i, n): &(usize, &[u8; 4])| {
            first != 0 && first.checked_add(*i as u32) == Some(u32::from_le_bytes(**n))
        };
        let run =
            numbers.get(at..).unwrap_or_default().iter().enumerate().take(256).take_while(follows).count();
        if run > 0 {
            buf.resize(run * BLOCK, 0);
            blocks.read_exact_at(&mut buf, u64::from(first - 1) * PAGE)?;
            to.write_all_at(&buf, at as u64 * PAGE)?;
        }
        at += run.max(1);
    }
    Ok(())
}

/// The pages of all steps.
struct Store {
    blocks: File,
    sums: File,
    known: HashMap<[u8; SUM], u32>,
    count: u32,
}

impl Store {
    /// With so many blocks; what comes after them was left by a command that did not end.
    fn open(dir: &Path, count: u32) -> io::Result<Store> {
        let open = |name| {
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).read(true).write(true).mode(0o600).open(dir.join(name))
        };
        let (blocks, mut sums): (File, File) = (open(BLOCKS)?, open(SUMS)?);
        blocks.set_len(u64::from(count) * PAGE)?;
        sums.set_len(u64::from(count) * SUM as u64)?;
        let mut bytes = Vec::new();
        sums.read_to_end(&mut bytes)?;
        let known = bytes.as_chunks::<SUM>().0.iter().zip(0..).map(|(sum, n)| (*sum, n)).collect();
        Ok(Store { blocks, sums, known, count })
    }

    /// Adds the pages of a file that are not there yet; gives the list.
    fn add(&mut self, pages: &File) -> io::Result<Vec<u8>> {
        let len = pages.metadata()?.len();
        if len > LONGEST / 4 * PAGE || !len.is_multiple_of(PAGE) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let (mut list, mut buf) = (Vec::new(), vec![0; 256 * BLOCK]);
        let mut at = 0;
        while at < len {
            let piece = buf.get_mut(..(len - at).min(256 * PAGE) as usize).unwrap_or_default();
            pages.read_exact_at(piece, at)?;
            for page in piece.chunks(BLOCK) {
                let number = if is_zero(page) { 0 } else { self.block(page)? + 1 };
                list.extend(number.to_le_bytes());
            }
            at += piece.len() as u64;
        }
        self.blocks.sync_all()?;
        self.sums.sync_all()?;
        Ok(list)
    }

    fn block(&mut self, page: &[u8]) -> io::Result<u32> {
        let sum: [u8; SUM] = Sha256::digest(page).into();
        if let Some(known) = self.known.get(&sum) {
            return Ok(*known);
        }
        let number = self.count;
        self.blocks.write_all_at(page, u64::from(number) * PAGE)?;
        self.sums.write_all_at(&sum, u64::from(number) * SUM as u64)?;
        self.count = number.checked_add(1).filter(|n| *n < u32::MAX).ok_or(io::ErrorKind::FileTooLarge)?;
        self.known.insert(sum, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;
    use bundle::{HostCommand, Overlay2};
    use spec::{Network, PlatformName};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn saved() -> SavedCommand {
        SavedCommand {
            command: HostCommand::default(),
            overlay: Overlay2::default(),
            network: Network::None,
            allow_net: None,
            platform: PlatformName::default(),
        }
    }

    /// Pages by their first bytes.
    fn file(dir: &Path, pages: &[u8]) -> File {
        let file = without_name(dir).unwrap();
        file.set_len(pages.len() as u64 * PAGE).unwrap();
        for (n, byte) in pages.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            file.write_all_at(&[*byte; BLOCK], n as u64 * PAGE).unwrap();
        }
        file
    }

    fn content(session: &Session) -> (Vec<u8>, Vec<u8>) {
        let image = session.image().unwrap().unwrap();
        let (metadata, pages) = (File::from(image.metadata), File::from(image.pages));
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        (read(&metadata), read(&pages).chunks(BLOCK).map(|page| page[BLOCK - 1]).collect())
    }

    #[test]
    fn steps_come_back_and_take_what_has_changed() {
        let dir = StateDir::new("sessions");
        let all = Sessions { dir: dir.0.join("s") };
        let (session, _) = all.enter("a", || Ok(saved())).unwrap();
        assert!(session.image().unwrap().is_none() && session.undo(1).is_err());
        let add = |metadata: &[u8], pages: &[u8]| {
            let text = without_name(&dir.0).unwrap();
            text.write_all_at(metadata, 0).unwrap();
            session.add(&text, &file(&dir.0, pages), &["x".into()], 0).unwrap();
        };
        let images: [(&[u8], &[u8]); 3] =
            [(b"zero", &[1, 2, 3, 0, 0]), (b"one", &[9, 1, 2, 3]), (b"two", &[3, 3, 0, 9, 2, 1, 0])];
        for (metadata, pages) in images {
            add(metadata, pages);
            assert_eq!(content(&session), (metadata.to_vec(), pages.to_vec()));
        }
        assert_eq!(fs::metadata(session.dir.join(BLOCKS)).unwrap().len(), 4 * PAGE);
        assert_eq!(session.undo(2).unwrap(), 0);
        assert_eq!(content(&session).0, b"zero");
        assert!(session.undo(1).unwrap_err().message().contains("there are 0 steps to undo"));
        add(b"other", &[7]);
        assert_eq!(session.steps().unwrap().last().unwrap().parent, Some(0));
        session.go_to(2).unwrap();
        assert_eq!(content(&session), (images[2].0.to_vec(), images[2].1.to_vec()));
        assert!(session.go_to(9).is_err());
        // A command that was killed leaves blocks that no step names.
        File::options().append(true).open(session.dir.join(BLOCKS)).unwrap().write_all(&[5; 5000]).unwrap();
        add(b"late", &[5, 7, 1]);
        assert_eq!(content(&session), (b"late".to_vec(), vec![5, 7, 1]));
        assert!(all.find("a").unwrap_err().message().contains("another command"));
        drop(session);
        all.delete("a").unwrap();
        assert!(all.find("a").is_err() && all.names().is_empty() && all.find("../a").is_err());
    }

    #[test]
    fn a_session_is_one_command_s_also_while_others_delete_it() {
        let dir = StateDir::new("sessions-race");
        let all = Sessions { dir: dir.0.join("s") };
        let (held, made) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (all, held, made) = (&all, &held, &made);
                scope.spawn(move || {
                    for _ in 0..200 {
                        if let Ok((session, _)) = all.enter("a", || Ok(saved())) {
                            assert_eq!(held.fetch_add(1, SeqCst), 0);
                            session.write(HEAD, b"0").unwrap();
                            assert!(session.dir.join(COMMAND).exists());
                            held.fetch_sub(1, SeqCst);
                            drop(session);
                            made.fetch_add(1, SeqCst);
                        }
                        let _ = all.delete("a");
                    }
                });
            }
        });
        assert!(made.load(SeqCst) > 0);
        let _ = all.delete("a");
        let left = fs::read_dir(&all.dir).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["~lock"]);
    }
}
