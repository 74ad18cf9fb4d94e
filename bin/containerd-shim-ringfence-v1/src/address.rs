//! Where shims serve: a socket for each container or pod.

use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// The directory of all shims' sockets.
const SOCKETS: &str = "/run/containerd/s";
/// In the bundle: the address.
const FILE: &str = "address";
/// How often, and at what interval, to look whether a shim that has the socket serves.
const LOOKS: (usize, Duration) = (200, Duration::from_millis(5));

/// The address that goes with a daemon, one of its namespaces, and a container or pod.
pub(crate) fn of(daemon: &str, namespace: &str, group: &str) -> String {
    let path = Path::new(daemon).join(namespace).join(group);
    let hash = Sha256::digest(path.to_string_lossy().as_bytes());
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("unix://{SOCKETS}/{digits}")
}

/// The path of the socket.
pub(crate) fn path(address: &str) -> &str {
    address.strip_prefix("unix://").unwrap_or(address)
}

/// Whether a shim serves there.
pub(crate) fn connects(address: &str) -> bool {
    UnixStream::connect(path(address)).is_ok()
}

/// Writes it into the current directory, which is the bundle: readers see all of it or nothing.
pub(crate) fn write(address: &str) -> io::Result<()> {
    let temporary = format!(".{FILE}");
    fs::File::create(&temporary)?.write_all(address.as_bytes())?;
    fs::rename(temporary, FILE)
}

/// The address in a bundle.
pub(crate) fn read(bundle: &Path) -> io::Result<String> {
    fs::read_to_string(bundle.join(FILE))
}

/// Listens at this path, for root alone, as containerd's own shims do. A directory that is there keeps its mode.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Listens there. Nothing when another shim serves there already; one that has died is replaced.
pub(crate) fn listen(address: &str) -> io::Result<Option<UnixListener>> {
    let path = Path::new(path(address));
    if let Some(parent) = path.parent() {
        if let Some(above) = parent.parent() {
            fs::create_dir_all(above)?;
        }
        // The socket is out of the reach of others from the first moment on.
        match DirBuilder::new().mode(0o700).create(parent) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    match bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {}
        bound => return bound.map(Some),
    }
    for _ in 0..LOOKS.0 {
        if connects(address) {
            return Ok(None);
        }
        std::thread::sleep(LOOKS.1);
    }
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    bind(path).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn addresses_are_those_of_other_shims() {
        // printf /run/containerd/containerd.sock/default/x | sha256sum
        assert_eq!(
            of("/run/containerd/containerd.sock", "default", "x"),
            "unix:///run/containerd/s/5e250b13f984a15f73216d143af1bf3c64171aa56c781ba9d4040c75b2c1eee2"
        );
    }

    #[test]
    fn the_socket_of_a_dead_shim_is_replaced() {
        let dir = std::env::temp_dir().join(format!("ringfence-shim-address-{}", std::process::id()));
        let address = format!("unix://{}/deeper/s", dir.display());
        let first = listen(&address).unwrap().unwrap();
        assert!(connects(&address) && listen(&address).unwrap().is_none());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(Path::new(path(&address))), mode(&dir.join("deeper"))), (0o600, 0o700));
        drop(first);
        // A command that another test is starting has the socket until its exec.
        let end = Instant::now() + Duration::from_secs(10);
        while connects(&address) {
            assert!(Instant::now() < end, "the socket is still served");
        }
        assert!(listen(&address).unwrap().is_some());
        fs::remove_dir_all(&dir).unwrap();
    }
}
