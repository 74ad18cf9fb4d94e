//! `port-forward`: connections on the host to a port of a container.

use crate::directory::Container;
use crate::find::connect;
use crate::record::Status;
use crate::{Error, Result, Settings};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sandbox::client::Client;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::Builder;
use std::time::Duration;

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Where connections come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A port of 127.0.0.1 on the host; 0 for any free one.
    Port(u16),
    /// One connection: to this Unix socket of the host.
    Stream(PathBuf),
}

/// Forwards connections to a port of a container: of its loopback addresses, whatever its interfaces are. With a port it goes on
/// until it is killed or the container ends, with a stream until that is over. `ready` is told the port on the host once it is open.
pub fn port_forward(
    settings: &Settings,
    id: &str,
    source: &Source,
    port: u16,
    ready: impl FnOnce(u16) -> Result<()>,
) -> Result<()> {
    let (container, record) = settings.find(id)?;
    if record.state.status != Status::Running {
        return Err(format!("container not running: it is {}", record.state.status).into());
    }
    match source {
        Source::Port(local) => {
            let pid = Pid::from_raw(record.state.pid).ok_or("container not running")?;
            let end =
                pidfd_open(pid, PidfdFlags::empty()).map_err(|_| Error::from("container not running"))?;
            listen(&container, end.as_fd(), *local, port, ready)
        }
        Source::Stream(path) => {
            let stream = UnixStream::connect(path)
                .map_err(|e| Error::from(format!("cannot connect to {}: {e}", path.display())))?;
            pass_on(connect(&container)?, stream.into(), port)
        }
    }
}

fn listen(
    container: &Container,
    end: BorrowedFd<'_>,
    local: u16,
    port: u16,
    ready: impl FnOnce(u16) -> Result<()>,
) -> Result<()> {
    let failed = |e: io::Error| Error::from(format!("cannot listen on 127.0.0.1:{local}: {e}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).map_err(failed)?;
    ready(listener.local_addr().map_err(failed)?.port())?;
    loop {
        let mut fds = [PollFd::new(&listener, PollFlags::IN), PollFd::from_borrowed_fd(end, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !fds[1].revents().is_empty() {
            return Err("container not running: it has ended".into());
        }
        let accepted = match listener.accept() {
            Ok((accepted, _)) => accepted,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                log::warn!("port-forward: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Ok(client) = connect(container) else {
            return Err("container not running".into());
        };
        let served = Builder::new().name("forward".into()).spawn(move || {
            if let Err(error) = pass_on(client, accepted.into(), port) {
                log::warn!("port-forward: {error}");
            }
        });
        if let Err(error) = served {
            log::warn!("port-forward: {error}");
        }
    }
}

/// Passes bytes on as they come, until their end.
///
/// `std::io::copy` would splice(2), which waits in the kernel for more (Linux 6.18, from a pipe to a TCP socket) while what it took
/// is not sent: a request or an answer would come when the next one does.
fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(buffer.get(..length).unwrap_or_default())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Connects inside and passes bytes on until both directions are over.
fn pass_on(client: Client, socket: OwnedFd, port: u16) -> Result<()> {
    let (write, read) = client.forward(port).map_err(|e| Error::from(e.to_string()))?;
    let (mut write, mut read) = (File::from(write), File::from(read));
    let mut socket_in = File::from(socket.try_clone()?);
    let mut socket_out = File::from(socket.try_clone()?);
    let inward = Builder::new().name("forward in".into()).spawn(move || {
        // A broken direction ends like one that is over.
        let _ = copy(&mut socket_in, &mut write);
    })?;
    let _ = copy(&mut read, &mut socket_out);
    let _ = shutdown(&socket, Shutdown::Write);
    let _ = inward.join();
    Ok(())
}
