//! Sockets as plain data, for a checkpoint: what the shell around a socket of the stack has, beside what the stack keeps.

use crate::datagram::Datagrams;
use crate::notify::Waiters;
use crate::options::Common;
use crate::stream::Stream;
use abi::{Errno, Result};
use ktime::Ktime;
use netstack::datagram::DatagramState;
use netstack::tcp::{Placed, TcpSocket, TcpState};
use serde::{Deserialize, Serialize};
use socket::filter::Program;
use socket::options::OptionsState;
use socket::{NetNamespace, SocketOps};
use std::collections::HashMap;
use std::sync::Arc;

/// Values of options that one socket may keep.
const MOST_KEPT: usize = 1 << 12;

/// Options that the stack does not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShellState {
    /// Those of SOL_SOCKET.
    options: OptionsState,
    /// What readers are told.
    wants: u32,
    /// Values that are handed back: level, name, value.
    kept: Vec<(i32, i32, i32)>,
}

/// A TCP socket of a descriptor; the stack keeps the rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamState {
    shell: ShellState,
}

/// A UDP, ping or raw socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatagramsState {
    socket: DatagramState,
    shell: ShellState,
    /// The instructions of SO_ATTACH_FILTER; none without a filter.
    filter: Vec<u8>,
    /// Those of SO_ATTACH_REUSEPORT_CBPF.
    #[serde(default)]
    program: Vec<u8>,
    /// When the packet arrived that was read last.
    at: Option<Ktime>,
}

/// A socket of this crate as plain data.
pub enum Saved {
    /// A TCP socket, which the stack saves with the others.
    Stream(StreamState, Arc<TcpSocket>),
    /// A datagram socket.
    Datagrams(Box<DatagramsState>),
}

impl DatagramsState {
    /// Interfaces have other indices in a restored stack.
    pub fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        self.socket.renumber(indices);
    }
}

impl ShellState {
    fn new(options: &socket::Options, common: &Common) -> ShellState {
        let (wants, kept) = common.state();
        ShellState { options: options.state(), wants, kept }
    }

    fn restore(&self) -> Result<(socket::Options, Common)> {
        if self.kept.len() > MOST_KEPT {
            return Err(Errno::EINVAL);
        }
        Ok((socket::Options::from(&self.options), Common::restore(self.wants, &self.kept)))
    }
}

/// A socket as plain data; `None` when it is of another kind, or has what cannot be saved.
pub fn save(ops: &dyn SocketOps) -> Option<Saved> {
    if let Some(stream) = ops.as_any().downcast_ref::<Stream>() {
        let (socket, _, options, common) = stream.parts();
        return Some(Saved::Stream(StreamState { shell: ShellState::new(options, common) }, socket.clone()));
    }
    let (socket, _, (options, common), stamp) = ops.as_any().downcast_ref::<Datagrams>()?.parts();
    Some(Saved::Datagrams(Box::new(DatagramsState {
        socket: socket.save(),
        shell: ShellState::new(options, common),
        filter: socket.filter()?,
        program: socket.group_program()?,
        at: stamp.at(),
    })))
}

/// Puts a TCP socket into its place; it goes on with all others.
pub fn restore_stream(
    net: &Arc<NetNamespace>,
    saved: &StreamState,
    tcp: TcpState,
    placed: &mut Placed,
) -> Result<Arc<dyn SocketOps>> {
    let shell = saved.shell.restore()?;
    let (queue, waiters) = Waiters::new();
    let socket = net.stack().place_tcp(tcp, Some(waiters), placed)?;
    Ok(Stream::restore(socket, net, shell, queue))
}

/// Puts a datagram socket into its place.
pub fn restore_datagrams(net: &Arc<NetNamespace>, saved: DatagramsState) -> Result<Arc<dyn SocketOps>> {
    let shell = saved.shell.restore()?;
    let (queue, waiters) = Waiters::new();
    let socket = net.stack().place_datagram(saved.socket, waiters)?;
    if !saved.filter.is_empty() {
        socket.set_filter(Some(Arc::new(Program::new(&saved.filter)?)));
    }
    if !saved.program.is_empty() {
        socket.set_group_program(Some(Arc::new(Program::new(&saved.program)?)))?;
    }
    Ok(Datagrams::restore(socket, net, shell, saved.at, queue))
}
