//! TCP (RFC 9293).
//!
//! [`conn::Conn`] is a connection without sockets, addresses and locks: segments, calls and time go in, segments come out through
//! [`conn::Emit`]. It is plain data, so it is its own checkpoint. The receive queue is beside it under a lock of its own
//! ([`rx`]). [`socket`] adds what the kernel sees, [`listener`] half-open connections, [`table`] ports and look-up, [`direct`]
//! the short way between two sockets of one stack.
//!
//! | file | what |
//! |---|---|
//! | `conn` | the state of a connection; opening and closing |
//! | `input`, `ack` | what a segment does |
//! | `sendq`, `output` | what is sent when |
//! | `recovery`, `rack`, `board` | losses |
//! | `cc`, `rtt` | how much, and how long to wait |
//! | `timers` | what happens when nothing happens |

mod ack;
mod bbr;
mod board;
pub(crate) mod cc;
mod chrono;
pub(crate) mod conn;
mod demux;
mod direct;
mod emit;
mod fastopen;
mod info;
mod input;
mod io;
mod limits;
mod listener;
pub mod notices;
mod open;
mod options;
mod output;
mod rack;
mod recovery;
mod report;
mod row;
mod rtt;
pub(crate) mod rx;
mod save;
mod sendq;
pub(crate) mod socket;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use cc::Algorithm;
pub use conn::State;
pub use fastopen::FastOpenKeys;
pub use info::Info;
pub use options::TcpOptions;
pub use save::Saved;
pub use sendq::Wanted;
pub(crate) use socket::Tcp;
pub use socket::TcpSocket;
