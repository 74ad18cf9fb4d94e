//! Where the server listens.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// HOST:PORT; without a host it is the loopback address.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Reads an address. Anything with a slash is a path. Errors are lines for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        let wrong = || "give HOST:PORT, or the path of a Unix socket with a slash in it".to_string();
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        port.parse::<u16>().map_err(|_| wrong())?;
        let host = if host.is_empty() { "localhost" } else { host };
        Ok(Self::Tcp(format!("{host}:{port}")))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On a TCP port.
    Tcp(TcpListener),
    /// On a Unix socket, removed at the end.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; removed when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens on an address. A Unix socket that a server left behind is replaced, one that is in use is not. Only the
    /// caller's user may connect to a Unix socket.
    pub fn bind(address: &Address) -> io::Result<Self> {
        let listener = match address {
            Address::Tcp(address) => Self::Tcp(TcpListener::bind(address)?),
            Address::Unix(path) => {
                remove_left(path)?;
                let listener = UnixListener::bind(path)?;
                let file = SocketFile(path.clone());
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                Self::Unix(listener, file)
            }
        };
        match &listener {
            Self::Tcp(socket) => socket.set_nonblocking(true)?,
            Self::Unix(socket, _) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }

    /// The address, with the port that the host chose for port 0.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(socket) => socket.local_addr().map_or_else(|_| String::new(), |a| a.to_string()),
            Self::Unix(_, file) => file.0.display().to_string(),
        }
    }
}

fn remove_left(path: &Path) -> io::Result<()> {
    let socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if socket
        && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_or_paths() {
        let tcp = |text: &str| Address::Tcp(text.into());
        assert_eq!(Address::parse("localhost:1337"), Ok(tcp("localhost:1337")));
        assert_eq!(Address::parse(":1"), Ok(tcp("localhost:1")));
        assert_eq!(Address::parse("[::1]:80"), Ok(tcp("[::1]:80")));
        assert_eq!(Address::parse("./x"), Ok(Address::Unix("./x".into())));
        for wrong in ["", "x", "x:y", "x:70000", "1337"] {
            assert!(Address::parse(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn a_socket_that_was_left_is_replaced() {
        let path = std::env::temp_dir().join(format!("exporter-{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        let address = Address::Unix(path.clone());
        let listener = Listener::bind(&address).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Listener::bind(&address).is_err());
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::bind(&address).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
