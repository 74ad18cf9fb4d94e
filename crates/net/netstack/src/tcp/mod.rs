//! TCP (RFC 9293).
//!
//! [`conn::Conn`] is a connection without sockets, addresses and locks: segments, calls and time go in, segments come out through
//! [`conn::Emit`]. It is plain data, so it is its own checkpoint. The receive queue is beside it under a lock of its own
//! ([`rx`]). [`socket`] adds what the kernel sees, [`listener`] half-open connections, [`table`] ports and look-up, [`direct`]
//! the short way between two sockets of one stack.
//!
//! | file | what |
//! |---|---|
//! | `conn` | the state of a connection |
//! | `phase`, `pieces`, `deadlines`, `news` | parts of that state, as plain data |
//! | `states` | opening and closing |
//! | `input`, `ack` | what a segment does |
//! | `sendq`, `output` | what is sent when |
//! | `recovery`, `rack`, `board` | losses |
//! | `cc`, `rtt` | how much, and how long to wait |
//! | `arm`, `timers` | setting timers; what happens when nothing happens |
//! | `socket`, `configure`, `open`, `io`, `close` | what the kernel sees of a socket |
//! | `listener`, `handshake` | half-open connections |
//! | `filter` | programs that drop segments, or choose a listener |

mod ack;
mod arm;
mod arrival;
mod bbr;
mod board;
pub(crate) mod cc;
mod check;
mod chrono;
mod close;
mod configure;
pub(crate) mod conn;
mod deadlines;
mod demux;
mod direct;
mod emit;
mod fastopen;
mod filter;
mod handshake;
mod info;
mod input;
mod io;
mod limits;
mod listener;
mod news;
pub mod notices;
mod open;
mod options;
mod output;
mod phase;
mod pieces;
mod rack;
mod recovery;
mod report;
mod row;
mod rtt;
pub(crate) mod rx;
mod save;
mod sendq;
pub(crate) mod socket;
mod states;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod timers;

pub use cc::Algorithm;
pub use conn::State;
pub use fastopen::FastOpenKeys;
pub use info::Info;
pub use options::TcpOptions;
pub use pieces::SendFlags;
pub use save::{Outside, Placed, TcpSockets, TcpState};
pub(crate) use socket::Tcp;
pub use socket::TcpSocket;
