//! `--pcap-log`: the file that a sandbox's packets are written to.

use crate::{Error, Result, Settings, sandbox_log};
use bundle::Prepared;
use rustix::fs::{FileType, Mode, OFlags, fstat, ftruncate, open as open_file};
use std::io;
use std::os::fd::OwnedFd;

/// Opens the file and says so in the specification. In host mode there are no packets to be seen, which is an error.
pub(crate) fn open(settings: &Settings, prepared: &mut Prepared, command: &str) -> Result<Option<OwnedFd>> {
    let Some(capture) = &settings.capture else { return Ok(None) };
    if prepared.spec.network.is_host() {
        return Err("--pcap-log: with --network=host the host makes the packets; capture them there".into());
    }
    let now = sandbox::logging::timestamp();
    let path = sandbox_log::fill_in(&capture.file, &prepared.spec.id, command, &now);
    let failed = |error: io::Error| Error::from(format!("--pcap-log: {path}: {error}"));
    let file = empty(&path).map_err(failed)?;
    prepared.capture_to(capture.snaplen, capture.most);
    Ok(Some(file))
}

/// A regular file, made or emptied. Nothing else will do: a pipe without a reader would stop the sandbox.
fn empty(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Its name can be guessed, and others may write to the directory.
    let flags = flags | OFlags::NOFOLLOW;
    let file = match open_file(path, flags, Mode::from_raw_mode(0o600)) {
        // A FIFO without a reader.
        Err(rustix::io::Errno::NXIO) => return Err(io::Error::other("not a regular file")),
        opened => opened?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("not a regular file"));
    }
    ftruncate(&file, 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;
    use std::fs;

    #[test]
    fn only_regular_files_are_taken() {
        let dir = StateDir::new("capture");
        let file = dir.0.join("a.pcap");
        fs::write(&file, "old").unwrap();
        empty(file.to_str().unwrap()).unwrap();
        std::os::unix::fs::symlink(&file, dir.0.join("link.pcap")).unwrap();
        assert!(empty(dir.0.join("link.pcap").to_str().unwrap()).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"");
        for other in ["/dev/null", dir.0.to_str().unwrap()] {
            assert!(empty(other).is_err(), "{other}");
        }
    }
}
