//! What a socket needs of a connection to a program outside this kernel.

use abi::Result;
use wait::Events;

/// A connected Unix socket of the host. Nothing here waits: EAGAIN.
pub trait OutsideSocket: Send + Sync {
    /// Sends what there is room for; EPIPE without SIGPIPE.
    fn send(&self, data: &[u8]) -> Result<usize>;
    /// Receives into `buf`: how many bytes are in it, and how many the record has. `peek`: they stay. `record`: not a stream.
    fn recv(&self, buf: &mut [u8], peek: bool, record: bool) -> Result<(usize, usize)>;
    /// shutdown(2).
    fn shutdown(&self, how: i32) -> Result<()>;
    /// Readiness.
    fn poll(&self) -> Events;
    /// FIONREAD.
    fn unread(&self) -> Result<i32>;
    /// User and group ID of the other side.
    fn owner(&self) -> (u32, u32);
}
