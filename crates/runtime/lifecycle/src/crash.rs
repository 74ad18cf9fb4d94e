//! Reports of sandboxes whose kernel has died by a panic or a fatal signal: see `hostsys::crash`.
//!
//! A sandbox's processes get a file to write to. For a container in the foreground that file has no name; for one in the
//! background it lies in the container's directory. What is in it is kept when the end is noticed: with the names of
//! functions, beside the sandbox's log or in the state directory.

use crate::Settings;
use crate::directory::Container;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fmt::Write;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest report that is kept, in bytes.
const LONGEST: u64 = 1 << 20;
/// Name of the file in a container's directory.
const NAME: &str = "crash";
/// The directory of reports; no container has this name.
const KEPT: &str = "@crashes";
/// Most reports in it: the oldest go.
const MOST: usize = 32;
/// What an address in the program begins with.
const PROGRAM: &str = "  ringfence+0x";

/// The file of one sandbox.
pub(crate) struct CrashFile {
    file: File,
    id: String,
    /// Where to keep what is in it.
    dir: PathBuf,
}

impl CrashFile {
    /// For a container in the foreground.
    pub(crate) fn without_name(settings: &Settings, id: &str) -> io::Result<Self> {
        let file = memfd_create("crash", MemfdFlags::CLOEXEC)?.into();
        Ok(Self { file, id: id.into(), dir: dir(settings) })
    }

    /// For a container in the background, new and empty.
    pub(crate) fn of(settings: &Settings, id: &str, container: &Container) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(true).read(true).write(true).mode(0o600);
        let file = options.open(container.path().join(NAME))?;
        Ok(Self { file, id: id.into(), dir: dir(settings) })
    }

    /// The file of a container that has ended, if its kernel has died.
    pub(crate) fn left_by(settings: &Settings, id: &str, container: &Container) -> Option<Self> {
        let file = bundle::open_regular(&container.path().join(NAME)).ok()?;
        (file.metadata().ok()?.len() > 0).then(|| Self { file, id: id.into(), dir: dir(settings) })
    }

    /// For the sandbox's processes.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Keeps the report, if there is one; its path, or why it could not be written.
    pub(crate) fn keep(&self) -> Option<Result<PathBuf, String>> {
        let mut text = Vec::new();
        let mut file = &self.file;
        file.rewind().ok()?;
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        if text.is_empty() {
            return None;
        }
        let now = sandbox::logging::timestamp().replace(':', "-");
        let path = self.dir.join(format!("ringfence-crash-{}-{now}.txt", self.id));
        let text = with_names(&String::from_utf8_lossy(&text));
        let written = make_room(&self.dir).and_then(|()| {
            let mut options = OpenOptions::new();
            let mut file = options.create_new(true).write(true).mode(0o600).open(&path)?;
            io::Write::write_all(&mut file, text.as_bytes())
        });
        Some(written.map(|()| path.clone()).map_err(|error| format!("{}: {error}", path.display())))
    }

    /// What to say of a sandbox that has ended unexpectedly.
    pub(crate) fn advice(&self) -> String {
        match self.keep() {
            Some(Ok(path)) => format!("the report is in {}", path.display()),
            Some(Err(error)) => format!("the report could not be written: {error}"),
            None => "run again with --debug to see why".into(),
        }
    }
}

/// The directory of the sandbox's log, or one in the state directory.
fn dir(settings: &Settings) -> PathBuf {
    let log = settings.debug_log.as_ref().or(settings.panic_log.as_ref());
    let beside = |log: &String| match log.strip_suffix('/') {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(log).with_file_name(""),
    };
    // A pattern in the name of the directory would have to be filled in.
    log.map(beside).filter(|dir| dir.is_dir()).unwrap_or_else(|| settings.state_dir().join(KEPT))
}

/// Makes the directory, and removes the oldest reports of many. Their names end in the time.
fn make_room(dir: &Path) -> io::Result<()> {
    if !dir.ends_with(KEPT) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut all: Vec<_> = std::fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.sort_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
    for path in all.iter().take((all.len() + 1).saturating_sub(MOST)) {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Puts the names of functions behind the addresses. The program that reads is the one that has died, unless it was replaced:
/// then both have other build IDs, which the report tells.
fn with_names(report: &str) -> String {
    let address = |line: &str| u64::from_str_radix(line.strip_prefix(PROGRAM)?, 16).ok();
    let same = report.lines().any(|line| line == build());
    let addresses: Vec<u64> = report.lines().filter_map(address).collect();
    let names = if same { profile::own_functions(&addresses) } else { Vec::new() };
    let mut names = names.into_iter();
    let mut text = String::new();
    for line in report.lines() {
        match address(line).and_then(|_| names.next().flatten()) {
            Some(name) => writeln!(text, "{line}  {name}"),
            None => writeln!(text, "{line}"),
        }
        .ok();
    }
    text
}

/// The line of a report that tells the build.
fn build() -> String {
    sandbox::crash::build_line(profile::own_build_id().as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;

    #[test]
    fn reports_are_kept_with_names() {
        let dir = StateDir::new("crash");
        let file = CrashFile::without_name(&dir.settings(), "box").unwrap();
        assert!(file.keep().is_none());
        assert!(file.advice().contains("--debug"));
        let here = reports_are_kept_with_names as fn() as usize as u64 - hostsys::crash::program_start();
        let text = format!("{}\nbacktrace:\n  ringfence+{here:#x}\n  0x77\n", build());
        rustix::io::write(&file.file, text.as_bytes()).unwrap();
        let path = file.keep().unwrap().unwrap();
        assert!(path.starts_with(dir.0.join(KEPT)), "{path:?}");
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(kept.contains("reports_are_kept_with_names\n  0x77\n"), "{kept}");
        // Of another program nothing is said.
        let other = with_names(&format!("build: 1234\n  ringfence+{here:#x}\n"));
        assert!(other.ends_with(&format!("+{here:#x}\n")), "{other}");
    }

    #[test]
    fn the_oldest_reports_go() {
        let dir = StateDir::new("crashes");
        let kept = dir.0.join(KEPT);
        for _ in 0..2 * MOST {
            make_room(&kept).unwrap();
            let name = format!("{}", std::fs::read_dir(&kept).unwrap().count());
            std::fs::write(kept.join(format!("x{name}-{:?}", std::time::Instant::now())), "x").unwrap();
        }
        assert_eq!(std::fs::read_dir(&kept).unwrap().count(), MOST);
    }
}
