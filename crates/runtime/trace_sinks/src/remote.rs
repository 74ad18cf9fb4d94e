//! `remote` sinks: the connection to a consumer that listens on a Unix socket of the host.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket,
    recv, send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use trace_wire::packet;

/// How long a consumer may take over its part of the handshake.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest handshake of a consumer.
const MAX_HANDSHAKE: usize = 1024;

/// Bytes that the socket is to hold; the host's limit (net.core.wmem_max) may be less.
const BUFFER: usize = 1 << 20;

/// The first wait after a failed connection, and the longest.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Connects to a consumer and exchanges handshakes. The socket does not block.
pub fn connect(endpoint: &Path) -> Result<OwnedFd, String> {
    let failed = |what: &str, error: rustix::io::Errno| format!("{what}: {error}");
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| failed("no socket", error))?;
    let address = SocketAddrUnix::new(endpoint)
        .map_err(|_| "the path of a socket has at most 107 bytes; use a shorter one".to_string())?;
    for which in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, which, Some(PATIENCE)).map_err(|error| failed("time limit", error))?;
    }
    // Less room only means that a busy consumer misses more.
    let _ = set_socket_send_buffer_size(&socket, BUFFER);
    connect_socket(&socket, &address)
        .map_err(|error| failed("cannot connect; is the consumer running?", error))?;
    let hello = send(&socket, &packet::handshake(), SendFlags::NOSIGNAL);
    hello.map_err(|error| failed("cannot send the handshake", error))?;
    let mut answer = [0; MAX_HANDSHAKE];
    let (n, _) = recv(&socket, &mut answer, RecvFlags::empty()).map_err(|error| match error {
        rustix::io::Errno::AGAIN => {
            format!("the consumer sends no handshake within {} s", PATIENCE.as_secs())
        }
        error => failed("cannot receive the consumer's handshake", error),
    })?;
    if n == 0 {
        // A handshake of version 0 has no bytes either.
        return Err("the consumer has hung up, or its handshake has no version".into());
    }
    packet::check_handshake(answer.get(..n).unwrap_or_default())?;
    rustix::io::ioctl_fionbio(&socket, true).map_err(|error| failed("the socket cannot be set up", error))?;
    Ok(socket)
}

/// Connects again for each message on `channel`, and sends the new socket there. Ends with the channel.
pub fn serve(channel: &OwnedFd, endpoint: &Path) -> io::Result<()> {
    let mut asked = [0; 8];
    loop {
        let (n, _) = rustix::io::retry_on_intr(|| recv(channel, &mut asked, RecvFlags::empty()))?;
        if n == 0 {
            return Ok(());
        }
        let Some(socket) = connect_in_time(channel, endpoint)? else { return Ok(()) };
        if hostsys::one_fd::send(channel, b"s", Some(socket.as_fd())).is_err() {
            return Ok(());
        }
    }
}

/// Tries until there is a connection; `None` when the channel ends first.
fn connect_in_time(channel: &OwnedFd, endpoint: &Path) -> io::Result<Option<OwnedFd>> {
    let mut wait = BACKOFF;
    loop {
        match connect(endpoint) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) => log::debug!("trace sink {}: {error}", endpoint.display()),
        }
        let until = Instant::now() + wait;
        wait = (wait * 2).min(BACKOFF_MAX);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(channel, PollFlags::empty())];
            match poll(&mut fds, Some(&left)) {
                Err(rustix::io::Errno::INTR) | Ok(0) => {}
                Err(error) => return Err(error.into()),
                // Nothing but the end is looked for.
                Ok(_) => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{accept, bind, listen};

    struct Consumer {
        socket: OwnedFd,
        path: std::path::PathBuf,
    }

    impl Consumer {
        fn new(name: &str) -> Consumer {
            let path = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let socket = socket.unwrap();
            bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            listen(&socket, 4).unwrap();
            Consumer { socket, path }
        }

        /// Takes a connection and answers the handshake; what came.
        fn answer(&self, with: &[u8]) -> (OwnedFd, Vec<u8>) {
            let connection = accept(&self.socket).unwrap();
            let mut buffer = [0; 64];
            let (n, _) = recv(&connection, &mut buffer, RecvFlags::empty()).unwrap();
            if !with.is_empty() {
                send(&connection, with, SendFlags::NOSIGNAL).unwrap();
            }
            (connection, buffer[..n].to_vec())
        }
    }

    impl Drop for Consumer {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn outcome(name: &str, answer: &'static [u8]) -> Result<Vec<u8>, String> {
        let consumer = Consumer::new(name);
        let path = consumer.path.clone();
        std::thread::scope(|scope| {
            let answered = scope.spawn(|| consumer.answer(answer).1);
            connect(&path).map(|_| answered.join().unwrap())
        })
    }

    #[test]
    fn handshakes_are_exchanged() {
        assert_eq!(outcome("hello", &[8, 1]), Ok(vec![8, 1]));
        assert!(outcome("old", &[8, 0]).unwrap_err().contains("version"));
        assert!(outcome("garbage", &[0xff; 9]).unwrap_err().contains("handshake"));
        assert!(outcome("silent", &[]).unwrap_err().contains("hung up"));
        assert!(connect(Path::new("/nonexistent/socket")).unwrap_err().contains("cannot connect"));
    }

    #[test]
    fn a_consumer_that_comes_later_is_found() {
        let (kernel, attendant) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let path = std::env::temp_dir().join(format!("ringfence-late-{}", std::process::id()));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(&attendant, &path));
            send(&kernel, b"c", SendFlags::NOSIGNAL).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let consumer = Consumer::new("late");
            let answered = consumer.answer(&[8, 1]);
            let packet = hostsys::one_fd::receive(&kernel, &mut [0]).unwrap();
            send(packet.fd.unwrap(), b"event", SendFlags::NOSIGNAL).unwrap();
            let mut buffer = [0; 8];
            assert_eq!(recv(&answered.0, &mut buffer, RecvFlags::empty()).unwrap().0, 5);
            drop(kernel);
            serving.join().unwrap().unwrap();
        });
    }
}
