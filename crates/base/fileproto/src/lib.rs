//! The messages between the kernel inside and a container's gofer about files of the host.
//!
//! A connection is for one tree. It has one or several channels, sockets of type SOCK_SEQPACKET. On a channel there
//! is one [`Request`] at a time, and then its [`Reply`]. A message may carry one descriptor beside its bytes, and
//! [`Reply::Looked`] one for each of its objects.
//!
//! All numbers are little endian. Every message begins with [`HEADER`] bytes: `u32 sequence, u16 operation,
//! u16 processor` ([`Header`]). In a reply `u32 errno` follows, which is 0 for success; then come the fields of the operation, and nothing after
//! an error. A byte string is its length as `u32` and then its bytes. There is no padding between fields. A message
//! has one form: other lengths, unknown numbers and bits, and values out of bounds are not decoded, and what is
//! decoded encodes to the same bytes.
//!
//! - The sender of a request checks the bounds first ([`is_name`], [`is_path`], [`is_xattr_name`], [`is_text`], and
//!   the `MAX_` constants): a gofer ends a connection with a request that it cannot decode.
//! - A path of [`Request::Walk`] has at most [`MAX_COMPONENTS`] names, so that the attributes of all fit into the
//!   reply.
//! - A handle that the connection does not have, and a descriptor that is missing, are EBADF; a descriptor of an
//!   object of another kind than the operation takes is EINVAL. A descriptor that an operation does not take is
//!   closed.
//! - The attributes of [`Reply::Walked`] are told also when the walk ends early: [`Reply::Failed`] is for a first
//!   directory that is not there.

#![forbid(unsafe_code)]

mod reply;
mod request;
mod wire;

pub use reply::{Entry, Found, MAX_ENTRY, Reply};
pub use request::{Access, Changes, Key, Kind, Request, Rights, SetTime, Source, Target, header, operation};
pub use wire::Header;

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Longest message in bytes.
pub const MAX_MESSAGE: usize = 72 << 10;
/// Most channels of a connection, with the first.
pub const MAX_CHANNELS: usize = 16;
/// Most directories that a connection keeps open.
pub const MAX_HANDLES: usize = 16384;
/// Most handles in one [`Request::Close`].
pub const MAX_CLOSE: usize = 1024;
/// Most names in one [`Request::Look`], and descriptors in its reply.
pub const MAX_LOOK: usize = 128;
/// Longest value of an extended attribute, and list of their names.
pub const MAX_VALUE: usize = 65536;
/// Longest name.
pub const MAX_NAME: usize = 255;
/// Longest path.
pub const MAX_PATH: usize = 4095;
/// Most names in a path.
pub const MAX_COMPONENTS: usize = 256;
/// Longest text of a symbolic link.
pub const MAX_TEXT: usize = 4095;
/// Longest file handle of [`Request::Mark`]: file system ID, length and type, MAX_HANDLE_SZ.
pub const MAX_FILE_HANDLE: usize = 8 + 8 + 128;
/// Bytes at the start of every message.
pub const HEADER: usize = 8;
/// Bytes of attributes.
pub const ATTR: usize = 128;
/// Bytes of the figures of a file system.
pub const STATFS: usize = 120;

/// A directory that the gofer has open for this connection. Numbers are not used again; 0 stands for none.
pub type Handle = u64;

/// Whether this names something in a directory: 1 to [`MAX_NAME`] bytes, no `/`, no NUL, neither `.` nor `..`.
pub fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && !matches!(name, b"." | b"..")
        && !name.iter().any(|c| matches!(c, 0 | b'/'))
}

/// Whether this is a path for [`Request::Walk`]: names with one `/` between them.
pub fn is_path(path: &[u8]) -> bool {
    path.len() <= MAX_PATH
        && path.split(|c| *c == b'/').all(is_name)
        && path.split(|c| *c == b'/').count() <= MAX_COMPONENTS
}

/// Whether this can be the name of an extended attribute: 1 to 255 bytes without NUL.
pub fn is_xattr_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(&0)
}

/// Whether this can be the text of a symbolic link: 1 to [`MAX_TEXT`] bytes without NUL.
pub fn is_text(text: &[u8]) -> bool {
    (1..=MAX_TEXT).contains(&text.len()) && !text.contains(&0)
}

#[cfg(test)]
mod tests;
