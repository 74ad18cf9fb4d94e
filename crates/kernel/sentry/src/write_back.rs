//! How a container's root differs from the layers below it: for processes outside that ask, and for the process that writes the
//! changes to the uppermost layer. A checkpoint keeps nothing: the changes are in the overlay.

use crate::errors::{other, text};
use abi::Errno;
use container::Container;
use mounts::FsView;
use overlay_diff::{Purpose, Record, Writer};
use spec::StartError;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use task::Kernel;
use tmpfs::walk::tell;
use vfs::Internal;

/// Bytes that are passed on at once.
const BUFFER: usize = 256 << 10;

/// Longest text that an answer has.
const TEXT_MAX: u32 = 4096;
/// How often the end of a container looks whether another write-back is done.
const LOOK: Duration = Duration::from_millis(20);

/// The way to the process that writes back, or to one that is only told what has changed. One thread uses it at a time.
pub(crate) struct WriteBack {
    socket: File,
    /// What the other end wants, and answers only when it writes back.
    purpose: Purpose,
    busy: AtomicBool,
}

impl WriteBack {
    /// Over this socket, or pipe to the reader of a list.
    pub(crate) fn new(socket: OwnedFd, lists: bool) -> WriteBack {
        let purpose = if lists { Purpose::List } else { Purpose::WriteBack };
        WriteBack { socket: File::from(socket), purpose, busy: AtomicBool::new(false) }
    }

    fn take(&self) -> Option<InUse<'_>> {
        (!self.busy.swap(true, Ordering::Acquire)).then_some(InUse(self))
    }

    /// What has become of the stream that was written: what was left out, or why it was not done.
    fn answer(&self) -> io::Result<Result<String, String>> {
        let mut socket = &self.socket;
        let mut head = [0; 5];
        socket.read_exact(&mut head)?;
        let [status, len @ ..] = head;
        let len = u32::from_le_bytes(len);
        if len > TEXT_MAX {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut text = vec![0; len as usize];
        socket.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(if status == 0 { Ok(text) } else { Err(text) })
    }
}

/// Keeps other threads from using a [`WriteBack`].
struct InUse<'a>(&'a WriteBack);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// The root of a container, and how it differs from the layers below.
pub(crate) struct RootChanges {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) container: Arc<Container>,
    /// Root and mounts as the container began.
    pub(crate) view: Arc<FsView>,
    /// Takes the changes of the root back to the layer below.
    pub(crate) write_back: Option<WriteBack>,
}

/// The programs of a container are stopped, unless they were already.
struct Rest<'a>(&'a RootChanges);

impl<'a> Rest<'a> {
    fn new(root: &'a RootChanges) -> Option<Rest<'a>> {
        if root.container.is_frozen() {
            return None;
        }
        root.kernel.freeze(&root.container, true);
        Some(Rest(root))
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.kernel.freeze(&self.0.container, false);
    }
}

impl RootChanges {
    /// Writes the changes of the root to a pipe or socket, while the programs rest.
    pub(crate) fn write_changes(&self, to: OwnedFd, purpose: Purpose) -> Result<(), StartError> {
        let _rest = Rest::new(self);
        self.tell_changes(&mut BufWriter::with_capacity(BUFFER, File::from(to)), purpose)
    }

    /// Has the changes of the root written to the layer below, while the programs rest; says what was left out.
    pub(crate) fn write_back(&self) -> Result<String, StartError> {
        let Some(write_back) = self.write_back.as_ref().filter(|way| way.purpose == Purpose::WriteBack)
        else {
            return Err(other("the container was made without commit: --overlay2=root:MEDIUM,commit".into()));
        };
        match write_back.take() {
            Some(taken) => self.write_back_with(&taken),
            None => Err(other("another write-back of the container is under way".into())),
        }
    }

    fn write_back_with(&self, taken: &InUse<'_>) -> Result<String, StartError> {
        let _rest = Rest::new(self);
        let mut stream = BufWriter::with_capacity(BUFFER, &taken.0.socket);
        let told = self.tell_changes(&mut stream, taken.0.purpose);
        if taken.0.purpose == Purpose::List {
            return told.map(|()| String::new());
        }
        let gone = |error: io::Error| other(format!("the process that writes back has gone: {error}"));
        match taken.0.answer() {
            Ok(answer) => told.and(answer.map_err(other)),
            Err(error) => told.and(Err(gone(error))),
        }
    }

    /// The same for a container that has ended.
    pub(crate) fn write_back_at_end(&self) {
        let Some(write_back) = &self.write_back else { return };
        let taken = loop {
            match write_back.take() {
                Some(taken) => break taken,
                None => std::thread::sleep(LOOK),
            }
        };
        match self.write_back_with(&taken) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => log::warn!("written back without: {left}"),
            Err(error) if taken.0.purpose == Purpose::List => log::warn!("the list of changes: {error}"),
            Err(error) => log::error!("the changes of the root are lost: {error}"),
        }
    }

    fn tell_changes(&self, to: &mut dyn Write, purpose: Purpose) -> Result<(), StartError> {
        let cx = Internal::new(&self.kernel.vfs);
        let mut writer = Writer::new(to);
        let mut gone = None;
        let told = tell(&cx, self.view.root.inode(), purpose, &mut |record| {
            writer.write(record).map_err(|error| {
                gone = Some(error);
                Errno::EPIPE
            })
        });
        if told.is_err() && gone.is_none() {
            // What was said so far has no effect.
            gone = writer.write(&Record::Abort).and_then(|()| writer.flush()).err();
        }
        let told = told.and_then(|()| {
            writer.flush().map_err(|error| {
                gone = Some(error);
                Errno::EPIPE
            })
        });
        match (told, gone) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(error)) if error.kind() == ErrorKind::BrokenPipe => {
                Err(other("the reader of the changes has gone".into()))
            }
            (Err(_), Some(error)) => Err(other(format!("cannot pass the changes on: {error}"))),
            (Err(Errno::EOPNOTSUPP), None) => {
                Err(other("the root has no overlay: it was written directly (--overlay2)".into()))
            }
            (Err(e), None) => Err(other(format!("cannot look for changes: {}", text(e)))),
        }
    }
}
