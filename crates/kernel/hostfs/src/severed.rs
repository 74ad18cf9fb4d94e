//! What is left of a stream when the program at its other end is not there after a restore: the standard streams of a process that
//! `exec` started, and a terminal that has hung up.

use abi::stat::{Attr, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK, major, minor};
use abi::{Errno, Result, Signal};
use caller::UserMemory;
use std::any::Any;
use std::sync::Arc;
use vfs::inode::{InternalFs, InternalInode};
use vfs::{Caller, FileOps, OpenFile, OpenFileState};
use wait::Events;

/// How the stream behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Sort {
    /// As /dev/null.
    Null,
    /// As a pipe with the other end closed.
    Pipe,
    /// As a terminal that has hung up.
    Terminal,
}

/// A severed stream as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SeveredState {
    attr: Attr,
    sort: Sort,
}

impl SeveredState {
    /// What becomes of an imported stream, or of one that was severed before.
    pub fn of(file: &OpenFile) -> Result<SeveredState> {
        if let Some(severed) = file.ops.as_any().downcast_ref::<Severed>() {
            return Ok(severed.state);
        }
        let attr = file.attr()?;
        let null = attr.file_type() == S_IFCHR && (major(attr.rdev), minor(attr.rdev)) == (1, 3);
        Ok(SeveredState { attr, sort: if null { Sort::Null } else { Sort::Pipe } })
    }

    /// What is left of the slave of a terminal that has hung up.
    pub fn terminal(file: &OpenFile) -> Result<SeveredState> {
        Ok(SeveredState { attr: file.attr()?, sort: Sort::Terminal })
    }
}

/// A severed stream.
pub struct Severed {
    state: SeveredState,
    name: Option<String>,
}

impl Severed {
    /// Whether an open file is one.
    pub fn is(file: &OpenFile) -> bool {
        file.ops.as_any().is::<Severed>()
    }

    /// The open file of plain data. EINVAL for what no stream is.
    pub fn restore(state: &SeveredState, file: &OpenFileState) -> Result<Arc<OpenFile>> {
        let Attr { ino, mode, uid, gid, .. } = state.attr;
        if !matches!(state.attr.file_type(), S_IFCHR | S_IFIFO | S_IFREG | S_IFSOCK) {
            return Err(Errno::EINVAL);
        }
        let inode = Arc::new(InternalInode::new(ino, InternalFs::Anon, mode, uid, gid));
        let ops = Arc::new(Severed { state: *state, name: file.link.clone() });
        let file = OpenFileState { place: None, ..file.clone() };
        OpenFile::restore(&file, None, Some(inode), ops)
    }
}

impl FileOps for Severed {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn attr(&self) -> Option<Result<Attr>> {
        Some(Ok(self.state.attr))
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, _buf: &mut [u8], _off: u64) -> Result<usize> {
        Ok(0)
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        match self.state.sort {
            Sort::Null => Ok(buf.len()),
            Sort::Terminal => Err(Errno::EIO),
            Sort::Pipe => {
                cx.raise(Signal::SIGPIPE);
                Err(Errno::EPIPE)
            }
        }
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let ready = Events::READABLE | Events::WRITABLE;
        if self.state.sort == Sort::Null { ready } else { ready | Events::HUP | Events::ERR }
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _mem: &mut dyn UserMemory,
        _cmd: u32,
        _arg: u64,
    ) -> Result<u64> {
        Err(if self.state.sort == Sort::Terminal { Errno::EIO } else { Errno::ENOTTY })
    }
    fn link_name(&self) -> Option<String> {
        self.name.clone()
    }
}
