//! Sockets: the family-independent part, the AF_UNIX family, rtnetlink and sock_diag.
//!
//! A socket is an open file. Its operations are a [`SocketFile`] around a family's [`SocketOps`]. Operations never
//! block: they answer EAGAIN, and [`io`] waits on the socket's queue with the socket's own time-outs. A kernel's
//! families are its [`Families`]; a socket belongs to a [`NetNamespace`]. Neighbours: control messages carry
//! `vfs::OpenFile`s; names of Unix sockets are made and found through [`Names`], which the system call layer implements
//! over the caller's view of the file tree.

#![forbid(unsafe_code)]

pub mod cmsg;
pub mod family;
mod file;
pub mod filter;
pub mod io;
mod names;
pub mod net_ns;
pub mod netlink;
mod ops;
pub mod options;
mod shown;
pub mod tcp_info;
pub mod unix;

pub use family::Families;
pub use file::{MAX_RECORD, SocketFile};
pub use names::Naming;
pub use net_ns::{NetNamespace, Nets};
pub use netstack::buf::{Buf, Pool};
pub use netstack::chain::Blocks;
pub use ops::{
    Ancillary, Connect, Control, Names, PeerCred, Received, SendRequest, SocketInfo, SocketOps,
    SocketOptions, Transfer, Ucred,
};
pub use options::Options;
