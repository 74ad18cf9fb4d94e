//! Interfaces of the host's network namespace under the TCP/IP stack inside.
//!
//! The runtime takes the namespace over: it reads what the namespace has, and makes packet sockets and sockets of rtnetlink(7)
//! there. [`Links`] gives the interfaces, addresses and routes to the stack, and has the stack follow when they change. Frames
//! of the stack are written at the end of the operation that sent them, and wait in a bounded queue when the host takes no
//! more. One thread for each interface reads arriving frames, large ones into blocks that stay as they are. Frames carry
//! virtio-net headers, so that large segments and partial checksums cross the host whole.
//!
//! The name server that Docker runs in a container's namespace is reached by a socket inside that has its address (`names`).
//! Processes of the host in that namespace reach programs inside, and other hosts, through a TUN interface (`inward`).
//!
//! `forward` connects programs outside to ports inside, over pipes; `capture` writes the packets of a stack to a file.
//!
//! Neighbours: `host_interfaces` (the namespace of the host), `netstack` (the stack, and its `Device`), `socket` (the namespace that
//! owns the stack). Lock ranks: `LINK_WRITER` while frames are written, `FRAMES` for a device's queue; the stack may hold its own
//! locks when it sends. A checkpoint keeps nothing of this: the interfaces come from the host.

#![forbid(unsafe_code)]

mod attach;
mod capture;
mod device;
mod forward;
mod inward;
mod names;
mod pump;
mod watch;

pub use attach::Links;
pub use capture::{CaptureFile, capture};
pub use forward::Forward;
