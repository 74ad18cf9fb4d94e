//! Terminals for containers with a user at the other end of a socket: `--console-socket`.

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with,
};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use spec::WindowSize;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Makes a pseudo-terminal, sends its master to the listener at `socket`, and returns the slave.
pub fn open(socket: &Path, size: WindowSize) -> io::Result<OwnedFd> {
    let (master, slave) = pair(size)?;
    send(socket, &master)?;
    Ok(slave)
}

/// A new pseudo-terminal, master and slave, in raw mode: the container's own terminal, inside, does the rest.
pub(crate) fn pair(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    let mut settings = tcgetattr(&slave)?;
    settings.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &settings)?;
    if size != WindowSize::default() {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size)?;
    }
    Ok((master, slave))
}

/// The master goes with its slave's name, as runc sends it.
fn send(path: &Path, master: &OwnedFd) -> io::Result<()> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let name = ptsname(master, Vec::new())?;
    let fds = [master.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&socket, &[IoSlice::new(name.as_bytes())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
